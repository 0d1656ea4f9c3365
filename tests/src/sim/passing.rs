//! A volume that passes from one DPU to another, and what may happen meanwhile.

use super::api::watch::Manners;
use super::faults::Who;
use super::life::{self, is_ready};
use super::random::Random;
use super::simulation::{Simulation, USER};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const MACHINES: &str = "metalplane.io/baremetalmachines";
const CLAIM: &str = "shared";

/// A claim on storage of this class, and two machines, each on its own server. The first has the claim as a disk.
pub async fn start(s: &Simulation, class: &str) -> Result<(), String> {
    claim(s, class);
    for (number, name) in [(1, "bm-01"), (2, "bm-02")] {
        s.create(MACHINES, USER, machine(name, number, number == 1));
    }
    s.until("both are there, the first with the volume", |s| is_ready(s, "bm-02") && has(s, "bm-01")).await
}

/// The claim, of its user's own.
pub fn claim(s: &Simulation, class: &str) {
    s.create(
        "persistentvolumeclaims",
        USER,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}}},
        }),
    );
}

pub fn is_bound(s: &Simulation) -> bool {
    let claim = s.scene.server.get("persistentvolumeclaims", USER, CLAIM).unwrap_or_default();
    claim["status"]["phase"] == "Bound"
}

/// A machine on the server of this number.
pub fn machine(name: &str, number: u8, with_the_volume: bool) -> Value {
    let mut machine = life::machine(name, number + 10);
    machine["spec"]["hardware"] = json!({"name": format!("server-{number}")});
    if with_the_volume {
        disks(&mut machine).push(shared());
    }
    machine
}

fn shared() -> Value {
    json!({"name": CLAIM, "bus": "VirtioBlk", "source": {"persistentVolumeClaim": {"claimName": CLAIM}}})
}

fn disks(machine: &mut Value) -> &mut Vec<Value> {
    machine["spec"]["disks"].as_array_mut().expect("a list")
}

/// The user takes the disk from one and gives it to the other.
pub fn pass(s: &Simulation, from: &str, to: &str) {
    s.change(MACHINES, USER, from, |machine| disks(machine).retain(|disk| disk["name"] != CLAIM));
    s.change(MACHINES, USER, to, |machine| disks(machine).push(shared()));
}

/// The machine has the disk, and says so of its newest spec.
pub fn has(s: &Simulation, name: &str) -> bool {
    let machine = s.machine(name).unwrap_or_default();
    let rows = machine["status"]["disks"].as_array().cloned().unwrap_or_default();
    is_ready(s, name) && rows.iter().any(|row| row["name"] == CLAIM && row["phase"] == "Attached")
}

pub fn says(s: &Simulation, name: &str, reason: &str) -> bool {
    let machine = s.machine(name).unwrap_or_default();
    let all = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().any(|condition| condition["reason"] == reason)
}

/// The proofs on record in the claim's hold.
pub fn proofs(s: &Simulation) -> Vec<String> {
    let claim = s.scene.server.get("persistentvolumeclaims", USER, CLAIM).unwrap_or_default();
    let volume = &claim["spec"]["volumeName"];
    let holds = s.scene.server.list("metalplane.io/volumeholds");
    let hold = holds.iter().find(|hold| hold["spec"]["persistentVolumeName"] == *volume);
    let fences = hold.and_then(|hold| hold["spec"]["fences"].as_array().cloned()).unwrap_or_default();
    fences.iter().filter_map(|fence| fence["proof"].as_str().map(str::to_owned)).collect()
}

pub async fn end(s: &Simulation) -> Result<(), String> {
    for name in ["bm-01", "bm-02"] {
        s.delete(MACHINES, USER, name);
    }
    s.until("both are gone", |s| s.machine("bm-01").is_none() && s.machine("bm-02").is_none()).await?;
    s.delete("persistentvolumeclaims", USER, CLAIM);
    s.until("nothing is left", life::is_clean).await
}

/// One schedule: the volume passes back and forth while agents are cut off, die and come back, DPUs reboot or lose their power,
/// watches stand still and the CSI driver misbehaves, each at a moment of the dice. In half of them the DPUs' own BMCs are known.
pub async fn schedule(s: &mut Simulation, dice: &Random, class: &str) -> Result<(), String> {
    if dice.below(2) == 0 {
        s.name_dpu_bmcs();
    }
    start(s, class).await?;
    for (from, to) in [("bm-01", "bm-02"), ("bm-02", "bm-01")] {
        pass(s, from, to);
        for _ in 0..1 + dice.below(3) {
            tokio::time::sleep(Duration::from_millis(dice.below(20_000))).await;
            befalls(s, dice).await;
        }
        s.until(&format!("{to} has the volume"), |s| has(s, to)).await?;
    }
    s.until("all is well", |s| is_ready(s, "bm-01") && is_ready(s, "bm-02")).await?;
    end(s).await
}

async fn befalls(s: &mut Simulation, dice: &Random) {
    use super::csi::Manners::{Crashes, Good, Slow, Twice, WrongErrors};
    let host = s.scene.hosts[dice.below(2) as usize].clone();
    let lasts = Duration::from_secs(2 + dice.below(80));
    match dice.below(7) {
        0 => {
            s.scene.cut(&host.dpu_name, true);
            tokio::time::sleep(lasts).await;
            s.scene.cut(&host.dpu_name, false);
        }
        1 => {
            s.stop_agent(&host);
            tokio::time::sleep(lasts).await;
            s.start_agent(&host);
        }
        2 => s.reboot_dpu(&host),
        6 => {
            host.power_dpu(false);
            tokio::time::sleep(lasts).await;
            host.power_dpu(true);
        }
        3 => {
            s.scene.watches(Who::Controller, Manners::Frozen(Instant::now() + lasts));
            tokio::time::sleep(lasts).await;
            s.scene.watches(Who::Controller, Manners::Prompt);
        }
        4 => {
            let manners = [Slow(lasts / 2), Crashes(3), WrongErrors(3), Twice][dice.below(4) as usize];
            s.scene.driver.behave(manners);
            tokio::time::sleep(lasts).await;
            s.scene.driver.behave(Good);
        }
        _ => s.scene.watches(Who::Agent, Manners::Late(lasts / 8)),
    }
}
