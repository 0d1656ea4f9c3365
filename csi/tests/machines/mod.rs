//! An API server of machines and claims, and the controller that would attach and detach: gets, lists, makes, patches and
//! deletes by precondition.

use kube::{Client, client::Body};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

#[derive(Default)]
pub struct State {
    /// By resource and name.
    pub objects: BTreeMap<(String, String), Value>,
    version: u64,
    /// So many writes find that somebody else was faster.
    pub conflicts: u32,
    /// A claim that is deleted stays while it has these.
    pub finalizers: Vec<String>,
}

#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<State>>);

impl Fake {
    pub fn with_machines(names: &[&str]) -> Fake {
        let fake = Fake::default();
        for name in names {
            let machine = json!({
                "apiVersion": "metalplane.io/v1alpha1", "kind": "BareMetalMachine",
                "metadata": {"name": name, "namespace": "workers", "uid": format!("uid-{name}")},
                "spec": {"disks": [{"name": "root", "bootOrder": 1, "source": {"image": {"name": "debian-12"}}}]},
            });
            fake.lock().put("baremetalmachines", name, machine);
        }
        fake
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds it")
    }

    pub fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let fake = fake.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.expect("a body in memory");
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                Ok::<_, Infallible>(fake.lock().answer(&head.method, head.uri.path(), body))
            }
        });
        Client::new(service, "workers")
    }

    pub fn disks(&self, machine: &str) -> Vec<Value> {
        let spec = self.lock().get("baremetalmachines", machine)["spec"]["disks"].clone();
        spec.as_array().cloned().unwrap_or_default()
    }

    pub fn claims(&self) -> Vec<String> {
        let state = self.lock();
        state
            .objects
            .keys()
            .filter(|(kind, _)| kind == "persistentvolumeclaims")
            .map(|(_, name)| name.clone())
            .collect()
    }

    /// What Metalplane's controller and agents do: every disk that is asked for is presented, no other one is.
    pub fn attach_and_detach(&self, machine: &str) {
        let mut state = self.lock();
        let mut object = state.get("baremetalmachines", machine);
        let disks = object["spec"]["disks"].as_array().cloned().unwrap_or_default();
        let status = |disk: &Value| {
            let claim = disk["source"]["persistentVolumeClaim"]["claimName"].clone();
            json!({"name": disk["name"], "phase": "Attached", "claimName": claim, "dpuName": "dpu-1",
                "serial": format!("MP-{}", disk["name"].as_str().unwrap_or_default()), "wwid": "uuid.5866"})
        };
        object["status"] = json!({"disks": disks.iter().map(status).collect::<Vec<_>>()});
        state.put("baremetalmachines", machine, object);
    }
}

impl State {
    pub fn get(&self, kind: &str, name: &str) -> Value {
        self.objects.get(&(kind.to_owned(), name.to_owned())).cloned().unwrap_or_default()
    }

    pub fn put(&mut self, kind: &str, name: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert((kind.to_owned(), name.to_owned()), object.clone());
        object
    }

    fn answer(&mut self, method: &http::Method, path: &str, body: Value) -> http::Response<Body> {
        let mut words = path.rsplit('/');
        let last = words.next().unwrap_or_default();
        if ["baremetalmachines", "persistentvolumeclaims"].contains(&last) {
            return match method.as_str() {
                "GET" => self.list(last),
                _ => self.create(last, body),
            };
        }
        let (kind, name) = (words.next().unwrap_or_default(), last);
        let there = self.get(kind, name);
        if there.is_null() {
            return no(404, "NotFound", name);
        }
        match method.as_str() {
            "GET" => say(200, &there),
            "PATCH" => self.patch(kind, name, there, &body),
            "DELETE" => self.delete(kind, name, there, &body),
            other => no(405, "MethodNotAllowed", other),
        }
    }

    fn list(&self, kind: &str) -> http::Response<Body> {
        let items: Vec<&Value> = self.objects.iter().filter(|((of, _), _)| of == kind).map(|(_, it)| it).collect();
        say(200, &json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}))
    }

    fn create(&mut self, kind: &str, mut object: Value) -> http::Response<Body> {
        let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
        if !self.get(kind, &name).is_null() {
            return no(409, "AlreadyExists", &name);
        }
        object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        let made = self.put(kind, &name, object);
        say(201, &made)
    }

    fn patch(&mut self, kind: &str, name: &str, mut there: Value, change: &Value) -> http::Response<Body> {
        let given = &change["metadata"];
        assert_eq!(given["uid"], there["metadata"]["uid"], "a patch without the UID that was read");
        if self.conflicts > 0 {
            self.conflicts -= 1;
            there["metadata"]["annotations"]["other"] = json!(self.conflicts.to_string());
            there = self.put(kind, name, there);
        }
        if given["resourceVersion"] != there["metadata"]["resourceVersion"] {
            return no(409, "Conflict", name);
        }
        json_patch::merge(&mut there, change);
        let written = self.put(kind, name, there);
        say(200, &written)
    }

    fn delete(&mut self, kind: &str, name: &str, mut there: Value, options: &Value) -> http::Response<Body> {
        let given = &options["preconditions"];
        assert_eq!(given["uid"], there["metadata"]["uid"], "a deletion without the UID that was read");
        if given["resourceVersion"] != there["metadata"]["resourceVersion"] {
            return no(409, "Conflict", name);
        }
        if self.finalizers.is_empty() {
            self.objects.remove(&(kind.to_owned(), name.to_owned()));
        } else {
            there["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            there["metadata"]["finalizers"] = json!(self.finalizers);
            there = self.put(kind, name, there);
        }
        say(200, &there)
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
