//! `--wait`: follows a machine until it is where the change should bring it, and says what it waits for.

use crate::args::Change;
use crate::cluster::Cluster;
use crate::failure::Failure;
use api::BareMetalMachine;
use api::conditions::{self, READY};
use api::machine::{AttachPhase, BareMetalMachineStatus};
use futures::{StreamExt, TryStreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use std::pin::pin;

pub enum Goal {
    Ready,
    Stopped,
    RestartedSince(jiff::Timestamp),
    DiskAttached(String),
    DiskGone(String),
    InterfaceAttached(String),
    InterfaceGone(String),
}

impl Goal {
    fn reached(&self, machine: &BareMetalMachine) -> bool {
        let Some(status) = machine.status.as_ref().filter(|s| s.observed_generation == machine.metadata.generation)
        else {
            return false;
        };
        match self {
            Self::Ready => conditions::is_true(&status.conditions, READY) && power(status) == "On",
            Self::Stopped => power(status) == "Off",
            Self::RestartedSince(at) => {
                status.last_restart_at.as_ref().is_some_and(|t| t.0.as_second() >= at.as_second())
            }
            Self::DiskAttached(name) => {
                status.disks.iter().any(|d| d.name == *name && d.phase == AttachPhase::Attached)
            }
            Self::DiskGone(name) => status.disks.iter().all(|d| d.name != *name),
            Self::InterfaceAttached(name) => {
                status.interfaces.iter().any(|i| i.name == *name && i.phase == AttachPhase::Attached)
            }
            Self::InterfaceGone(name) => status.interfaces.iter().all(|i| i.name != *name),
        }
    }
}

fn power(status: &BareMetalMachineStatus) -> &str {
    status.power.as_ref().map_or("Unknown", |p| p.state.as_str())
}

/// Does nothing without `--wait` or with `--dry-run`. Progress goes to standard error, once per new reason.
pub async fn after(cluster: &Cluster, name: &str, change: &Change, goal: &Goal) -> Result<(), Failure> {
    if !change.wait || change.dry_run {
        return Ok(());
    }
    let mut said = String::new();
    let follow = async {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = pin!(watcher(cluster.machines(), config).default_backoff().applied_objects().boxed());
        while let Ok(Some(machine)) = events.try_next().await {
            if goal.reached(&machine) {
                return;
            }
            let now = why(&machine);
            if now != said {
                eprintln!("{name}: {now}");
                said = now;
            }
        }
    };
    match tokio::time::timeout(change.timeout, follow).await {
        Ok(()) => Ok(()),
        Err(_) => Err(Failure::TimedOut {
            object: format!("machine '{name}'"),
            seconds: change.timeout.as_secs(),
            cause: said,
            next: format!("{} explain {name}", cluster.program),
        }),
    }
}

fn why(machine: &BareMetalMachine) -> String {
    let status = machine.status.as_ref();
    let ready = status.and_then(|s| conditions::get(&s.conditions, READY));
    ready.map_or_else(|| "not seen by the controller yet".to_owned(), |c| format!("{}: {}", c.reason, c.message))
}
