//! A chassis has stopped with a guest on it, and objects change that concern the guest: none is said to be in force (`in_force.rs`) before the
//! chassis goes on.

use super::network::LONG;
use super::simulation::{Simulation, USER};
use super::way_out;
use serde_json::{Value, json};

/// Resource, name, and the change.
type Change = (&'static str, &'static str, fn(&mut Value));

/// One of each kind that says it.
const CHANGES: [Change; 5] = [
    ("metalplane.io/vpcs", "default", |vpc| vpc["spec"]["routes"] = json!([])),
    ("metalplane.io/subnets", "blue", |subnet| subnet["spec"]["dhcp"] = json!({"leaseSeconds": 600})),
    ("metalplane.io/securitygroups", "default", |group| group["spec"]["ingress"] = json!([])),
    ("metalplane.io/vnics", "bm-01-eth0", |vnic| vnic["spec"]["qos"] = json!({"egressMbps": 50})),
    ("metalplane.io/floatingips", "in", |floating| floating["spec"]["vnic"] = Value::Null),
];

fn is(s: &Simulation, (resource, name, _): &Change, type_: &str, status: &str) -> bool {
    let object = s.scene.server.get(resource, USER, name).unwrap_or_default();
    object["status"]["conditions"].as_array().into_iter().flatten().any(|said| {
        said["type"] == type_
            && said["status"] == status
            && said["observedGeneration"] == object["metadata"]["generation"]
    })
}

pub async fn under_a_machine(s: &Simulation) -> Result<(), String> {
    way_out::open(s, &way_out::ORDERS[0]).await?;
    let chassis = s.scene.hosts[0].dpu_name.clone();
    s.scene.north_bound.stop_chassis(&chassis, true);
    for change in &CHANGES {
        let (resource, name, change) = change;
        s.change(resource, USER, name, change);
    }
    s.until("all are written, and say that they are not in force", |s| {
        CHANGES.iter().all(|change| is(s, change, "Programmed", "True") && is(s, change, "InForce", "False"))
    })
    .await?;
    tokio::time::sleep(LONG).await;
    if let Some((_, name, _)) = CHANGES.iter().find(|change| !is(s, change, "InForce", "False")) {
        return Err(format!("'{name}' is in force on a chassis that has stopped\n{}", s.story()));
    }
    s.scene.north_bound.stop_chassis(&chassis, false);
    s.until("all are in force", |s| CHANGES.iter().all(|change| is(s, change, "InForce", "True"))).await?;
    way_out::close(s).await
}
