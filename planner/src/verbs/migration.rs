//! A `MachineMigration`: the machine's disks, NICs and identity to another server, without copying a byte.
//!
//! This plan chooses the target with the same check as any claim, locks the machine, and claims the target beside the
//! machine's own Hardware (annotation `metalplane.io/claimed-for`). The rest is the machine's own plan: while it holds a
//! target it powers the host off, gives everything back, and then gives the source up; that one write is the move. From
//! then on it is a machine on the target as any other. Where it is, is derived from what it holds, after any crash.

use super::operation::{Action, HardwareVersion, MachineVersion, Plan, Progress, Subject, Verb};
use crate::about::About;
use crate::machine::{self, claim};
use crate::meta::{name, uid};
use crate::reason::{Blocked, Reason, Waiting};
use api::conditions::{self, is_true};
use api::verbs::migration::MachineMigrationStatus;
use api::verbs::{HasPhase, OperationPhase};
use api::{BareMetalMachine, MachineMigration};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct Observed {
    pub object: Arc<MachineMigration>,
    /// The machine with the whole inventory as `hardware`, all DPUs, and its claims.
    pub machine: Option<machine::Observed>,
}

pub fn plan(o: &Observed, now: Timestamp) -> Plan<MachineMigrationStatus> {
    let mut status = o.object.status.clone().unwrap_or_default();
    let phase = o.object.phase();
    let machine = o.machine.as_ref().map(|seen| seen.machine.as_ref());
    let subject = Subject { verb: Verb::Migration, meta: &o.object.metadata, phase, machine };
    let mut actions = Vec::new();
    let progress = subject.go(
        &mut actions,
        |actions| match phase.is_over() {
            true => Progress::Same,
            false => work(o, &subject, &mut status, now, actions),
        },
        |actions| undo(o, phase, actions),
    );
    let done = done(&o.object.spec.machine_name, &status);
    if progress == Progress::Done {
        status.finished_at.get_or_insert(MicroTime(now));
    }
    let tell = subject.tell(&mut status.operation, &progress, &done, now);
    Plan { actions, status, wake_at: None, tell }
}

/// What is said of a migration that has succeeded.
fn done(machine: &str, status: &MachineMigrationStatus) -> String {
    let from = status.source_hardware_name.as_deref().unwrap_or_default();
    let to = status.target_hardware_name.as_deref().unwrap_or_default();
    match from == to {
        true => format!("machine '{machine}' was on Hardware '{to}' already: nothing was moved"),
        false => format!("machine '{machine}' moved from Hardware '{from}' to '{to}'"),
    }
}

fn work(
    o: &Observed,
    subject: &Subject<'_>,
    status: &mut MachineMigrationStatus,
    now: Timestamp,
    actions: &mut Vec<Action>,
) -> Progress {
    let there = match subject.machine(&o.object.spec.machine_name) {
        Ok(machine) => machine,
        Err(progress) => return progress,
    };
    let Some(seen) = &o.machine else { return Progress::Same };
    let Some(current) = claim::current(seen).map(|hardware| name(&hardware.metadata).to_owned()) else {
        subject.give_lock_back(actions);
        return Progress::Pending(Blocked::NotPlaced { machine: name(&there.metadata).to_owned() }.into());
    };
    let target = claim::target(seen).map(|hardware| name(&hardware.metadata).to_owned());
    match target {
        None if status.moved_at.is_some() && status.target_hardware_name.as_ref() == Some(&current) => {
            arrived(o, there, status)
        }
        None if asks_for(o, &current) => {
            status.source_hardware_name = Some(current.clone());
            status.target_hardware_name = Some(current);
            Progress::Done
        }
        None => begin(o, subject, status, now, actions),
        Some(target) if target == current => {
            status.moved_at.get_or_insert(MicroTime(now));
            match arrived(o, there, status) {
                // The mark goes with the end; until then the machine says that it migrates.
                Progress::Done => {
                    actions.push(Action::KeepTarget { name: target });
                    Progress::Running(
                        Waiting::Releasing { what: About::MachineLock(o.object.spec.machine_name.clone()) }.into(),
                    )
                }
                progress => progress,
            }
        }
        Some(target) => {
            status.source_hardware_name = Some(current);
            status.target_hardware_name = Some(target);
            status.started_at.get_or_insert(MicroTime(now));
            seen_off(there, status);
            Progress::Running(on_its_way(there, status))
        }
    }
}

/// The migration names this very Hardware as its target.
fn asks_for(o: &Observed, hardware: &str) -> bool {
    o.object.spec.target.as_ref().and_then(|target| target.name.as_deref()) == Some(hardware)
}

/// When the source was told to go off, and was seen off.
fn seen_off(machine: &BareMetalMachine, status: &mut MachineMigrationStatus) {
    let power = machine.status.as_ref().and_then(|status| status.power.as_ref());
    let of_source =
        machine.status.as_ref().and_then(|s| s.hardware_name.as_ref()) == status.source_hardware_name.as_ref();
    let Some(power) = power.filter(|_| of_source) else { return };
    let sent = power.last_action_at.as_ref().filter(|at| Some(at.0) >= status.started_at.as_ref().map(|at| at.0));
    if let (Some(at), Some("SoftOff" | "ForceOff")) = (sent, power.last_action.as_deref()) {
        status.power_off_sent_at.get_or_insert(at.clone());
    }
    if power.state == "Off" {
        status.powered_off_at.get_or_insert(power.observed_at.clone());
    }
}

