//! Servers with a DPU whose own disks are erased before they are free: their policy says Erase.

use super::host::LocalDisk;
use super::life::{self, is_clean};
use super::simulation::{INVENTORY, Simulation, USER};
use api::dpu::PowerDomain;
use api::labels;
use planner::erase::Report;
use planner::host::{PowerAction, PowerState};
use serde_json::{Value, json};
use std::time::Duration;

const MACHINES: &str = "metalplane.io/baremetalmachines";
const HARDWARE: &str = "tinkerbell.org/hardware";

pub fn begin(s: &Simulation) {
    s.change("metalplane.io/hardwarepolicies", INVENTORY, "default", |policy| {
        policy["spec"]["releasePolicy"]["localDisks"] = json!("Erase");
    });
}

fn wrong(s: &Simulation, what: &str) -> Result<(), String> {
    Err(format!("{what}: {}\n{}", s.machine("bm-01").unwrap_or_default()["status"], s.story()))
}

/// What goes wrong costs actions more; `exact`: nothing does.
fn acted(s: &Simulation, expected: &[PowerAction]) -> Result<(), String> {
    let actions = s.scene.hosts[0].actions();
    if actions == expected { Ok(()) } else { wrong(s, &format!("{actions:?}, not {expected:?}")) }
}

fn server(s: &Simulation) -> Value {
    s.scene.server.get(HARDWARE, INVENTORY, "server-1").map(|server| (*server).clone()).unwrap_or_default()
}

fn report(s: &Simulation) -> Option<Report> {
    serde_json::from_str(server(s)["metadata"]["annotations"][labels::ERASE_REPORT].as_str()?).ok()
}

/// The server is free only once it is erased, and off.
async fn given_back(s: &Simulation) -> Result<(), String> {
    released(s, 1).await
}

/// So many disks were its own.
async fn released(s: &Simulation, disks: usize) -> Result<(), String> {
    let host = &s.scene.hosts[0];
    let is_free = |s: &Simulation| life::is_unclaimed(&server(s));
    s.until("the server is free", is_free).await?;
    if host.is_dirty() {
        return wrong(s, "the server was released with its data");
    }
    if host.power() != PowerState::Off {
        return wrong(s, "the server was released on");
    }
    match report(s) {
        Some(report) if report.result == "Erased" && report.disks.len() == disks => {
            s.until("nothing is left", is_clean).await
        }
        report => wrong(s, &format!("the report is {report:?}")),
    }
}

/// A machine runs, and is deleted; so often.
pub async fn lives(s: &Simulation, count: usize) -> Result<(), String> {
    begin(s);
    if s.scene.hosts[0].power_domain == PowerDomain::Host {
        life::park(s).await?;
    }
    for _ in 0..count {
        life::create(s, "bm-01", 7).await?;
        if !s.scene.hosts[0].is_dirty() {
            return wrong(s, "the guest has a disk of the server's");
        }
        s.delete(MACHINES, USER, "bm-01");
        given_back(s).await?;
    }
    Ok(())
}

/// Nothing goes wrong.
pub async fn exact(s: &Simulation, started: &[PowerAction]) -> Result<(), String> {
    lives(s, 2).await?;
    let one = [started, &[PowerAction::SoftOff], started, &[PowerAction::ForceOff]].concat();
    acted(s, &one.repeat(2))
}

/// What cannot be erased keeps the server claimed, until an administrator has it tried again; what was never started is free at once.
pub async fn fails(s: &Simulation) -> Result<(), String> {
    begin(s);
    let host = s.scene.hosts[0].clone();
    let halted = |mut machine: Value| {
        machine["spec"]["runStrategy"] = json!("Halted");
        machine
    };
    s.create(MACHINES, USER, halted(life::machine("bm-01", 7)));
    s.until("it is claimed", |s| !life::is_unclaimed(&server(s))).await?;
    life::delete(s, "bm-01").await?;
    acted(s, &[])?;
    life::create(s, "bm-01", 7).await?;
    host.has(LocalDisk::Broken);
    s.delete(MACHINES, USER, "bm-01");
    let ready = |s: &Simulation| life::ready(s)["reason"].clone();
    s.until("it is incomplete", |s| ready(s) == "EraseIncomplete").await?;
    let told = life::ready(s)["message"].to_string();
    if !told.contains("serial number N1") || !told.contains("it takes no writes") {
        return wrong(s, "the disk is not named");
    }
    tokio::time::sleep(Duration::from_mins(60)).await;
    if ready(s) != "EraseIncomplete" || life::is_unclaimed(&server(s)) {
        return wrong(s, "it waits for a person");
    }
    host.has(LocalDisk::Works);
    s.change(HARDWARE, INVENTORY, "server-1", |server| {
        server["metadata"]["annotations"][labels::ERASE_REQUESTED_AT] = json!("2030-01-01T00:00:00Z");
    });
    given_back(s).await
}

/// A server without a disk of its own has nothing that the next machine could find.
pub async fn diskless(s: &Simulation) -> Result<(), String> {
    begin(s);
    s.scene.hosts[0].has(LocalDisk::Absent);
    life::create(s, "bm-01", 7).await?;
    s.delete(MACHINES, USER, "bm-01");
    released(s, 0).await
}

/// The power fails while it is erased; then the agent is started anew, and the DPU.
pub async fn interrupted(s: &mut Simulation) -> Result<(), String> {
    begin(s);
    let host = s.scene.hosts[0].clone();
    life::create(s, "bm-01", 7).await?;
    s.delete(MACHINES, USER, "bm-01");
    let erases = |s: &Simulation| life::ready(s)["reason"] == "Erasing";
    s.until("it is erased", erases).await?;
    host.goes_off();
    s.until("it is erased once more", |s| erases(s) && host.power() == PowerState::On).await?;
    s.stop_agent(&host);
    tokio::time::sleep(Duration::from_secs(20)).await;
    s.start_agent(&host);
    given_back(s).await?;
    life::create(s, "bm-01", 7).await?;
    s.delete(MACHINES, USER, "bm-01");
    s.until("it is erased", erases).await?;
    host.reboot_dpu();
    given_back(s).await
}
