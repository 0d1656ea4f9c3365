//! What an administrator does to the server and the DPU under a machine, or gets wrong.

use super::api::watch;
use super::faults::Who;
use super::host::{DRIVER, Manners, serial_number};
use super::life::{self, runs};
use super::simulation::{Simulation, USER};
use planner::host::PowerState;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const MACHINES: &str = "metalplane.io/baremetalmachines";
const DPUS: &str = "metalplane.io/dpus";

/// The machine says this in one of its conditions.
fn says(s: &Simulation, name: &str, reason: &str) -> bool {
    let machine = s.machine(name).unwrap_or_default();
    let all = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().any(|c| c["reason"] == reason || c["message"].as_str().is_some_and(|text| text.contains(reason)))
}

fn actions(s: &Simulation) -> usize {
    s.scene.hosts.iter().map(|host| host.actions().len()).sum()
}

/// The address of the BMC is that of another server: first before the claim, then under a running machine.
pub async fn wrong_server(s: &Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    host.answers_for("ANOTHER");
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("it is not claimed, and why", |s| says(s, "bm-01", "HardwareMismatch")).await?;
    host.answers_for(&serial_number(&host.name));
    s.until("the machine runs", |s| runs(s, "bm-01")).await?;
    host.answers_for("ANOTHER");
    s.until("it is noticed", |s| says(s, "bm-01", "HardwareMismatch")).await?;
    let (sent, shown) = (actions(s), host.dpu().disks().len());
    s.change(MACHINES, USER, "bm-01", |machine| machine["metadata"]["annotations"] = life::restart_now());
    s.change(MACHINES, USER, "bm-01", life::plug_blank);
    // Long enough for whatever would be done about it.
    tokio::time::sleep(Duration::from_secs(300)).await;
    if (actions(s), host.dpu().disks().len()) != (sent, shown) {
        return Err(format!("something was done to another server\n{}", s.story()));
    }
    host.answers_for(&serial_number(&host.name));
    s.until("the disk is there, and it was restarted", |s| {
        runs(s, "bm-01") && host.dpu().disks().len() == shown + 1 && actions(s) == sent + 1
    })
    .await?;
    life::delete(s, "bm-01").await
}

/// The BMC has accepted a power-on and takes its time; the machine is deleted while the host still reads off.
pub async fn deleted_before_it_is_on(s: &Simulation, late: Duration) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    host.behave(Manners::LateOn(late));
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("power-on is accepted", |s| {
        let machine = s.machine("bm-01").unwrap_or_default();
        machine["status"]["power"]["lastActionAcceptedAt"].is_string()
    })
    .await?;
    s.delete(MACHINES, USER, "bm-01");
    s.until("nothing is left", life::is_clean).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    match host.power() {
        PowerState::Off => Ok(()),
        power => Err(format!("nobody's host is {power:?}\n{}", s.story())),
    }
}

/// Disks of a StorageClass that waits for its consumer: one that is made, and a claim of the user's own.
pub async fn late_binding(s: &Simulation) -> Result<(), String> {
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
        "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"});
    s.create("storage.k8s.io/storageclasses", "", class);
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": "late",
            "resources": {"requests": {"storage": "1Gi"}}}});
    s.create("persistentvolumeclaims", USER, claim);
    let mut machine = life::machine("bm-01", 7);
    machine["spec"]["disks"][0]["storageClassName"] = json!("late");
    let mine = json!({"name": "mine", "source": {"persistentVolumeClaim": {"claimName": "mine"}}});
    machine["spec"]["disks"].as_array_mut().expect("a list").push(mine);
    s.create(MACHINES, USER, machine);
    s.until("the volumes are awaited", |s| says(s, "bm-01", "ClaimBindsLate")).await?;
    s.until("the machine runs", |s| runs(s, "bm-01")).await?;
    for claim in s.scene.server.list("persistentvolumeclaims") {
        let annotations = &claim["metadata"]["annotations"];
        if annotations[api::labels::SELECTED_NODE] != json!(s.scene.hosts[0].dpu_name) {
            return Err(format!("{} was made for {annotations}", claim["metadata"]["name"]));
        }
    }
    s.delete(MACHINES, USER, "bm-01");
    s.until("the machine is gone", |s| s.machine("bm-01").is_none()).await?;
    s.delete("persistentvolumeclaims", USER, "mine");
    s.until("nothing is left", life::is_clean).await
}

