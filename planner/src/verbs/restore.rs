//! A `MachineRestore`: new claims from a snapshot in place of the machine's, while it is off.
//!
//! All claims are exchanged by one write to the machine, when every new one is bound: an annotation per disk says which
//! claim is behind it ([`crate::machine::claim_name`]). The machine's own plan then takes the old disks away and presents
//! the new ones. Before that write nothing of the machine was changed, and a deletion of the restore undoes it.

use super::observed::VolumeSnapshotSeen;
use super::operation::{Action, MachineVersion, Plan, Progress, Subject, Verb, is_off};
use crate::about::About;
use crate::machine::{bound_claim, claim_name, is_users_own, snapshot_claim};
use crate::meta::{annotation, in_use_by, label, name, target, uid};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use api::conditions::{self, is_true};
use api::machine::{DeletionPolicy, Disk};
use api::quantity::{bytes, quantity};
use api::verbs::restore::{MachineRestoreStatus, RestoreDisk};
use api::verbs::snapshot::SnapshotDisk;
use api::verbs::{HasPhase, OperationPhase};
use api::{BareMetalMachine, MachineRestore, MachineSnapshot, labels, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct Observed {
    pub object: Arc<MachineRestore>,
    pub machine: Option<Arc<BareMetalMachine>>,
    pub snapshot: Option<Arc<MachineSnapshot>>,
    /// By name: those of the snapshot, and those that the status names.
    pub snapshots: BTreeMap<String, VolumeSnapshotSeen>,
    /// By name: those that the machine's disks name, and those that the status names.
    pub claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
}

pub fn plan(o: &Observed, now: Timestamp) -> Plan<MachineRestoreStatus> {
    let mut status = o.object.status.clone().unwrap_or_default();
    let phase = o.object.phase();
    let subject = Subject { verb: Verb::Restore, meta: &o.object.metadata, phase, machine: o.machine.as_deref() };
    let mut actions = Vec::new();
    let recorded = status.clone();
    let progress = subject.go(
        &mut actions,
        |actions| match (phase.is_over(), recorded.disks.is_empty()) {
            (true, _) => Progress::Same,
            (false, true) => begin(o, &subject, &mut status, now, actions),
            (false, false) => exchange(o, &recorded, &mut status, now, actions),
        },
        |actions| undo(o, &recorded, actions),
    );
    let done = in_words(&o.object, &status);
    let tell = subject.tell(&mut status.operation, &progress, &done, now);
    Plan { actions, status, wake_at: None, tell }
}

fn in_words(object: &MachineRestore, status: &MachineRestoreStatus) -> String {
    let spec = &object.spec;
    let names: Vec<&str> = status.disks.iter().map(|disk| disk.name.as_str()).collect();
    let mut text = format!(
        "machine '{}' has {} as in MachineSnapshot '{}'",
        spec.machine_name,
        names.join(", "),
        spec.snapshot_name
    );
    if !status.left_out.is_empty() {
        text.push_str(&format!("; left as it is: {}", status.left_out.join(", ")));
    }
    text
}

/// Locks the machine and writes down what is to be exchanged.
fn begin(
    o: &Observed,
    subject: &Subject<'_>,
    status: &mut MachineRestoreStatus,
    now: Timestamp,
    actions: &mut Vec<Action>,
) -> Progress {
    let machine = match subject.machine(&o.object.spec.machine_name) {
        Ok(machine) => machine,
        Err(progress) => return progress,
    };
    let (disks, left_out) = match disks(o, machine) {
        Ok(disks) => disks,
        Err(reason) => {
            subject.give_lock_back(actions);
            return Progress::Pending(reason);
        }
    };
    // A machine that was off when it was locked stays off.
    if !subject.locked() && !is_off(machine) {
        return Progress::Pending(Blocked::MachineRuns { machine: name(&machine.metadata).to_owned() }.into());
    }
    if let Err(reason) = subject.take_lock(machine, actions) {
        return Progress::Pending(reason);
    }
    status.machine_uid = Some(uid(&machine.metadata).to_owned());
    status.started_at = Some(MicroTime(now));
    (status.disks, status.left_out) = (disks, left_out);
    Progress::Running(Waiting::Creating { what: About::DiskList }.into())
}

/// What can be put back, and the disks that only one side has.
fn disks(o: &Observed, machine: &BareMetalMachine) -> Result<(Vec<RestoreDisk>, Vec<String>), Reason> {
    let snapshot_name = o.object.spec.snapshot_name.clone();
    let missing = || Blocked::MachineSnapshotMissing { snapshot: snapshot_name.clone() };
    let snapshot = o.snapshot.as_ref().ok_or_else(missing)?;
    let machine_name = name(&machine.metadata);
    if snapshot.spec.machine_name != machine_name {
        let (of, machine) = (snapshot.spec.machine_name.clone(), machine_name.to_owned());
        return Err(Blocked::SnapshotOfAnother { snapshot: snapshot_name, of, machine }.into());
    }
    let taken = snapshot.status.as_ref();
    if !taken.is_some_and(|status| is_true(&status.operation.conditions, conditions::READY)) {
        return Err(Waiting::MachineSnapshotNotReady { snapshot: snapshot_name }.into());
    }
    let taken = taken.map(|status| status.disks.as_slice()).unwrap_or_default();
    let (mut disks, mut left_out) = (Vec::new(), Vec::new());
    for of_snapshot in taken {
        match machine.spec.disks.iter().find(|disk| disk.name == of_snapshot.name && !disk.read_only) {
            Some(disk) => disks.push(one(o, machine, disk, of_snapshot)?),
            None => left_out.push(of_snapshot.name.clone()),
        }
    }
    let kept = machine.spec.disks.iter().filter(|disk| !taken.iter().any(|t| t.name == disk.name));
    left_out.extend(kept.map(|disk| disk.name.clone()));
    if disks.is_empty() {
        return Err(Blocked::NothingToRestore { snapshot: snapshot_name, machine: machine_name.to_owned() }.into());
    }
    Ok((disks, left_out))
}

fn one(o: &Observed, machine: &BareMetalMachine, disk: &Disk, of: &SnapshotDisk) -> Result<RestoreDisk, Reason> {
    let snapshot = of.volume_snapshot_name.clone();
    match o.snapshots.get(&snapshot) {
        None => return Err(Blocked::SnapshotMissing { snapshot }.into()),
        Some(seen) if !seen.ready => return Err(Waiting::SnapshotNotReady { snapshot }.into()),
        Some(_) => {}
    }
    let previous_claim_name = claim_name(machine, disk);
    let previous = o.claims.get(&previous_claim_name);
    let capacity = previous.and_then(|claim| claim.status.as_ref()?.capacity.as_ref()?.get("storage"));
    let largest = [capacity, of.size.as_ref(), disk.size.as_ref()].into_iter().flatten().filter_map(bytes).max();
    let plain = names::claim(name(&machine.metadata), &disk.name);
    Ok(RestoreDisk {
        name: disk.name.clone(),
        volume_snapshot_name: snapshot,
        claim_name: format!("{plain}-{}", names::short(uid(&o.object.metadata), 8)),
        storage_class_name: of.storage_class_name.clone(),
        size: largest.map(quantity),
        previous_claim_uid: previous.map(|claim| uid(&claim.metadata).to_owned()),
        previous_claim_policy: match is_users_own(machine, disk) {
            true => DeletionPolicy::Retain,
            false => disk.deletion_policy,
        },
        previous_claim_name,
    })
}

/// The machine of this operation, and no other under its name.
fn own<'a>(o: &'a Observed, status: &MachineRestoreStatus) -> Option<&'a BareMetalMachine> {
    o.machine.as_deref().filter(|machine| Some(uid(&machine.metadata)) == status.machine_uid.as_deref())
}

