//! The boot option of a DPU's disk is found when its server joins, before there is a machine.

use super::host::{HostBmc, Listing};
use super::life::{self, condition, ready, runs};
use super::simulation::{INVENTORY, Simulation, USER};
use planner::host::{PowerAction, PowerState};
use ports::Bmc;
use serde_json::{Value, json};
use std::time::Duration;

const HARDWARE: &str = "tinkerbell.org/hardware";
const MACHINES: &str = "metalplane.io/baremetalmachines";
const DISKS: &str = "metalplane.io/diskattachments";
const DPUS: &str = "metalplane.io/dpus";
const RECORD: &str = "metalplane.io/boot-discovery";
/// What it takes without a machine that has to be waited for: two starts into the setup.
const LONG: Duration = Duration::from_mins(41);
/// Of what would happen at once.
const SHORT: Duration = Duration::from_mins(2);

fn annotations(s: &Simulation) -> Value {
    let hardware = s.scene.server.get(HARDWARE, INVENTORY, "server-1").unwrap_or_default();
    hardware["metadata"]["annotations"].clone()
}

/// Why the Dpu's condition is so.
fn known(s: &Simulation) -> String {
    let dpu = s.scene.server.get(DPUS, "", "dpu-1").unwrap_or_default();
    let all = dpu["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let said = all.iter().find(|said| said["type"] == "BootOptionKnown");
    said.and_then(|said| said["reason"].as_str()).unwrap_or_default().to_owned()
}

/// Nobody has the server, and nothing is left of looking.
fn is_free(s: &Simulation) -> bool {
    let annotations = annotations(s);
    let taken = ["claimed-by", "claimed-by-name", "boot-strategy", "boot-order-before", "erase-power"];
    s.scene.hosts[0].power() == PowerState::Off
        && s.scene.server.list(DISKS).is_empty()
        && taken.iter().all(|word| annotations[format!("metalplane.io/{word}")].is_null())
}

fn acted(s: &Simulation, expected: &[PowerAction]) -> Result<(), String> {
    let actions = s.scene.hosts[0].actions();
    match actions == expected {
        true => Ok(()),
        false => Err(format!("{actions:?}, not {expected:?}: {}\n{}", annotations(s), s.story())),
    }
}

/// A controller that looks for boot options takes over from one that does not.
fn looks(s: &mut Simulation) {
    s.stop_controllers();
    s.discover_boot_options = true;
    s.start_controller("controller-2", "default");
}

async fn is_found(s: &Simulation) -> Result<(), String> {
    s.until("the boot option is known", |s| known(s) == "Listed").await?;
    s.until("the server is free", is_free).await?;
    match s.scene.hosts[0].strays() {
        0 => Ok(()),
        strays => Err(format!("something else was booted {strays} times")),
    }
}

/// One start into the setup, and the first machine's start is one of a server that is known. No disk of the server is erased, whatever policies say.
pub async fn listed(s: &mut Simulation) -> Result<(), String> {
    s.scene.hosts[0].is_new(Listing::New);
    let erase = json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "HardwarePolicy",
        "metadata": {"name": "erases"}, "spec": {"releasePolicy": {"localDisks": "Erase"}}});
    s.create("metalplane.io/hardwarepolicies", INVENTORY, erase);
    looks(s);
    is_found(s).await?;
    let found = [PowerAction::On, PowerAction::ForceOff];
    acted(s, &found)?;
    s.delete("metalplane.io/hardwarepolicies", INVENTORY, "erases");
    life::create(s, "bm-01", 7).await?;
    acted(s, &[&found[..], &[PowerAction::On]].concat())?;
    life::delete(s, "bm-01").await
}

/// The DPU shares its host's power: it comes up by the first start, and is kept on by a reset into the setup.
pub async fn shared(s: &mut Simulation) -> Result<(), String> {
    life::park(s).await?;
    s.scene.hosts[0].is_new(Listing::New);
    looks(s);
    is_found(s).await?;
    acted(s, &[PowerAction::On, PowerAction::WarmReset, PowerAction::ForceOff])
}