/// What the machine itself says that it waits for.
fn on_its_way(machine: &BareMetalMachine, status: &MachineMigrationStatus) -> Reason {
    let ready = machine.status.as_ref().and_then(|status| conditions::get(&status.conditions, conditions::READY));
    Waiting::Moving {
        from: status.source_hardware_name.clone().unwrap_or_default(),
        to: status.target_hardware_name.clone().unwrap_or_default(),
        why: ready
            .filter(|ready| ready.status != "True")
            .map_or("the machine begins to move".into(), |r| r.reason.clone()),
    }
    .into()
}

/// The machine is on the target: is it there as it was asked to be?
fn arrived(o: &Observed, machine: &BareMetalMachine, status: &mut MachineMigrationStatus) -> Progress {
    let Some(now) = machine.status.as_ref().filter(|s| s.hardware_name == status.target_hardware_name) else {
        return Progress::Running(on_its_way(machine, status));
    };
    let sent = now.power.as_ref().filter(|power| power.last_action.as_deref() == Some("On"));
    if let Some(at) = sent.and_then(|power| power.last_action_at.clone()) {
        status.power_on_sent_at.get_or_insert(at);
    }
    let current = now.observed_generation == machine.metadata.generation;
    match current && is_true(&now.conditions, conditions::READY) {
        true => Progress::Done,
        false => {
            let ready = conditions::get(&now.conditions, conditions::READY);
            let why = ready.map(|ready| ready.reason.clone()).unwrap_or_default();
            Progress::Running(Waiting::Arriving { machine: o.object.spec.machine_name.clone(), why }.into())
        }
    }
}

/// Chooses a target, locks the machine, claims the target. Until then the machine is as it was.
fn begin(
    o: &Observed,
    subject: &Subject<'_>,
    status: &mut MachineMigrationStatus,
    now: Timestamp,
    actions: &mut Vec<Action>,
) -> Progress {
    let Some(seen) = &o.machine else { return Progress::Same };
    let there = seen.machine.as_ref();
    if machine::maintenance_is_over(seen, &o.object) {
        subject.give_lock_back(actions);
        return Progress::Same;
    }
    let target = match may_leave(seen).and_then(|()| claim::choose_target(seen, o.object.spec.target.as_ref())) {
        Ok(target) => target,
        Err(reason) => {
            subject.give_lock_back(actions);
            return Progress::Pending(reason);
        }
    };
    if let Err(reason) = subject.take_lock(there, actions) {
        return Progress::Pending(reason);
    }
    // Before the claim: the machine's own plan acts on it at once.
    status.started_at = Some(MicroTime(now));
    actions.push(Action::ClaimTarget { machine: MachineVersion::of(there), hardware: HardwareVersion::of(target) });
    Progress::Pending(Waiting::Creating { what: About::HardwareClaim(name(&target.metadata).to_owned()) }.into())
}

/// The machine can be taken off its server: not while nobody may touch it, nor from a DPU that does not answer and might
/// still write.
fn may_leave(seen: &machine::Observed) -> Result<(), Reason> {
    if seen.paused() {
        return Err(Blocked::Paused {}.into());
    }
    match machine::silent_dpu(seen) {
        Some(dpu) => Err(Waiting::DpuSilent { dpu }.into()),
        None => Ok(()),
    }
}

/// A disk or NIC has been taken from the machine, or is being.
fn is_released(seen: &machine::Observed) -> bool {
    let disks = seen.disk_attachments.iter().any(|a| a.spec.release || a.metadata.deletion_timestamp.is_some());
    disks || seen.nic_attachments.iter().any(|a| a.spec.release || a.metadata.deletion_timestamp.is_some())
}

/// Cancelled before the release: the target is given back, and the machine goes on where it is. Later: to its end.
fn undo(o: &Observed, phase: OperationPhase, actions: &mut Vec<Action>) -> Option<Reason> {
    let seen = o.machine.as_ref().filter(|_| !phase.is_over())?;
    if seen.deleting() {
        return None;
    }
    let target = claim::target(seen)?;
    let target_name = name(&target.metadata).to_owned();
    let current = claim::current(seen).map(|hardware| name(&hardware.metadata).to_owned())?;
    if current == target_name {
        actions.push(Action::KeepTarget { name: target_name });
        return Some(Waiting::Releasing { what: About::MachineLock(o.object.spec.machine_name.clone()) }.into());
    }
    let any = !seen.disk_attachments.is_empty() || !seen.nic_attachments.is_empty();
    if any && !is_released(seen) {
        actions.push(Action::GiveTargetBack {
            name: target_name.clone(),
            machine_uid: uid(&seen.machine.metadata).to_owned(),
        });
        return Some(Waiting::Releasing { what: About::HardwareClaim(target_name) }.into());
    }
    Some(Waiting::TooLateToCancel { from: current, to: target_name }.into())
}
