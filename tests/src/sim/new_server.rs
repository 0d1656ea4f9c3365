//! Servers whose firmware has not seen the disk of their DPU yet.

use super::host::Listing;
use super::life::{self, is_ready, runs};
use super::simulation::{Simulation, USER};
use planner::host::{PowerAction, PowerState};
use serde_json::{Value, json};
use std::time::Duration;

const MACHINES: &str = "metalplane.io/baremetalmachines";
/// Longer than a start into the setup may take, and than two of them.
const LONG: Duration = Duration::from_mins(21);
const TWICE: Duration = Duration::from_mins(41);
/// Of what would happen at once.
const SHORT: Duration = Duration::from_mins(2);

fn ready(s: &Simulation) -> Value {
    let machine = s.machine("bm-01").unwrap_or_default();
    let all = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default()
}

fn acted(s: &Simulation, expected: &[PowerAction]) -> Result<(), String> {
    let actions = s.scene.hosts[0].actions();
    let status = || s.machine("bm-01").unwrap_or_default()["status"].to_string();
    if actions == expected {
        Ok(())
    } else {
        Err(format!("{actions:?}, not {expected:?}: {}\n{}", status(), s.story()))
    }
}

/// It is started into its setup once, and boots. The next machine's start costs nothing more.
pub async fn listed(s: &mut Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    host.is_new(Listing::New);
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("it is awaited", |s| ready(s)["reason"] == "BootOptionAwaited").await?;
    s.until("it runs", |s| runs(s, "bm-01")).await?;
    let first = [PowerAction::On, PowerAction::ForceOff, PowerAction::On];
    acted(s, &first)?;
    let power = s.machine("bm-01").unwrap_or_default()["status"]["power"].clone();
    if power.get("setupStarts").is_some() || power.get("inSetup").is_some() {
        return Err(format!("it is over: {power}"));
    }
    life::delete(s, "bm-01").await?;
    life::create(s, "bm-01", 7).await?;
    acted(s, &[&first[..], &[PowerAction::SoftOff, PowerAction::On]].concat())?;
    life::delete(s, "bm-01").await
}

/// Twice, and no more before its user asks again.
pub async fn never(s: &Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    host.is_new(Listing::Never);
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    let asks = |s: &Simulation| ready(s)["reason"] == "BootOptionNotListed" && host.power() == PowerState::Off;
    tokio::time::sleep(TWICE).await;
    s.until("a person is asked", asks).await?;
    tokio::time::sleep(SHORT).await;
    s.until("a person is still asked", asks).await?;
    let twice = [PowerAction::On, PowerAction::ForceOff].repeat(2);
    acted(s, &twice)?;
    s.change(MACHINES, USER, "bm-01", |machine| machine["metadata"]["annotations"] = life::restart_now());
    tokio::time::sleep(LONG).await;
    // While it is in its setup for the second time it is halted: nobody is there to be asked.
    s.until("it is on", |_| host.actions().len() == 3 * 2 + 1 && host.power() == PowerState::On).await?;
    s.change(MACHINES, USER, "bm-01", |machine| machine["spec"]["runStrategy"] = json!("Halted"));
    s.until("it is stopped", |s| ready(s)["reason"] == "Stopped").await?;
    acted(s, &[PowerAction::On, PowerAction::ForceOff].repeat(4))?;
    host.is_new(Listing::New);
    s.change(MACHINES, USER, "bm-01", |machine| machine["spec"]["runStrategy"] = json!("Always"));
    s.until("it runs", |s| runs(s, "bm-01")).await?;
    life::delete(s, "bm-01").await
}

/// A guest that answers was started, whatever was asked of the firmware.
pub async fn ignored(s: &Simulation) -> Result<(), String> {
    s.scene.hosts[0].is_new(Listing::WithoutSetup);
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("it is ready", |s| is_ready(s, "bm-01")).await?;
    tokio::time::sleep(LONG).await;
    s.until("it runs", |s| runs(s, "bm-01")).await?;
    acted(s, &[PowerAction::On])?;
    life::delete(s, "bm-01").await?;
    acted(s, &[PowerAction::On, PowerAction::SoftOff])
}

/// One whose BMC knows of no setup is not started at all.
pub async fn refused(s: &Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    host.is_new(Listing::New);
    host.knows_no_setup();
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("a person is asked", |s| ready(s)["reason"] == "BootOptionNotListed").await?;
    tokio::time::sleep(SHORT).await;
    acted(s, &[])?;
    life::delete(s, "bm-01").await
}
