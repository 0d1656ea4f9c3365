//! An API server of one machine, one Dpu and one Hardware: gets, lists, patches by UID and resourceVersion, and refuses when told to.

use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Default)]
pub struct State {
    pub machine: Option<Value>,
    pub dpu: Option<Value>,
    pub hardware: Option<Value>,
    /// What was said of the Dpu, one after the other.
    pub confirmed_down: Vec<Value>,
    /// Objects of the kinds that are operations, as they were made.
    pub operations: Vec<Value>,
    /// So many writes find that somebody else was faster.
    pub conflicts: u32,
    pub writes: u32,
    /// How many were begun.
    pub watches: u32,
    /// The answer to every write.
    pub refusal: Option<Value>,
    /// Only the machine may be read.
    pub tenant: bool,
    /// Vpcs, Subnets, SecurityGroups and VNics, by their kind's plural.
    pub network: BTreeMap<&'static str, Vec<Value>>,
}

#[derive(Clone)]
pub struct Fake(Arc<Mutex<State>>);

/// A machine that runs.
pub fn machine() -> Value {
    json!({
        "apiVersion": "metalplane.io/v1alpha1", "kind": "BareMetalMachine",
        "metadata": {"name": "bm-01", "namespace": "team-a", "uid": "m-1", "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"runStrategy": "Always",
            "disks": [{"name": "root", "bootOrder": 1, "source": {"image": {"name": "debian-12"}}}],
            "interfaces": [{"name": "eth0", "subnet": "blue", "addresses": ["10.20.0.7"]}]},
        "status": {"observedGeneration": 1, "state": "Running", "hardwareName": "rack1-u07",
            "power": {"state": "On", "observedAt": "2026-01-01T00:00:00.000000Z"},
            "addresses": [{"interface": "eth0", "address": "10.20.0.7"}],
            "disks": [{"name": "root", "phase": "Attached", "claimName": "bm-01-root", "dpuName": "dpu-1"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Running", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

impl Fake {
    pub fn with(machine: Value) -> Self {
        Self(Arc::new(Mutex::new(State { machine: Some(machine), ..State::default() })))
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds it")
    }

    pub fn client(&self) -> Client {
        let state = self.0.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let state = state.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.expect("a body in memory");
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let query = head.uri.query().unwrap_or_default();
                let answer = state.lock().expect("not poisoned").answer(&head.method, head.uri.path(), query, body);
                Ok::<_, Infallible>(answer)
            }
        });
        Client::new(service, "team-a")
    }
}

fn say(code: u16, value: &Value) -> http::Response<Body> {
    let body = Body::from(value.to_string().into_bytes());
    http::Response::builder().status(code).body(body).expect("a response")
}

fn no(code: u16, reason: &str, name: &str) -> http::Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": reason, "details": {"name": name}});
    say(code, &status)
}

impl State {
    fn answer(&mut self, method: &http::Method, path: &str, query: &str, body: Value) -> http::Response<Body> {
        let name = path.rsplit('/').next().unwrap_or_default();
        if path.contains("/baremetalmachines") {
            if *method == http::Method::PATCH {
                return self.patch(&body, query.contains("dryRun=All"));
            }
            if *method == http::Method::POST {
                return self.operation(method, name, query, body);
            }
            if query.contains("watch=") {
                // A watch that breaks at once: the client starts another.
                self.watches += 1;
                return say(200, &Value::Null);
            }
            return match (&self.machine, name) {
                (Some(machine), "baremetalmachines") => say(200, &list("BareMetalMachineList", machine)),
                (Some(machine), _) if machine["metadata"]["name"] == name => say(200, machine),
                _ => no(404, "NotFound", name),
            };
        }
        if path.contains("/machine") {
            return self.operation(method, name, query, body);
        }
        if path.contains("/hardware") {
            let there = self.hardware.clone().unwrap_or_default();
            if *method != http::Method::PATCH {
                return say(200, &list("HardwareList", &there));
            }
            let mut changed = there.clone();
            for key in ["uid", "resourceVersion"] {
                assert_eq!(body["metadata"][key], there["metadata"][key], "{key} is a precondition");
            }
            json_patch::merge(&mut changed, &body);
            if !query.contains("dryRun=All") {
                self.hardware = Some(changed.clone());
            }
            return say(200, &changed);
        }
        if path.contains("/dpus") {
            if *method == http::Method::PATCH {
                let mut dpu = self.dpu.clone().unwrap_or_default();
                for key in ["uid", "resourceVersion"] {
                    assert_eq!(body["metadata"][key], dpu["metadata"][key], "{key} is a precondition");
                }
                if let Some(word) = body.pointer("/spec/confirmedDown") {
                    self.confirmed_down.push(word["bootID"].clone());
                }
                json_patch::merge(&mut dpu, &body);
                self.dpu = Some(dpu.clone());
                return say(200, &dpu);
            }
            return say(200, &list("DpuList", self.dpu.as_ref().unwrap_or(&Value::Null)));
        }
        match name {
            "persistentvolumeclaims" | "diskattachments" | "nicattachments" if self.tenant => {
                no(403, "Forbidden", name)
            }
            "vpcs" | "subnets" | "securitygroups" | "vnics" | "natgateways" | "floatingips" => {
                let items = self.network.get(name).cloned().unwrap_or_default();
                say(200, &json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}))
            }
            "persistentvolumeclaims" | "diskattachments" | "nicattachments" => say(200, &list("List", &Value::Null)),
            _ => no(404, "NotFound", name),
        }
    }

    /// Made, listed, found and deleted; a watch finds what is there.
    fn operation(&mut self, method: &http::Method, name: &str, query: &str, body: Value) -> http::Response<Body> {
        if let (&http::Method::POST, Some(refusal)) = (method, &self.refusal) {
            return say(422, refusal);
        }
        let at = self.operations.iter().position(|operation| operation["metadata"]["name"] == name);
        match (method.as_str(), at) {
            ("POST", _) => {
                let mut body = body;
                if let Some(prefix) = body["metadata"]["generateName"].as_str().map(str::to_owned) {
                    body["metadata"]["name"] = json!(format!("{prefix}x7k2p"));
                }
                if !query.contains("dryRun=All") {
                    self.operations.push(body.clone());
                }
                say(201, &body)
            }
            ("DELETE", Some(at)) => say(200, &self.operations.remove(at)),
            ("GET", Some(at)) => say(200, &self.operations[at]),
            ("GET", None) if name.ends_with('s') && name.starts_with("machine") => {
                let kind = |operation: &&Value| {
                    let kind = operation["kind"].as_str().unwrap_or_default().to_lowercase();
                    format!("{kind}s") == name
                };
                let items: Vec<&Value> = self.operations.iter().filter(kind).collect();
                let list = json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items});
                say(200, &list)
            }
            _ => no(404, "NotFound", name),
        }
    }

    fn patch(&mut self, change: &Value, dry_run: bool) -> http::Response<Body> {
        self.writes += 1;
        if let Some(refusal) = &self.refusal {
            return say(422, refusal);
        }
        let Some(machine) = &mut self.machine else { return no(404, "NotFound", "bm-01") };
        if self.conflicts > 0 {
            self.conflicts -= 1;
            machine["metadata"]["resourceVersion"] = json!(format!("other-{}", self.writes));
            machine["metadata"]["annotations"]["other"] = json!(self.writes.to_string());
        }
        if ["uid", "resourceVersion"].iter().any(|key| change["metadata"][key] != machine["metadata"][key]) {
            return no(409, "Conflict", "bm-01");
        }
        let mut wanted = machine.clone();
        json_patch::merge(&mut wanted, change);
        wanted["metadata"]["resourceVersion"] = json!(format!("ours-{}", self.writes));
        if !dry_run {
            *machine = wanted.clone();
        }
        say(200, &wanted)
    }
}

fn list(kind: &str, item: &Value) -> Value {
    let items: Vec<&Value> = Some(item).filter(|item| !item.is_null()).into_iter().collect();
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items})
}
