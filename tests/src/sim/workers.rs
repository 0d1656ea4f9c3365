//! Pods whose node is a machine: their NICs are at the machine's server, and nowhere else.

use super::api::path::Id;
use super::life::{self, MACHINES};
use super::scene::Scene;
use super::simulation::{INVENTORY, Simulation, USER};
use super::verbs;
use api::labels;
use serde_json::{Value, json};

const NICS: &str = "metalplane.io/nicattachments";
const NODE: &str = "worker-1";

/// NICs of pods that a host shows although its server is not their worker's.
pub fn strangers(scene: &Scene) -> Vec<String> {
    let nics = scene.server.list(NICS);
    let mut found = Vec::new();
    for nic in &nics {
        let Some(worker) = nic["metadata"]["labels"][labels::WORKER_UID].as_str() else { continue };
        for host in &scene.hosts {
            let shows = host.dpu().exposures().iter().any(|seen| seen.id.uid == nic["metadata"]["uid"]);
            let hardware = scene.server.get("tinkerbell.org/hardware", INVENTORY, &host.name).unwrap_or_default();
            let has = hardware["metadata"]["annotations"][labels::CLAIMED_BY].as_str();
            if shows && has != Some(worker) {
                found.push(format!(
                    "{} shows {} of a pod on {worker}, and is of {has:?}",
                    host.name, nic["metadata"]["name"]
                ));
            }
        }
    }
    found
}

/// A machine that is a worker, with a pod that has a NIC there.
pub async fn create(s: &Simulation) -> Result<(), String> {
    create_worker(s);
    create_pod(s);
    works(s).await
}

pub fn create_worker(s: &Simulation) {
    let mut machine = life::machine("bm-01", 7);
    machine["spec"]["nodeName"] = json!(NODE);
    s.create(MACHINES, USER, machine);
    let provider = format!("metalplane://{USER}/bm-01");
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {"providerID": provider}});
    s.create("nodes", "", node);
}

pub fn create_pod(s: &Simulation) {
    let asks = json!({labels::NETWORKS: r#"[{"name": "net1", "subnet": "blue"}]"#});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": "web", "labels": {labels::NETWORKS: ""}, "annotations": asks,
    }, "spec": {"nodeName": NODE, "containers": []}});
    s.create("pods", USER, pod);
}

fn delete_pod(s: &Simulation) -> Result<(), String> {
    let now = json!({"gracePeriodSeconds": 0});
    let pod = Id::new("pods", USER, "web");
    s.scene.server.write(|store| store.delete(&pod, &now).map(drop)).map_err(|refusal| refusal.message)
}

/// The pod is deleted, and its machine runs on.
pub async fn pod_ends(s: &Simulation) -> Result<(), String> {
    delete_pod(s)?;
    let is_of_pod = |object: &Value| object["metadata"]["labels"][labels::POD] == "web";
    s.until("nothing of the pod is left", |s| {
        [NICS, "metalplane.io/vnics"].iter().all(|kind| !s.scene.server.list(kind).iter().any(|one| is_of_pod(one)))
    })
    .await
}

/// The pod's NIC is in force at the machine's server.
pub async fn works(s: &Simulation) -> Result<(), String> {
    s.until("the pod has its NIC at the machine", |s| {
        let machine = s.machine("bm-01").unwrap_or_default();
        let dpu = s.scene.hosts.iter().find(|host| machine["status"]["hardwareName"] == host.name.as_str());
        let pod = s.scene.server.get("pods", USER, "web").unwrap_or_default();
        let told = pod["metadata"]["annotations"][labels::NETWORK_STATUS].as_str().unwrap_or_default();
        let is_there = |nic: &Value| {
            let at = dpu.is_some_and(|host| nic["spec"]["dpuName"] == host.dpu_name.as_str());
            at && nic["spec"]["owner"]["kind"] == "Pod" && nic["status"]["phase"] == "Attached"
        };
        life::runs(s, "bm-01") && told.contains("net1") && s.scene.server.list(NICS).iter().any(|nic| is_there(nic))
    })
    .await
}

/// It moves to another server, and the pod's NIC comes after it; then it is deleted under the pod.
pub async fn moves_and_ends(s: &Simulation) -> Result<(), String> {
    verbs::migrate(s, "bm-01", "m1").await?;
    works(s).await?;
    s.delete(MACHINES, USER, "bm-01");
    s.until("the server is released", |s| {
        let hardware = s.scene.server.list("tinkerbell.org/hardware");
        s.machine("bm-01").is_none() && hardware.iter().all(|hardware| life::is_unclaimed(hardware))
    })
    .await?;
    s.until("the pod has no NIC", |s| s.scene.server.list(NICS).is_empty()).await?;
    delete_pod(s)?;
    s.delete("nodes", "", NODE);
    s.until("nothing is left", life::is_clean).await
}