fn is_switched(machine: &BareMetalMachine, disk: &RestoreDisk) -> bool {
    annotation(&machine.metadata, &format!("{}{}", labels::CLAIM, disk.name)) == Some(&disk.claim_name)
}

fn exchange(
    o: &Observed,
    recorded: &MachineRestoreStatus,
    status: &mut MachineRestoreStatus,
    now: Timestamp,
    actions: &mut Vec<Action>,
) -> Progress {
    let machine = own(o, recorded);
    let switched = machine.is_some_and(|machine| recorded.disks.iter().all(|disk| is_switched(machine, disk)));
    if switched || recorded.restored_at.is_some() {
        status.restored_at.get_or_insert(MicroTime(now));
        return let_go(o, recorded, actions).map_or(Progress::Done, Progress::Running);
    }
    let Some(machine) = machine.filter(|machine| machine.metadata.deletion_timestamp.is_none()) else {
        let machine = o.object.spec.machine_name.clone();
        return discard(o, recorded, actions)
            .map_or(Progress::Failed(Failed::MachineDeleted { machine }.into()), Progress::Running);
    };
    let mut waiting = None;
    for disk in &recorded.disks {
        waiting = waiting.or(new_claim(o, machine, disk, actions));
    }
    if let Some(reason) = waiting {
        return Progress::Running(reason);
    }
    let claims = recorded.disks.iter().map(|disk| (disk.name.clone(), disk.claim_name.clone())).collect();
    actions.push(Action::SwitchClaims { machine: MachineVersion::of(machine), claims });
    Progress::Running(Waiting::Creating { what: About::RestoredClaims }.into())
}

