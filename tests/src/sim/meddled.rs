//! A machine on a server without a DPU, and somebody who deletes what it rests on.

use super::Simulation;
use super::bare::{self, TEMPLATES, WORKFLOWS, is_running};
use super::life::{MACHINES, is_clean};
use super::netboot::{HARDWARE, Servers};
use super::secrets;
use super::simulation::{INVENTORY, SEEDS, USER};
use api::labels;
use serde_json::{Value, json};
use std::time::Duration;

const BMCS: &str = "bmc.tinkerbell.org/machines";
const REPORTS: &str = "metalplane.io/hardwarereports";
/// Until what was deleted is there again.
const AGAIN: Duration = Duration::from_mins(1);
/// Until what was deleted is missed.
const MISSED: Duration = Duration::from_secs(10);
const SEEDED: &str = r#"
name: debian
global_timeout: 1800
tasks:
  - name: install
    worker: "{{.device_1}}"
    actions:
      - {name: write, image: image2disk, timeout: 300}
      - {name: tell, image: seed, timeout: 60}
      - {name: restart, image: reboot, timeout: 60}
"#;

#[derive(Clone, Copy, Debug)]
pub enum Deleted {
    /// Of its installation, or of the erasing.
    Workflow,
    /// Its administrator writes it down once more, without what stood there beside.
    Hardware,
    /// The same of the object that says where the server's BMC is.
    Bmc,
    Report,
}

impl Deleted {
    pub const ALL: [Self; 4] = [Self::Workflow, Self::Hardware, Self::Bmc, Self::Report];

    async fn befalls(self, s: &Simulation) {
        let resource = match self {
            Self::Workflow => WORKFLOWS,
            Self::Hardware => HARDWARE,
            Self::Bmc => BMCS,
            Self::Report => REPORTS,
        };
        let there = s.scene.server.list(resource);
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        for object in &there {
            s.delete(resource, INVENTORY, &name(object));
        }
        if matches!(self, Self::Workflow | Self::Report) {
            return tokio::time::sleep(MISSED).await;
        }
        tokio::time::sleep(AGAIN).await;
        for object in &there {
            let mut again = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "spec": object["spec"]});
            again["metadata"] = json!({"name": object["metadata"]["name"]});
            s.create(resource, INVENTORY, again);
        }
        tokio::time::sleep(MISSED).await;
    }
}

fn says(s: &Simulation, reason: &str) -> bool {
    let machine = s.machine("bm-03").unwrap_or_default();
    let all = machine["status"]["conditions"].as_array().into_iter().flatten();
    all.into_iter().any(|said| said["type"] == "Installed" && said["reason"] == reason)
}

fn goes(s: &Simulation) -> bool {
    s.machine("bm-03").is_none_or(|machine| machine["metadata"].get("deletionTimestamp").is_some())
}

/// `bmctl reinstall`.
fn ask(s: &Simulation, servers: &Servers) {
    servers.disks[0].is_asked_for();
    s.change(MACHINES, USER, "bm-03", |machine| {
        machine["metadata"]["annotations"][labels::REINSTALL_REQUESTED_AT] = json!(runtime::clock::now());
    });
}

/// A life in which that is deleted once `reached` is so. What was on record and is lost is nobody's to install again but the user's.
pub async fn life(s: &Simulation, deleted: Deleted, reached: impl Fn() -> bool) -> Result<(), String> {
    let fate = async |servers: &Servers| {
        deleted.befalls(s).await;
        let is_lost = |s: &Simulation| says(s, "InstallRecordLost");
        s.until("it runs, is on its way out, or says what was lost", |s| is_running(s) || goes(s) || is_lost(s))
            .await?;
        if is_lost(s) && !goes(s) {
            ask(s, servers);
        }
        Ok(())
    };
    bare::life_with(s, Duration::ZERO, fate, &reached, &reached).await
}

/// What its system shall read is deleted once `reached` is so, for good: before the installer has asked for it the installation has failed, and
/// says so; the next one has it again. Afterwards nobody misses it.
pub async fn without_its_seed(s: &Simulation, reached: impl Fn() -> bool) -> Result<(), String> {
    let servers = Servers::start(&s.scene, 1);
    bare::furnish(s, 1);
    s.change(TEMPLATES, USER, "debian", |template| template["spec"]["data"] = json!(SEEDED));
    let mut machine = bare::machine("bm-03");
    machine["spec"]["cloudInit"] = json!({"userData": secrets::USER_DATA});
    s.create(MACHINES, USER, machine);
    s.until("it is so far", |s| reached() || is_running(s)).await?;
    let seeds = s.scene.server.list("secrets").into_iter().filter(|secret| secret["metadata"]["namespace"] == SEEDS);
    for seed in seeds {
        s.delete("secrets", SEEDS, seed["metadata"]["name"].as_str().unwrap_or_default());
    }
    let failed = |s: &Simulation| says(s, "InstallFailed");
    s.until("it runs, or says that the installation has failed", |s| is_running(s) || failed(s)).await?;
    if failed(s) {
        ask(s, &servers);
        s.until("it runs", is_running).await?;
    }
    let seed = servers.disks[0].seed();
    if seed.get("user-data").map(Vec::as_slice) != Some(secrets::USER_DATA.as_bytes()) {
        return Err(format!("its system reads {:?}\n{}", seed.keys(), s.story()));
    }
    s.delete(MACHINES, USER, "bm-03");
    s.until("nothing is left", |s| s.machine("bm-03").is_none() && is_clean(s)).await?;
    secrets::stay(s)
}
