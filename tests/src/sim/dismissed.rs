//! A Subnet's finalizer is taken away by force: what its Vpc and its ProviderNetwork have admitted of it is taken back once nobody has an address of it.

use super::life::{self, condition, runs};
use super::simulation::{Simulation, USER};
use planner::network::rows::UID;
use serde_json::{Value, json};
use std::time::Duration;

const MACHINES: &str = "metalplane.io/baremetalmachines";
const SUBNETS: &str = "metalplane.io/subnets";
const VPCS: &str = "metalplane.io/vpcs";
const NETWORKS: &str = "metalplane.io/providernetworks";

/// Long enough for whatever would be done about it.
const LONG: Duration = Duration::from_secs(120);

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn subnet(s: &Simulation, name: &str) -> Value {
    Value::clone(&s.scene.server.get(SUBNETS, USER, name).unwrap_or_default())
}

fn is_ready(s: &Simulation, name: &str) -> bool {
    condition(&subnet(s, name), "Ready") == "True"
}

fn is_refused(s: &Simulation, name: &str, why: &str) -> bool {
    let all = subnet(s, name)["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().any(|condition| condition["type"] == "Ready" && condition["reason"] == why)
}

/// Which Subnets the Vpc has admitted.
fn admitted(s: &Simulation) -> Vec<Value> {
    let vpc = s.scene.server.get(VPCS, USER, "default").unwrap_or_default();
    let all = vpc["status"]["subnets"].as_array().cloned().unwrap_or_default();
    all.into_iter().map(|subnet| subnet["uid"].clone()).collect()
}

fn take_by_force(s: &Simulation, name: &str) {
    s.change(SUBNETS, USER, name, |subnet| subnet["metadata"]["finalizers"] = json!([]));
    s.delete(SUBNETS, USER, name);
}

/// Under a machine that runs: its network is in OVN, and nobody else's, until the machine no longer exists; a controller that starts meanwhile
/// leaves it there too.
pub async fn under_a_machine(s: &mut Simulation) -> Result<(), String> {
    life::create(s, "bm-01", 7).await?;
    let Value::Object(blue) = subnet(s, "blue") else { return Err("there is no Subnet".to_owned()) };
    let (spec, uid) = (blue["spec"].clone(), blue["metadata"]["uid"].clone());
    let rows = |s: &Simulation| s.scene.north_bound.rows().iter().filter(|row| row.external_ids[UID] == uid).count();
    let before = rows(s);
    take_by_force(s, "blue");
    s.create(SUBNETS, USER, object("Subnet", "blue", &spec));
    s.until("the next Subnet is refused", |s| is_refused(s, "blue", "CidrOverlaps")).await?;
    s.stop_controllers();
    s.start_controller("controller-2", "default");
    tokio::time::sleep(LONG).await;
    if !runs(s, "bm-01") || !is_refused(s, "blue", "CidrOverlaps") || before == 0 || rows(s) != before {
        let rows = rows(s);
        return Err(format!("the machine stopped, or lost its network: {before} rows, now {rows}\n{}", s.story()));
    }
    s.delete(MACHINES, USER, "bm-01");
    s.until("the next Subnet is admitted", |s| {
        is_ready(s, "blue") && admitted(s) == [subnet(s, "blue")["metadata"]["uid"].clone()]
    })
    .await?;
    s.until("nothing is left", life::is_clean).await
}

/// The only one on a ProviderNetwork, in which nobody is; while the controller is not there, too.
pub async fn on_a_vlan(s: &mut Simulation, unseen: bool) -> Result<(), String> {
    let network = json!({"physicalNetwork": "physnet1", "cidr": "203.0.113.0/24", "gateway": "203.0.113.1"});
    s.create(NETWORKS, "", object("ProviderNetwork", "rack", &network));
    let hosts = json!({"providerNetwork": "rack", "routed": false, "cidr": "203.0.113.0/24"});
    s.create(SUBNETS, USER, object("Subnet", "hosts", &hosts));
    s.until("the Subnet is on the network", |s| is_ready(s, "hosts")).await?;
    s.create(SUBNETS, USER, object("Subnet", "next", &hosts));
    s.until("another Subnet is refused", |s| condition(&subnet(s, "next"), "Ready") == "False").await?;
    if unseen {
        s.stop_controllers();
    }
    take_by_force(s, "hosts");
    if unseen {
        s.start_controller("controller-1", "default");
    }
    s.until("the other Subnet is on the network", |s| is_ready(s, "next")).await?;
    let network = s.scene.server.get(NETWORKS, "", "rack").unwrap_or_default();
    if network["status"]["subnet"]["name"] != "next" || admitted(s).len() != 2 {
        return Err(format!("{network:#}\n{:?}\n{}", admitted(s), s.story()));
    }
    s.delete(SUBNETS, USER, "next");
    s.delete(NETWORKS, "", "rack");
    s.until("nothing is left", |s| s.scene.server.list(NETWORKS).is_empty() && life::is_clean(s)).await
}
