//! `--wait`: follows a machine until it is where the change should bring it, and says what it waits for.
//!
//! No reason ends the waiting but the time: what is Blocked may be unblocked by somebody else, and what Failed is tried
//! again. Each new reason is printed with its next command, so that the user can decide.

use crate::args::Change;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::watch;
use api::BareMetalMachine;
use api::conditions::{self, READY};
use api::machine::{AttachPhase, BareMetalMachineStatus};
use futures::TryStreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use planner::explain::{Explained, tree};
use std::pin::pin;

pub enum Goal {
    Ready,
    Stopped,
    RestartedSince(jiff::Timestamp),
    /// By this request.
    Reinstalled(String),
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
            Self::Ready => conditions::is_true(&status.conditions, READY) && power(status) == Some("On"),
            // A machine without hardware has no power, and nothing runs.
            Self::Stopped => matches!(power(status), Some("Off") | None),
            Self::RestartedSince(at) => {
                let restarted = status.last_restart_at.as_ref();
                restarted.is_some_and(|t| t.0.as_second() >= at.as_second())
                    && conditions::is_true(&status.conditions, READY)
            }
            Self::Reinstalled(request) => {
                let done = status.install.as_ref().filter(|install| install.phase == "Done");
                done.is_some_and(|install| install.request.as_ref() == Some(request))
                    && conditions::is_true(&status.conditions, READY)
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

fn power(status: &BareMetalMachineStatus) -> Option<&str> {
    status.power.as_ref().map(|power| power.state.as_str())
}

/// Does nothing without `--wait` or with `--dry-run`. Progress goes to standard error, once per new reason.
pub async fn after(cluster: &Cluster, name: &str, change: &Change, goal: &Goal) -> Result<(), Failure> {
    if !change.wait || change.dry_run {
        return Ok(());
    }
    let mut said = String::new();
    let follow = async {
        let mut events = pin!(watcher(cluster.machines(), watch::of(name)).default_backoff());
        loop {
            // A watch that breaks is taken up again, later and later; its errors are told like any other reason.
            let now = match events.try_next().await {
                Ok(Some(watcher::Event::Apply(machine) | watcher::Event::InitApply(machine))) => {
                    if goal.reached(&machine) {
                        return Ok(());
                    }
                    why(machine, cluster.program)
                }
                Ok(Some(watcher::Event::Delete(_))) => return Err("it was deleted meanwhile".to_owned()),
                Ok(_) => continue,
                Err(error) => match watch::trouble(&error) {
                    Some(trouble) => trouble,
                    None => continue,
                },
            };
            if now != said {
                eprintln!("{name}: {now}");
                said = now;
            }
        }
    };
    let object = format!("machine '{name}'");
    let next = format!("{} explain {name}", cluster.program);
    match tokio::time::timeout(change.timeout, follow).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(cause)) => Err(Failure::Told { object, cause, next: format!("{} get", cluster.program) }),
        Err(_) => Err(Failure::TimedOut { object, seconds: change.timeout.as_secs(), cause: said, next }),
    }
}

fn why(machine: BareMetalMachine, program: &str) -> String {
    let root = tree(&Explained { machine, ..Explained::default() });
    if let Some(note) = root.note {
        return note;
    }
    let message = root.message.replace("bmctl ", &format!("{program} "));
    match (root.reason.is_empty(), message.is_empty()) {
        (true, _) => message,
        (false, true) => root.reason,
        (false, false) => format!("{}: {message}", root.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::machine::PowerStatus;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    fn seen(generation: i64, power: Option<&str>) -> BareMetalMachine {
        let mut machine = BareMetalMachine::new("bm-01", Default::default());
        machine.metadata.generation = Some(2);
        let status = machine.status.get_or_insert_default();
        status.observed_generation = Some(generation);
        status.power = power.map(|state| PowerStatus {
            state: state.to_owned(),
            observed_at: MicroTime(jiff::Timestamp::UNIX_EPOCH),
            last_action: None,
            last_action_at: None,
            last_action_accepted_at: None,
            started_boot_id: None,
            started_for: None,
            boot_disk_reads: None,
            booted_elsewhere: false,
            in_setup: false,
            setup_starts: 0,
            netboot_by: None,
            agent_resets: 0,
        });
        machine
    }

    #[test]
    fn stopped_is_off_or_without_hardware_in_a_status_of_this_spec() {
        assert!(Goal::Stopped.reached(&seen(2, Some("Off"))) && Goal::Stopped.reached(&seen(2, None)));
        assert!(
            !Goal::Stopped.reached(&seen(2, Some("PoweringOff"))) && !Goal::Stopped.reached(&seen(2, Some("Unknown")))
        );
        assert!(!Goal::Stopped.reached(&seen(1, Some("Off"))), "that status speaks of an older spec");
    }
}