/// Whatever runs there is left alone: the server is not even started anew.
pub async fn on_before(s: &mut Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    host.is_new(Listing::New);
    HostBmc(host.clone()).power(PowerAction::On).await.map_err(|error| error.to_string())?;
    s.until("it is on", |_| host.power() == PowerState::On).await?;
    looks(s);
    s.until("it is said", |s| known(s) == "HostOn").await?;
    tokio::time::sleep(SHORT).await;
    let nobody = annotations(s)["metalplane.io/claimed-by"].is_null() && s.scene.server.list(DISKS).is_empty();
    if !nobody || host.power() != PowerState::On {
        return Err(format!("it was not left alone: {}", annotations(s)));
    }
    acted(s, &[PowerAction::On])
}

/// Twice, and once more when an administrator asks.
pub async fn never(s: &mut Simulation) -> Result<(), String> {
    s.scene.hosts[0].is_new(Listing::Never);
    looks(s);
    tokio::time::sleep(LONG).await;
    s.until("a person is asked", |s| known(s) == "NotListed" && is_free(s)).await?;
    tokio::time::sleep(LONG).await;
    let twice = [PowerAction::On, PowerAction::ForceOff].repeat(2);
    acted(s, &twice)?;
    s.scene.hosts[0].is_new(Listing::New);
    s.change(HARDWARE, INVENTORY, "server-1", |hardware| {
        hardware["metadata"]["annotations"].as_object_mut().and_then(|all| all.remove(RECORD));
    });
    is_found(s).await?;
    acted(s, &[&twice[..], &[PowerAction::On, PowerAction::ForceOff]].concat())
}

/// A machine that comes meanwhile waits, and is told for what.
pub async fn awaited(s: &mut Simulation) -> Result<(), String> {
    s.scene.hosts[0].is_new(Listing::New);
    looks(s);
    s.until("it is looked for", |s| known(s) == "Discovering").await?;
    s.until("the server is on", |s| s.scene.hosts[0].power() == PowerState::On).await?;
    let mut machine = life::machine("bm-01", 7);
    machine["spec"]["hardware"] = json!({"name": "server-1"});
    s.create(MACHINES, USER, machine);
    s.until("it waits", |s| ready(s)["reason"] == "HardwareTaken").await?;
    let message = ready(s)["message"].as_str().unwrap_or_default().to_owned();
    if !message.contains("Dpu 'dpu-1', whose boot option the controller looks for") {
        return Err(format!("it is not told for what: {message}"));
    }
    s.until("it runs", |s| runs(s, "bm-01")).await?;
    acted(s, &[PowerAction::On, PowerAction::ForceOff, PowerAction::On])?;
    life::delete(s, "bm-01").await
}

/// The Dpu is taken away in the middle of it, and nobody looks for anything any more: what was started is powered off, and the server is free.
pub async fn abandoned(s: &mut Simulation) -> Result<(), String> {
    s.scene.hosts[0].is_new(Listing::Never);
    looks(s);
    s.until("the server is on", |s| s.scene.hosts[0].power() == PowerState::On).await?;
    s.stop_controllers();
    s.discover_boot_options = false;
    s.start_controller("controller-3", "default");
    s.delete(DPUS, "", "dpu-1");
    s.until("the server is free", is_free).await?;
    s.until("the Dpu no longer exists", |s| s.scene.server.get(DPUS, "", "dpu-1").is_none()).await?;
    acted(s, &[PowerAction::On, PowerAction::ForceOff])
}

/// The agent falls silent before it has presented the disk: nothing is started, and a person is told.
pub async fn silent(s: &mut Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    host.is_new(Listing::New);
    s.until("the Dpu is ready", |s| {
        s.scene.server.get(DPUS, "", "dpu-1").is_some_and(|dpu| condition(&dpu, "Ready") == "True")
    })
    .await?;
    looks(s);
    s.until("it is looked for", |s| !annotations(s)["metalplane.io/claimed-by"].is_null()).await?;
    s.stop_agent(&host);
    tokio::time::sleep(Duration::from_mins(101)).await;
    s.until("it is said", |s| known(s) == "DiscoveryFailed").await?;
    acted(s, &[])?;
    s.start_agent(&host);
    s.until("the server is free", is_free).await
}
