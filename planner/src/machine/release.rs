//! Giving back what the spec no longer names, and, when the machine is deleted, everything: host off, attachments
//! released, holds emptied, boot order restored, claims by their policy, the Hardware last.

use super::claim;
use super::draft::Draft;
use super::observed::{Observed, has_finalizer, in_use_by, label, name};
use super::plan::Action;
use super::volumes::{claim_name, target};
use super::{attach, boot, holds, nics, power, seed};
use crate::reason::{Blocked, Reason};
use api::labels;
use api::machine::DeletionPolicy;
use jiff::Timestamp;
use std::collections::BTreeSet;

/// Hot-unplug: attachments that the spec does not name go, without a power action. What is still on its way.
pub(super) fn strays(o: &Observed, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let spec = &o.machine.spec;
    let mut pending = None;
    for attachment in &o.disk_attachments {
        let disk = spec.disks.iter().find(|disk| disk.name == attachment.spec.disk_name);
        let same_volume = disk.is_some_and(|disk| {
            let claim = o.claims.get(&claim_name(o, disk)).and_then(|seen| seen.claim.metadata.uid.as_deref());
            let attached = attachment.spec.volume.as_ref().map(|volume| volume.claim.uid.as_str());
            // A claim that cannot be seen is no reason to take a disk away.
            claim.is_none() || claim == attached
        });
        let wanted = attachment.spec.disk_name == seed::DISK || same_volume;
        if !wanted || attachment.metadata.deletion_timestamp.is_some() {
            pending.get_or_insert(attach::detach(o, attachment, now, draft));
        }
    }
    for attachment in &o.nic_attachments {
        let wanted = spec.interfaces.iter().any(|interface| interface.name == attachment.spec.interface_name);
        if !wanted || attachment.metadata.deletion_timestamp.is_some() {
            pending.get_or_insert(nics::detach(o, attachment, draft));
        }
    }
    let claims: BTreeSet<String> = spec.disks.iter().map(|disk| claim_name(o, disk)).collect();
    let vnics: BTreeSet<String> = spec.interfaces.iter().map(|interface| nics::vnic_name(o, interface)).collect();
    pending.or(holds::sweep(o, &claims, draft)).or(nics::sweep(o, &vnics, draft))
}

/// The machine is being deleted. `None`: everything is given back.
pub(super) fn plan(o: &Observed, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    if !has_finalizer(&o.machine.metadata, labels::FINALIZER_MACHINE) {
        return None;
    }
    let hardware = claim::claimed(o, draft);
    let attached = !o.disk_attachments.is_empty() || !o.nic_attachments.is_empty();
    if attached && let Some(reason) = host_off(o, hardware, now, draft) {
        return Some(reason);
    }
    if let Some(reason) = take_back(o, now, draft) {
        return Some(reason);
    }
    if let Some(hardware) = hardware
        && let Some(reason) = boot::restore(o, hardware, now, draft)
    {
        return Some(reason);
    }
    if let Some(reason) = claims(o, draft) {
        return Some(reason);
    }
    for hardware in claim::held(o) {
        draft.act(Action::UnclaimHardware { name: name(&hardware.metadata).to_owned() });
    }
    if draft.actions.is_empty() {
        draft.act(Action::RemoveMachineFinalizer);
    }
    None
}

/// Step 8: nothing is taken from a host that is not read off. Once all is released the host only has to stay off.
fn host_off(
    o: &Observed,
    hardware: Option<&api::tinkerbell::Hardware>,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    let granted = o.disk_attachments.iter().any(|a| a.spec.grant.is_some())
        || o.nic_attachments.iter().any(|a| a.spec.grant.is_some());
    if !granted {
        return None;
    }
    let Some(hardware) = hardware else {
        let hardware = o.machine.status.as_ref().and_then(|s| s.hardware_name.clone()).unwrap_or_default();
        return Some(Blocked::HardwareMissing { hardware }.into());
    };
    let reason = power::off(o, name(&hardware.metadata), now, draft);
    let released = o.disk_attachments.iter().all(|a| a.metadata.deletion_timestamp.is_some() && a.spec.release)
        && o.nic_attachments.iter().all(|a| a.metadata.deletion_timestamp.is_some() && a.spec.release);
    if released { None } else { reason }
}

fn take_back(o: &Observed, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let mut pending = None;
    for attachment in &o.disk_attachments {
        pending.get_or_insert(attach::detach(o, attachment, now, draft));
    }
    for attachment in &o.nic_attachments {
        pending.get_or_insert(nics::detach(o, attachment, draft));
    }
    if pending.is_some() {
        return pending;
    }
    let swept = holds::sweep(o, &BTreeSet::new(), draft);
    swept.or(nics::sweep(o, &BTreeSet::new(), draft))
}

/// Claims that were made for this machine, and are to be deleted with it. Those of removed disks are kept.
fn claims(o: &Observed, draft: &mut Draft) -> Option<Reason> {
    let mut pending = None;
    for disk in o.machine.spec.disks.iter().filter(|disk| disk.deletion_policy == DeletionPolicy::Delete) {
        let Some(seen) = o.claims.get(&claim_name(o, disk)) else { continue };
        let meta = &seen.claim.metadata;
        let ours = disk.source.persistent_volume_claim.is_none()
            && label(meta, labels::MACHINE_UID) == Some(o.uid())
            && !in_use_by(meta, o.uid());
        if ours && meta.deletion_timestamp.is_none() {
            draft.act(Action::DeleteClaim { target: target(meta) });
            let what = format!("PersistentVolumeClaim '{}'", name(meta));
            pending.get_or_insert(crate::reason::Waiting::Creating { what: format!("the deletion of {what}") }.into());
        }
    }
    pending
}
