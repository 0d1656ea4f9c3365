//! A `MachineSnapshot`: one VolumeSnapshot per disk, taken while nothing can be written between the first and the last: the machine
//! is off, or one VolumeGroupSnapshot takes them ([`super::group`]).
//!
//! Which disks, and of which claims, is recorded in status before the first one is made. The lock is kept until the last is
//! cut, not until all are ready: a back end may upload them for hours.

use super::group;
use super::observed::{Observed, VolumeSnapshotSeen};
use super::operation::{Action, NewSnapshot, Plan, Progress, Subject, Verb, is_off};
use crate::about::About;
use crate::machine::{bound_claim, claim_name};
use crate::meta::{name, uid};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use api::machine::DeletionPolicy;
use api::verbs::HasPhase;
use api::verbs::snapshot::{Consistency, MachineSnapshotStatus, SnapshotDisk};
use api::{BareMetalMachine, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// A machine that is off may not be started for so long at most.
const PATIENCE: SignedDuration = SignedDuration::from_secs(300);

pub fn plan(o: &Observed, now: Timestamp) -> Plan<MachineSnapshotStatus> {
    let mut status = o.object.status.clone().unwrap_or_default();
    let subject = Subject {
        verb: Verb::Snapshot,
        meta: &o.object.metadata,
        phase: o.object.phase(),
        machine: o.machine.as_deref(),
    };
    let mut actions = Vec::new();
    let before = status.clone();
    let progress = subject.go(
        &mut actions,
        |actions| match before.disks.is_empty() {
            true => begin(o, &subject, &mut status, now, actions),
            false => take(o, &subject, &mut status, now, actions),
        },
        |actions| undo(o, now, actions),
    );
    let is_over = status.taken_at.is_some() || matches!(progress, Progress::Failed(_) | Progress::Same);
    if is_over && o.object.metadata.deletion_timestamp.is_none() {
        group::unlabel(o, &mut actions);
    }
    let wake_at = deadline(&status).filter(|_| status.taken_at.is_none() && !o.object.phase().is_over());
    let done = format!("{} of machine '{}'", disks_in_words(status.disks.len()), o.object.spec.machine_name);
    let tell = subject.tell(&mut status.operation, &progress, &done, now);
    Plan { actions, status, wake_at, tell }
}

/// No disk is waited for any longer than until then.
fn deadline(status: &MachineSnapshotStatus) -> Option<Timestamp> {
    status.started_at.as_ref().map(|at| at.0 + PATIENCE)
}

fn disks_in_words(disks: usize) -> String {
    if disks == 1 { "1 disk".to_owned() } else { format!("{disks} disks") }
}

/// Locks the machine and writes down what is to be taken.
fn begin(
    o: &Observed,
    subject: &Subject<'_>,
    status: &mut MachineSnapshotStatus,
    now: Timestamp,
    actions: &mut Vec<Action>,
) -> Progress {
    let machine = match subject.machine(&o.object.spec.machine_name) {
        Ok(machine) => machine,
        Err(progress) => return progress,
    };
    let disks = match disks(o, machine) {
        Ok(disks) => disks,
        Err(reason) => {
            subject.give_lock_back(actions);
            return Progress::Pending(reason);
        }
    };
    let asked = o.object.spec.consistency;
    // Once the lock is there, a machine that was off at that moment stays off, whatever is asked of it meanwhile.
    let power = machine.status.as_ref().and_then(|status| status.power.as_ref()).map(|power| power.state.as_str());
    let off = is_off(machine) || (subject.locked() && asked == Consistency::Machine && power == Some("Off"));
    let mut group_class = None;
    if disks.len() > 1 && !off && asked == Consistency::Machine {
        match group::class(o, &disks) {
            Ok(class) => group_class = Some(class),
            Err(why) => {
                // It was started by hand, beside us.
                subject.give_lock_back(actions);
                let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
                let (machine, disks) = (name(&machine.metadata).to_owned(), names.join(", "));
                return Progress::Pending(Blocked::SeveralDisksRun { machine, disks, why }.into());
            }
        }
    }
    if let Err(reason) = subject.take_lock(machine, actions) {
        return Progress::Pending(reason);
    }
    let mut disks = disks;
    if group_class.is_some() {
        // The snapshot controller gives them their names.
        disks.iter_mut().for_each(|disk| disk.volume_snapshot_name.clear());
    }
    let together = disks.len() == 1 || off || group_class.is_some();
    status.volume_group_snapshot_class_name = group_class;
    status.consistency = Some(if together { Consistency::Machine } else { Consistency::PerDisk });
    status.machine_was_off = off;
    status.machine_uid = Some(uid(&machine.metadata).to_owned());
    status.started_at = Some(MicroTime(now));
    status.disks = disks;
    Progress::Running(Waiting::Creating { what: About::DiskList }.into())
}

/// All that the machine can write to. What it only reads is not its own.
fn disks(o: &Observed, machine: &BareMetalMachine) -> Result<Vec<SnapshotDisk>, Reason> {
    let mut all = Vec::new();
    for disk in machine.spec.disks.iter().filter(|disk| !disk.read_only) {
        let claim_name = claim_name(machine, disk);
        let missing = || Waiting::Creating { what: About::VolumeOfDisk(disk.name.clone()) };
        let claim = o.claims.get(&claim_name).ok_or_else(missing)?;
        bound_claim(claim, None)?;
        let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage").cloned());
        all.push(SnapshotDisk {
            name: disk.name.clone(),
            volume_snapshot_name: names::claim(name(&o.object.metadata), &disk.name),
            storage_class_name: claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()),
            size: capacity,
            claim_name,
            taken: false,
            ready: false,
        });
    }
    Ok(all)
}

