//! Servers whose firmware has not seen the disk of their DPU yet.

use super::host::{HostBmc, Listing};
use super::life::{self, condition, is_ready, ready, runs};
use super::simulation::{Simulation, USER};
use planner::host::{PowerAction, PowerState};
use ports::Bmc;
use serde_json::json;
use std::time::Duration;

const MACHINES: &str = "metalplane.io/baremetalmachines";
/// Longer than a start into the setup may take, and than two of them.
const LONG: Duration = Duration::from_mins(21);
const TWICE: Duration = Duration::from_mins(41);
/// Of what would happen at once.
const SHORT: Duration = Duration::from_mins(2);

fn acted(s: &Simulation, expected: &[PowerAction]) -> Result<(), String> {
    let actions = s.scene.hosts[0].actions();
    let status = || s.machine("bm-01").unwrap_or_default()["status"].to_string();
    if actions == expected {
        Ok(())
    } else {
        Err(format!("{actions:?}, not {expected:?}: {}\n{}", status(), s.story()))
    }
}

fn nothing_else_was_booted(s: &Simulation) -> Result<(), String> {
    match s.scene.hosts[0].strays() {
        0 => Ok(()),
        strays => Err(format!("something else was booted {strays} times")),
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

/// The DPU shares its host's power: nothing is booted but the machine's disk, and the DPU keeps its power from the power-on to the boot.
pub async fn shared(s: &Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    life::park(s).await?;
    host.is_new(Listing::New);
    life::create(s, "bm-01", 7).await?;
    let first = [PowerAction::On, PowerAction::WarmReset, PowerAction::WarmReset];
    acted(s, &first)?;
    life::delete(s, "bm-01").await?;
    life::create(s, "bm-01", 7).await?;
    acted(s, &[&first[..], &[PowerAction::SoftOff, PowerAction::On, PowerAction::WarmReset]].concat())?;
    life::delete(s, "bm-01").await?;
    nothing_else_was_booted(s)
}

/// A firmware that takes the disk off its list in each POST in which the disk is not there costs each start a reset more.
pub async fn forgotten(s: &Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    life::park(s).await?;
    host.is_new(Listing::Forgetful);
    let start = [PowerAction::On, PowerAction::WarmReset, PowerAction::WarmReset];
    for lives in 1..=2 {
        life::create(s, "bm-01", 7).await?;
        life::delete(s, "bm-01").await?;
        acted(s, &[&start[..], &[PowerAction::SoftOff]].concat().repeat(lives))?;
    }
    nothing_else_was_booted(s)
}

/// Its host was on before there was a machine: it is reset into its setup, and keeps its power.
pub async fn on_before(s: &Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    life::park(s).await?;
    host.is_new(Listing::New);
    HostBmc(host.clone()).power(PowerAction::On).await.map_err(|error| error.to_string())?;
    s.until("the DPU is there", |s| {
        s.scene.server.get("metalplane.io/dpus", "", "dpu-1").is_some_and(|dpu| condition(&dpu, "Ready") == "True")
    })
    .await?;
    life::create(s, "bm-01", 7).await?;
    acted(s, &[PowerAction::On, PowerAction::WarmReset, PowerAction::WarmReset])?;
    life::delete(s, "bm-01").await
}

/// A person is asked after the POST in which the disk was there, and the host stays in its setup for that person to look.
pub async fn never_shared(s: &Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    life::park(s).await?;
    host.is_new(Listing::Never);
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    let asks = |s: &Simulation| ready(s)["reason"] == "BootOptionNotListed" && host.power() == PowerState::On;
    tokio::time::sleep(TWICE).await;
    s.until("a person is asked", asks).await?;
    tokio::time::sleep(SHORT).await;
    acted(s, &[PowerAction::On, PowerAction::WarmReset])?;
    s.until("a person is still asked", asks).await?;
    host.is_new(Listing::New);
    s.change(MACHINES, USER, "bm-01", |machine| machine["metadata"]["annotations"] = life::restart_now());
    s.until("it runs", |s| runs(s, "bm-01")).await?;
    life::delete(s, "bm-01").await?;
    nothing_else_was_booted(s)
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
