//! Several disks of a machine that runs, taken at one moment: by a VolumeGroupSnapshot of the disks' CSI driver.
//!
//! A VolumeGroupSnapshot finds its claims by labels, once, when the snapshot controller makes its content. So the claims of
//! the recorded disks are labelled first, with the operation's UID, then the VolumeGroupSnapshot is created, and when it is
//! taken, or given up, the labels are removed. The VolumeSnapshots of the members are the snapshot controller's: they are
//! found by their owner and the claim that they name, and are deleted with the VolumeGroupSnapshot only.

use super::observed::Observed;
use super::operation::{Action, NewGroup, Subject};
use crate::about::About;
use crate::meta::{label, name, target, uid};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use api::labels;
use api::verbs::snapshot::{MachineSnapshotStatus, SnapshotDisk};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// The VolumeGroupSnapshotClass for these disks; `Err`: why there is none.
pub(super) fn class(o: &Observed, disks: &[SnapshotDisk]) -> Result<String, String> {
    let mut driver: Option<(&str, &str)> = None;
    for disk in disks {
        let own = o.drivers.get(&disk.claim_name);
        let own = own.ok_or_else(|| format!("the volume of disk '{}' is not a CSI volume", disk.name))?;
        match driver {
            Some((first, other)) if other != own => {
                let disk = &disk.name;
                return Err(format!("disk '{first}' is of CSI driver '{other}', disk '{disk}' of CSI driver '{own}'"));
            }
            _ => driver = Some((&disk.name, own)),
        }
    }
    let driver = driver.map(|(_, driver)| driver).unwrap_or_default();
    if let Some(named) = &o.object.spec.volume_group_snapshot_class_name {
        let missing = || format!("there is no VolumeGroupSnapshotClass '{named}'");
        let class = o.classes.iter().find(|class| class.name == *named).ok_or_else(missing)?;
        return match class.driver == driver {
            true => Ok(named.clone()),
            false => Err(format!(
                "VolumeGroupSnapshotClass '{named}' is of CSI driver '{}', the disks are of CSI driver '{driver}'",
                class.driver
            )),
        };
    }
    let defaults: Vec<&str> = o
        .classes
        .iter()
        .filter(|class| class.is_default && class.driver == driver)
        .map(|class| class.name.as_str())
        .collect();
    match defaults.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => Err(format!("CSI driver '{driver}' of the disks has no default VolumeGroupSnapshotClass")),
        several => {
            let several = several.join(", ");
            Err(format!("CSI driver '{driver}' of the disks has several default VolumeGroupSnapshotClasses: {several}"))
        }
    }
}

/// `None`: it is taken, and each disk has its VolumeSnapshot.
pub(super) fn take(
    o: &Observed,
    subject: &Subject<'_>,
    class: &str,
    status: &mut MachineSnapshotStatus,
    actions: &mut Vec<Action>,
) -> Option<Reason> {
    let snapshot = name(&o.object.metadata).to_owned();
    let Some(group) = &o.group else { return make(o, subject, class, snapshot, status, actions) };
    if !group.ours {
        return Some(Blocked::GroupSnapshotNotOurs { snapshot }.into());
    }
    if group.deleting {
        return Some(Waiting::Deleting { what: About::VolumeGroupSnapshot(snapshot) }.into());
    }
    for disk in &mut status.disks {
        let member = |claim: &Option<String>| claim.as_deref() == Some(&disk.claim_name);
        let seen = o.snapshots.iter().find(|(_, seen)| seen.is_member_of(group) && member(&seen.claim));
        let Some((name, seen)) = seen else { continue };
        disk.volume_snapshot_name.clone_from(name);
        disk.taken |= seen.taken || seen.ready;
        disk.ready = seen.ready;
    }
    if status.disks.iter().all(|disk| disk.taken) {
        return None;
    }
    match &group.error {
        Some(message) => Some(Failed::GroupSnapshotFailed { snapshot, message: message.clone() }.into()),
        None => Some(Waiting::GroupSnapshotNotReady { snapshot }.into()),
    }
}

/// The VolumeGroupSnapshot, once every claim has the label.
fn make(
    o: &Observed,
    subject: &Subject<'_>,
    class: &str,
    snapshot: String,
    status: &MachineSnapshotStatus,
    actions: &mut Vec<Action>,
) -> Option<Reason> {
    let mut all_labelled = true;
    for disk in &status.disks {
        let Some(claim) = o.claims.get(&disk.claim_name) else {
            return Some(Blocked::ClaimMissing { claim: disk.claim_name.clone() }.into());
        };
        if !is_labelled(o, claim) {
            all_labelled = false;
            actions.push(Action::LabelClaim(target(&claim.metadata)));
        }
    }
    if !all_labelled {
        return Some(Waiting::Creating { what: About::GroupSnapshotLabels }.into());
    }
    let labels = subject.labels(&o.object.spec.machine_name);
    actions.push(Action::CreateGroup(NewGroup { name: snapshot.clone(), class: class.to_owned(), labels }));
    Some(Waiting::Creating { what: About::VolumeGroupSnapshot(snapshot) }.into())
}

fn is_labelled(o: &Observed, claim: &PersistentVolumeClaim) -> bool {
    label(&claim.metadata, labels::GROUP_SNAPSHOT) == Some(uid(&o.object.metadata))
}

/// Nothing is taken any more: no claim keeps the label.
pub(super) fn unlabel(o: &Observed, actions: &mut Vec<Action>) {
    actions.extend(o.labelled.iter().map(|claim| Action::UnlabelClaim(target(&claim.metadata))));
}
