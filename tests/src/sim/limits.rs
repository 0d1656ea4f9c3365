//! A user gives a running machine's disk other VolumeAttributesClasses, by its machine or by its claim.

use super::life::{self, condition};
use super::simulation::{Simulation, USER};
use api::Limits;
use serde_json::{Value, json};

const CLASSES: &str = "storage.k8s.io/volumeattributesclasses";
const MACHINES: &str = "metalplane.io/baremetalmachines";
const CLAIM: &str = "bm-01-root";

fn class(s: &Simulation, name: &str, parameters: &[(&str, &str)]) -> Limits {
    let words: serde_json::Map<_, _> =
        parameters.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": name},
        "driverName": super::host::DRIVER, "parameters": words});
    s.create(CLASSES, "", class);
    Limits::parse(parameters.iter().copied()).expect("it is understood")
}

fn choose_of_claim(s: &Simulation, class: &str) {
    s.change("persistentvolumeclaims", USER, CLAIM, |claim| claim["spec"]["volumeAttributesClassName"] = json!(class));
}

fn choose(s: &Simulation, class: &str) {
    let root = |machine: &mut Value| machine["spec"]["disks"][0]["volumeAttributesClassName"] = json!(class);
    s.change(MACHINES, USER, "bm-01", root);
}

/// What the host's boot disk is held to; `None`: it is not there.
fn held(s: &Simulation) -> Option<Limits> {
    let attachments = s.scene.server.list("metalplane.io/diskattachments");
    let root = attachments.iter().find(|attachment| attachment["spec"]["diskName"] == "root")?;
    let exposures = s.scene.hosts[0].dpu().exposures();
    exposures.iter().find(|exposure| root["metadata"]["uid"] == exposure.id.uid.as_str()).map(|shown| shown.limits)
}

/// The disk is held to them, and its machine says so.
async fn reaches(s: &Simulation, what: &str, limits: Limits) -> Result<(), String> {
    s.until(what, |s| {
        let machine = s.machine("bm-01").unwrap_or_default();
        let row = &machine["status"]["disks"][0];
        held(s) == Some(limits)
            && row["qos"] == serde_json::to_value(limits).unwrap_or_default()
            && condition(&machine, api::conditions::DISKS_LIMITED) == "True"
    })
    .await
}

/// Set, changed while the agent is away, kept when what presents the disks is lost, refused by the DPU, accepted again; without a
/// power action.
pub async fn changed(s: &mut Simulation) -> Result<(), String> {
    let gold = class(s, "gold", &[("iops", "20000"), ("bandwidthMiBps", "500")]);
    let silver = class(s, "silver", &[("iops", "5000"), ("readMiBps", "100")]);
    class(s, "impossible", &[("bandwidthMiBps", "500"), ("readMiBps", "100")]);
    life::create(s, "bm-01", 7).await?;
    let (host, actions) = (s.scene.hosts[0].clone(), s.scene.hosts[0].actions().len());
    choose_of_claim(s, "gold");
    reaches(s, "the disk is limited", gold).await?;
    choose(s, "silver");
    reaches(s, "the disk has the other limits, and no other", silver).await?;
    s.stop_agent(&host);
    host.dpu().emulation.crash();
    s.start_agent(&host);
    reaches(s, "the disk is presented again, with its limits", silver).await?;
    s.stop_agent(&host);
    choose(s, "gold");
    s.start_agent(&host);
    reaches(s, "the disk has what was chosen meanwhile", gold).await?;
    choose(s, "impossible");
    s.until("that it cannot be is told", |s| {
        let machine = s.machine("bm-01").unwrap_or_default();
        let all = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|c| c["type"] == api::conditions::DISKS_LIMITED && c["reason"] == "LimitsUnsupported")
    })
    .await?;
    if held(s) != Some(gold) {
        return Err(format!("refused limits changed something: {:?}\n{}", held(s), s.story()));
    }
    choose(s, "silver");
    reaches(s, "the disk is limited again", silver).await?;
    if host.actions().len() != actions {
        return Err(format!("power actions for limits: {:?}\n{}", host.actions(), s.story()));
    }
    life::delete(s, "bm-01").await
}