/// A disk is taken out, its claim is deleted and takes its time to go, and a disk of the same name comes: its claim is made
/// when the old one, which nobody uses any more, is gone.
pub async fn same_name_again(s: &Simulation) -> Result<(), String> {
    let claims = "persistentvolumeclaims";
    life::create(s, "bm-01", 7).await?;
    life::plug(s, "bm-01").await?;
    s.change(claims, USER, "bm-01-data", |claim| {
        claim["metadata"]["finalizers"].as_array_mut().expect("a list").push(json!("example.com/backup"));
    });
    s.change(MACHINES, USER, "bm-01", |machine| {
        machine["spec"]["disks"].as_array_mut().expect("a list").truncate(1);
    });
    s.until("the claim is let go", |s| {
        let claim = s.scene.server.get(claims, USER, "bm-01-data").unwrap_or_default();
        claim["metadata"]["finalizers"] == json!(["example.com/backup"]) && runs(s, "bm-01")
    })
    .await?;
    s.delete(claims, USER, "bm-01-data");
    s.change(MACHINES, USER, "bm-01", life::plug_blank);
    s.until("the claim is waited for", |s| says(s, "bm-01", "ClaimBeingDeleted")).await?;
    // Longer than whatever else wakes the controller.
    tokio::time::sleep(Duration::from_secs(60)).await;
    s.change(claims, USER, "bm-01-data", |claim| claim["metadata"]["finalizers"] = json!([]));
    s.until("the new disk is there", |s| runs(s, "bm-01")).await
}

/// A user takes a disk or an interface out of the spec and deletes what was made for it at once, while the controller does not
/// hear of machines: nobody asks for it any more, so it stays deleted.
pub async fn deleted_unheard(s: &Simulation, kind: &str, list: &str, part: Value) -> Result<(), String> {
    let made = format!("bm-01-{}", part["name"].as_str().unwrap_or_default());
    life::create(s, "bm-01", 7).await?;
    s.change(MACHINES, USER, "bm-01", |machine| machine["spec"][list].as_array_mut().expect("a list").push(part));
    s.until("it is made", |s| s.scene.server.get(kind, USER, &made).is_some()).await?;
    s.scene.watches(Who::Controller, watch::Manners::Behind(MACHINES, Instant::now() + Duration::from_secs(60)));
    s.change(MACHINES, USER, "bm-01", |machine| machine["spec"][list].as_array_mut().expect("a list").truncate(1));
    let first = s.scene.server.get(kind, USER, &made).unwrap_or_default()["metadata"]["uid"].clone();
    s.delete(kind, USER, &made);
    let told = s.scene.server.store().log.len();
    tokio::time::sleep(Duration::from_secs(300)).await;
    s.scene.watches(Who::Controller, watch::Manners::Prompt);
    let again = s.scene.server.store().log[told..]
        .iter()
        .any(|event| event.id.resource == kind && event.id.name == made && event.object["metadata"]["uid"] != first);
    let is_there = s.scene.server.get(kind, USER, &made).is_some();
    match again || is_there {
        true => Err(format!("{kind} {made} was made again, or stays, and nobody asks for it\n{}", s.story())),
        false if !runs(s, "bm-01") => Err(format!("the machine does not run\n{}", s.story())),
        false => life::delete(s, "bm-01").await,
    }
}

fn word(dpu: &Value) -> String {
    let all = dpu["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = all.iter().find(|condition| condition["type"] == "Ready").cloned().unwrap_or_default();
    ready["status"].as_str().unwrap_or("none").to_owned()
}

fn is(s: &Simulation, ready: &str) -> bool {
    s.scene.server.list(DPUS).iter().all(|dpu| word(dpu) == ready)
}

/// An agent is cut off from the API server, and comes back: who says what of it since.
pub async fn cut_off_for_a_while(s: &Simulation) -> Result<(), String> {
    s.until("the agent is well", |s| is(s, "True")).await?;
    let dpus: Vec<String> = s.scene.hosts.iter().map(|host| host.dpu_name.clone()).collect();
    dpus.iter().for_each(|dpu| s.scene.cut(dpu, true));
    s.until("the agent is silent", |s| is(s, "Unknown")).await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let from = s.scene.server.store().log.len();
    dpus.iter().for_each(|dpu| s.scene.cut(dpu, false));
    s.until("the agent is well again", |s| is(s, "True")).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let written: Vec<String> = {
        let store = s.scene.server.store();
        store.log[from..].iter().filter(|event| event.id.resource == DPUS).map(|event| word(&event.object)).collect()
    };
    let taken_back = written.windows(2).filter(|pair| pair[0] == "True" && pair[1] == "Unknown").count();
    match (taken_back, written.len() > 10 * s.scene.hosts.len()) {
        (0, false) => Ok(()),
        _ => Err(format!("{} writes, of which {taken_back} took Ready back\n{}", written.len(), s.story())),
    }
}