/// `None`: it is bound.
fn new_claim(
    o: &Observed,
    machine: &BareMetalMachine,
    disk: &RestoreDisk,
    actions: &mut Vec<Action>,
) -> Option<Reason> {
    let Some(claim) = o.claims.get(&disk.claim_name) else {
        let size = disk.size.as_ref().and_then(bytes).unwrap_or_default();
        let class = disk.storage_class_name.clone();
        let mut claim = snapshot_claim(machine, &disk.claim_name, size, class, &disk.volume_snapshot_name);
        let own = (labels::OPERATION_UID.to_owned(), uid(&o.object.metadata).to_owned());
        claim.metadata.labels.get_or_insert_default().extend([own]);
        actions.push(Action::CreateClaim(Box::new(claim)));
        return Some(Waiting::Creating { what: About::Claim(disk.claim_name.clone()) }.into());
    };
    if label(&claim.metadata, labels::OPERATION_UID) != Some(uid(&o.object.metadata)) {
        return Some(Blocked::ClaimNotOurs { claim: disk.claim_name.clone() }.into());
    }
    bound_claim(claim, None).err()
}

/// The claims of before, by their policy, once the machine has let go of them. `None`: done.
fn let_go(o: &Observed, status: &MachineRestoreStatus, actions: &mut Vec<Action>) -> Option<Reason> {
    let machine_uid = status.machine_uid.as_deref().unwrap_or_default();
    let mut left = None;
    for disk in &status.disks {
        let Some(claim) = o.claims.get(&disk.previous_claim_name) else { continue };
        let meta = &claim.metadata;
        if Some(uid(meta)) != disk.previous_claim_uid.as_deref() {
            continue;
        }
        if in_use_by(meta, machine_uid) {
            left.get_or_insert(Waiting::VolumeReleasing { volume: disk.previous_claim_name.clone() }.into());
        } else if disk.previous_claim_policy == DeletionPolicy::Delete
            && label(meta, labels::MACHINE_UID) == Some(machine_uid)
            && meta.deletion_timestamp.is_none()
        {
            actions.push(Action::DeleteClaim(target(meta)));
            let what = About::Claim(disk.previous_claim_name.clone());
            left.get_or_insert(Waiting::Deleting { what }.into());
        }
    }
    left
}

/// New claims that the machine never got. Of a machine that is gone it cannot be told: what its disks are to keep stays.
fn discard(o: &Observed, status: &MachineRestoreStatus, actions: &mut Vec<Action>) -> Option<Reason> {
    let machine = own(o, status);
    let unused = |disk: &&RestoreDisk| match machine {
        Some(machine) => !is_switched(machine, disk),
        None => disk.previous_claim_policy == DeletionPolicy::Delete,
    };
    let mut left = None;
    for disk in status.disks.iter().filter(unused) {
        let Some(claim) = o.claims.get(&disk.claim_name) else { continue };
        let meta = &claim.metadata;
        let ours = label(meta, labels::OPERATION_UID) == Some(uid(&o.object.metadata));
        if ours && meta.deletion_timestamp.is_none() {
            actions.push(Action::DeleteClaim(target(meta)));
            let what = About::Claim(disk.claim_name.clone());
            left.get_or_insert(Waiting::Deleting { what }.into());
        }
    }
    left
}

/// Before the exchange: as if it had not been. After it: to its end.
fn undo(o: &Observed, status: &MachineRestoreStatus, actions: &mut Vec<Action>) -> Option<Reason> {
    if status.operation.phase == OperationPhase::Succeeded {
        return None;
    }
    let switched = own(o, status).is_some_and(|machine| status.disks.iter().all(|disk| is_switched(machine, disk)));
    match switched || status.restored_at.is_some() {
        true => let_go(o, status, actions),
        false => discard(o, status, actions),
    }
}

#[cfg(test)]
#[path = "tests/restore.rs"]
mod tests;
