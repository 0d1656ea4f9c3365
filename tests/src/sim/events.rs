//! What users are told of NICs and of Workflows, once.

use super::bare::WORKFLOWS;
use super::jobs;
use super::life::{self, condition};
use super::netboot::Servers;
use super::simulation::{INVENTORY, SYSTEM, Simulation, USER};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const VNICS: &str = "metalplane.io/vnics";

/// Until what is written late is written.
const CALM: Duration = Duration::from_secs(30);

/// The notes of all Events of an object with this reason; one that was sent again counts again.
fn told(s: &Simulation, kind: &str, name: &str, reason: &str) -> Vec<String> {
    let of_it = |event: &&Arc<Value>| {
        let regarding = &event["regarding"];
        event["reason"] == reason && regarding["kind"] == kind && regarding["name"] == name
    };
    let all = s.scene.server.list("events.k8s.io/events");
    let notes = all.iter().filter(of_it).flat_map(|event| {
        let times = event["series"]["count"].as_u64().unwrap_or(1);
        (0..times).map(|_| event["note"].as_str().unwrap_or_default().to_owned())
    });
    notes.collect()
}

/// An address that was chosen is told once, whoever leads; one that was asked for is known already. A NIC that is plugged into a host
/// that runs is told as such, and those that it was started with are not.
pub async fn of_nics(s: &mut Simulation) -> Result<(), String> {
    let vnic = |name: &str, spec: Value| json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "VNic", "metadata": {"name": name}, "spec": spec});
    s.create(VNICS, USER, vnic("chosen", json!({"subnet": "blue"})));
    s.create(VNICS, USER, vnic("asked", json!({"subnet": "blue", "addresses": ["10.20.0.77"]})));
    let assigned = |s: &Simulation, name: &str| {
        condition(&s.scene.server.get(VNICS, USER, name).unwrap_or_default(), "AddressesAssigned") == "True"
    };
    s.until("both have their addresses", |s| assigned(s, "chosen") && assigned(s, "asked")).await?;
    life::create(s, "bm-01", 7).await?;
    life::plug(s, "bm-01").await?;
    tokio::time::sleep(CALM).await;
    s.stop_controllers();
    s.start_controller("controller-1", SYSTEM);
    tokio::time::sleep(CALM).await;
    let address = s.scene.server.get(VNICS, USER, "chosen").unwrap_or_default()["status"]["addresses"][0].clone();
    let note = format!("the controller has chosen {} of Subnet 'blue'", address.as_str().unwrap_or_default());
    let dpu = &s.scene.hosts[0].dpu_name;
    let plugged =
        format!("Dpu '{dpu}' has hot-plugged interface 'eth1' into the running host, and its port is in force");
    for (kind, name, reason, notes) in [
        ("VNic", "chosen", "AddressAssigned", vec![note]),
        ("VNic", "asked", "AddressAssigned", Vec::new()),
        ("BareMetalMachine", "bm-01", "NicPlugged", vec![plugged]),
        (
            "BareMetalMachine",
            "bm-01",
            "NicAttached",
            vec![format!("Dpu '{dpu}' presents interface 'eth0' to the host")],
        ),
    ] {
        let said = told(s, kind, name, reason);
        if said != notes {
            return Err(format!("{reason} of {kind} '{name}': {said:?}, not {notes:?}\n{}", s.story()));
        }
    }
    Ok(())
}

/// A Workflow that a user has made is told of from its start to its end, and so is the Job by which its server boots; a leader that finds
/// them tells nothing again, and tells of those that come after it.
pub async fn of_workflows(s: &mut Simulation) -> Result<(), String> {
    let _servers = Servers::start(&s.scene, 1);
    jobs::prepare(s);
    for name in ["before", "after"] {
        jobs::create(s, name, &json!({"bootMode": "netboot", "toggleAllowNetboot": true}));
        s.until("the Workflow has ended", |s| {
            let workflow = s.scene.server.get(WORKFLOWS, INVENTORY, name).unwrap_or_default();
            workflow["status"]["state"] == "SUCCESS"
        })
        .await?;
        tokio::time::sleep(CALM).await;
        s.stop_controllers();
        s.start_controller("controller-1", SYSTEM);
        tokio::time::sleep(CALM).await;
    }
    for name in ["before", "after"] {
        let job = format!("netboot-{name}");
        for (kind, object, reason, count) in [
            ("Workflow", name, "WorkflowStarted", 1),
            ("Workflow", name, "WorkflowSucceeded", 1),
            ("Workflow", name, "WorkflowFailed", 0),
            ("Job", job.as_str(), "Running", 1),
            ("Job", job.as_str(), "Completed", 1),
            ("Job", job.as_str(), "Failed", 0),
        ] {
            let said = told(s, kind, object, reason);
            if said.len() != count {
                return Err(format!("{reason} of {kind} '{object}': {said:?}, not {count}\n{}", s.story()));
            }
        }
    }
    Ok(())
}