/// Makes what is missing, and looks how far the others are.
fn take(
    o: &Observed,
    subject: &Subject<'_>,
    status: &mut MachineSnapshotStatus,
    now: Timestamp,
    actions: &mut Vec<Action>,
) -> Progress {
    let was_taken = status.taken_at.is_some();
    let mut waiting: Option<Reason> = None;
    let class = status.volume_group_snapshot_class_name.clone();
    match class.as_ref().filter(|_| !was_taken) {
        Some(class) => waiting = group::take(o, subject, class, status, actions),
        None => {
            for disk in &mut status.disks {
                let reason = one(o, subject, disk, (was_taken, class.is_some()), actions);
                waiting = waiting.or(reason);
            }
        }
    }
    if was_taken {
        return waiting.map_or(Progress::Done, Progress::Running);
    }
    if status.disks.iter().all(|disk| disk.taken) {
        status.taken_at = Some(MicroTime(now));
        subject.give_lock_back(actions);
        return waiting.map_or(Progress::Done, Progress::Running);
    }
    if subject.machine.is_none_or(|machine| Some(uid(&machine.metadata)) != status.machine_uid.as_deref()) {
        return Progress::Failed(Failed::MachineDeleted { machine: o.object.spec.machine_name.clone() }.into());
    }
    let seconds = PATIENCE.as_secs();
    if deadline(status).is_some_and(|deadline| now >= deadline) {
        // The last word of the storage, if it had one.
        let message = waiting.map(|reason| reason.message()).unwrap_or_default();
        return Progress::Failed(Failed::NotTakenInTime { seconds, message }.into());
    }
    Progress::Running(waiting.unwrap_or_else(|| Waiting::Creating { what: About::VolumeSnapshots }.into()))
}

/// `None`: this disk's VolumeSnapshot can be restored.
fn one(
    o: &Observed,
    subject: &Subject<'_>,
    disk: &mut SnapshotDisk,
    (was_taken, is_member): (bool, bool),
    actions: &mut Vec<Action>,
) -> Option<Reason> {
    let snapshot = disk.volume_snapshot_name.clone();
    let Some(seen) = o.snapshots.get(&snapshot) else {
        disk.ready = false;
        if was_taken || disk.taken {
            return Some(Blocked::SnapshotMissing { snapshot }.into());
        }
        actions.push(Action::CreateSnapshot(NewSnapshot {
            name: snapshot.clone(),
            claim: disk.claim_name.clone(),
            class: o.object.spec.volume_snapshot_class_name.clone(),
            labels: subject.labels(&o.object.spec.machine_name),
        }));
        return Some(Waiting::Creating { what: About::VolumeSnapshot(snapshot.clone()) }.into());
    };
    let is_ours = seen.ours || (is_member && seen.group_uid.is_some());
    if !is_ours {
        return Some(Blocked::SnapshotNotOurs { snapshot }.into());
    }
    disk.taken |= seen.taken || seen.ready;
    disk.ready = seen.ready;
    match (&seen.error, seen.ready) {
        (_, true) => None,
        (Some(message), false) => Some(Failed::SnapshotFailed { snapshot, message: message.clone() }.into()),
        (None, false) => Some(Waiting::SnapshotNotReady { snapshot }.into()),
    }
}

/// By the deletion policy.
fn undo(o: &Observed, now: Timestamp, actions: &mut Vec<Action>) -> Option<Reason> {
    group::unlabel(o, actions);
    if o.object.spec.deletion_policy == DeletionPolicy::Retain {
        return None;
    }
    if let Some(group) = o.group.as_ref().filter(|group| group.ours && !group.deleting) {
        let snapshot = group.target.name.clone();
        // Deleted before it is known what its content is called, it would leave that to nobody.
        let is_late = o.object.status.as_ref().and_then(deadline).is_none_or(|deadline| now >= deadline);
        if !group.bound && group.error.is_none() && !is_late {
            return Some(Waiting::GroupSnapshotNotReady { snapshot }.into());
        }
        actions.push(Action::DeleteGroup(group.target.clone()));
        return Some(Waiting::Deleting { what: About::VolumeGroupSnapshot(snapshot) }.into());
    }
    let left: Vec<&VolumeSnapshotSeen> = o.snapshots.values().filter(|seen| seen.ours && !seen.deleting).collect();
    actions.extend(left.iter().map(|seen| Action::DeleteSnapshot(seen.target.clone())));
    (!left.is_empty()).then(|| Waiting::Deleting { what: About::VolumeSnapshots }.into())
}

#[cfg(test)]
#[path = "tests/snapshot.rs"]
mod tests;
