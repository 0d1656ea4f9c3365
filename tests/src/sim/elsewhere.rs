//! Hosts that were powered on and do not boot from their boot disk.

use super::host::Host;
use super::life::{self, runs};
use super::simulation::{Simulation, USER};
use planner::host::{PowerAction, PowerState};
use serde_json::{Value, json};
use std::time::Duration;

const MACHINES: &str = "metalplane.io/baremetalmachines";
/// Longer than a host may take that is not in POST.
const LONG: Duration = Duration::from_secs(21 * 60);

fn condition(s: &Simulation, type_: &str) -> Value {
    let machine = s.machine("bm-01").unwrap_or_default();
    let all = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default()
}

fn wrong(s: &Simulation, what: &str) -> Result<(), String> {
    Err(format!("{what}: {}\n{}", s.machine("bm-01").unwrap_or_default()["status"], s.story()))
}

/// Its firmware boots a disk of the server's own.
pub async fn silent(s: &Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    host.boots_own_disk(Some(false));
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("it is on", |_| host.power() == PowerState::On).await?;
    tokio::time::sleep(Duration::from_secs(19 * 60)).await;
    if host.power() != PowerState::On {
        return wrong(s, "it may still boot");
    }
    s.until("it is off, and why", |s| is_elsewhere(s, &host)).await?;
    // Nobody starts it again.
    tokio::time::sleep(LONG).await;
    if !is_elsewhere(s, &host) || host.actions() != [PowerAction::On, PowerAction::ForceOff] {
        return wrong(s, "it stays off");
    }
    host.boots_own_disk(None);
    s.change(MACHINES, USER, "bm-01", |machine| machine["metadata"]["annotations"] = life::restart_now());
    s.until("it runs", |s| runs(s, "bm-01")).await?;
    // The same once more, for who stops and starts it.
    host.boots_own_disk(Some(false));
    host.goes_off();
    s.until("it is on", |_| host.power() == PowerState::On).await?;
    tokio::time::sleep(LONG).await;
    s.until("it is off, and why", |s| is_elsewhere(s, &host)).await?;
    host.boots_own_disk(None);
    s.change(MACHINES, USER, "bm-01", |machine| machine["spec"]["runStrategy"] = json!("Halted"));
    s.until("it is stopped", |s| condition(s, "PoweredOn")["reason"] != "BootedElsewhere").await?;
    s.change(MACHINES, USER, "bm-01", |machine| machine["spec"]["runStrategy"] = json!("Always"));
    s.until("it runs", |s| runs(s, "bm-01")).await?;
    life::delete(s, "bm-01").await
}

fn is_elsewhere(s: &Simulation, host: &Host) -> bool {
    let ready = condition(s, "Ready");
    host.power() == PowerState::Off && ready["reason"] == "BootedElsewhere" && ready["status"] == "False"
}

/// What answers there is left on, and told of.
pub async fn answers(s: &Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    host.boots_own_disk(Some(true));
    life::create(s, "bm-01", 7).await?;
    tokio::time::sleep(LONG).await;
    s.until("it is told", |s| condition(s, "RestartRequired")["reason"] == "BootDiskUnread").await?;
    if host.actions() != [PowerAction::On] {
        return wrong(s, "it is left on");
    }
    host.boots_own_disk(None);
    s.change(MACHINES, USER, "bm-01", |machine| machine["metadata"]["annotations"] = life::restart_now());
    s.until("it is told no more", |s| condition(s, "RestartRequired")["status"] == "False").await?;
    life::delete(s, "bm-01").await
}

/// Nothing is concluded: nobody counts, or who counts was started anew since.
pub async fn unknown(s: &mut Simulation, counts: bool) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    host.boots_own_disk(Some(false));
    if !counts {
        host.counts_nothing();
    }
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("it is on", |_| host.power() == PowerState::On).await?;
    if counts {
        s.stop_agent(&host);
        s.start_agent(&host);
    }
    tokio::time::sleep(2 * LONG).await;
    match host.actions() == [PowerAction::On] {
        true => life::delete(s, "bm-01").await,
        false => wrong(s, "nobody knows that it does not boot"),
    }
}

/// One that boots is left alone, whatever it reads from then on, through restarts and a guest that switches itself off.
pub async fn boots(s: &Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    life::create(s, "bm-01", 7).await?;
    tokio::time::sleep(LONG).await;
    host.goes_off();
    s.until("it is on again", |s| host.actions().len() == 2 && runs(s, "bm-01")).await?;
    tokio::time::sleep(2 * LONG).await;
    if host.actions() != [PowerAction::On, PowerAction::On] || condition(s, "RestartRequired")["status"] == "True" {
        return wrong(s, "it runs");
    }
    life::delete(s, "bm-01").await
}
