//! Giving back what the spec no longer names, and, when the machine is deleted, everything: host off, attachments
//! released, holds emptied, boot order restored, claims by their policy, the Hardware last.

pub(super) mod migrate;

use super::attach::nics;
use super::draft::Draft;
use super::named::{SEED_DISK, claim_name, is_users_own, vnic_name};
use super::observed::Observed;
use super::plan::Action;
use super::situation::{Owned, Situation, is_bare, is_granted};
use super::{boot, claim, erase, install, power};
use crate::about::About;
use crate::meta::{has_finalizer, in_use_by, label, name, target};
use crate::reason::{Blocked, Reason, Waiting};
use crate::writer;
use api::labels;
use api::machine::DeletionPolicy;
use api::tinkerbell::Hardware;
use erase::presented::keeps;
use install::was_begun;
use jiff::Timestamp;
use std::collections::BTreeSet;

/// Hot-unplug: attachments that the spec does not name go, without a power action. What is still on its way.
pub(super) fn strays(o: &Situation<'_>, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let (spec, w) = (&o.machine.spec, o.owned.writer(now));
    let mut pending = None;
    for attachment in &o.disk_attachments {
        let disk = spec.disks.iter().find(|disk| disk.name == attachment.spec.disk_name);
        let same_volume = disk.is_some_and(|disk| {
            let claim = o.claims.get(&claim_name(&o.machine, disk)).and_then(|seen| seen.claim.metadata.uid.as_deref());
            let attached = attachment.spec.volume.as_ref().map(|volume| volume.claim.uid.as_str());
            // A claim that cannot be seen is no reason to take a disk away.
            claim.is_none() || claim == attached
        });
        let wanted = attachment.spec.disk_name == SEED_DISK || same_volume;
        if disk.is_some() && !wanted && !o.owned.was_off() {
            // A restore exchanged it: never under a host that may be on.
            let hardware = o.owned.current.map(|hw| name(&hw.metadata).to_owned()).unwrap_or_default();
            pending.get_or_insert(Waiting::PoweringOff { hardware }.into());
            continue;
        }
        if !wanted || attachment.metadata.deletion_timestamp.is_some() {
            pending.get_or_insert(writer::release(&w, attachment, draft));
        }
    }
    for attachment in &o.nic_attachments {
        let wanted = spec.interfaces.iter().any(|interface| interface.name == attachment.spec.interface_name);
        if !wanted || attachment.metadata.deletion_timestamp.is_some() {
            pending.get_or_insert(nics::detach(&o.owned, attachment, now, draft));
        }
    }
    let swept = sweep(o, now, draft);
    pending.or(swept)
}

/// Gives back what no attachment needs any more, but keeps the spec's claims and VNics for this machine.
fn sweep(o: &Situation<'_>, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let spec = &o.machine.spec;
    let claims: BTreeSet<String> = spec.disks.iter().map(|disk| claim_name(&o.machine, disk)).collect();
    let vnics: BTreeSet<String> = spec.interfaces.iter().map(|interface| vnic_name(&o.machine, interface)).collect();
    let swept = writer::sweep(&o.owned.writer(now), &claims, draft);
    swept.or(nics::sweep(&o.owned, &vnics, draft))
}

/// The machine moves to `target`: everything is given back here, then the Hardware. `None`: it is.
pub(super) fn leave(
    o: &Situation<'_>,
    hardware: &Hardware,
    target: &Hardware,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    // While it is erased the host is on.
    if erase::is_begun(hardware)
        && let Some(reason) = erase::plan(&o.owned, hardware, now, draft)
    {
        return Some(reason);
    }
    let attached = !o.disk_attachments.is_empty() || !o.nic_attachments.is_empty();
    if attached && let Some(reason) = host_off(o, Some(hardware), now, draft) {
        return Some(reason);
    }
    let pending = detach_all(&o.owned, now, draft);
    // What is gone already is given back meanwhile.
    let swept = sweep(o, now, draft);
    if pending.is_some() || swept.is_some() {
        return pending.or(swept);
    }
    if let Some(reason) = pods_leave(&o.owned, now, draft) {
        return Some(reason);
    }
    // The eraser is booted by the order that the machine was.
    if let Some(reason) = erase::plan(&o.owned, hardware, now, draft) {
        return Some(reason);
    }
    if let Some(reason) = boot::restore(o, hardware, now, draft) {
        return Some(reason);
    }
    let (from, to) = (name(&hardware.metadata).to_owned(), name(&target.metadata).to_owned());
    draft.act(Action::MoveOn { from, to });
    None
}

/// The machine is being deleted. `None`: everything is given back.
pub(super) fn plan(o: &Situation<'_>, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    if !has_finalizer(&o.machine.metadata, labels::FINALIZER_MACHINE) {
        return None;
    }
    let hardware = claim::claimed(o, draft);
    if hardware.is_none()
        && let Some(reason) = claim::again(o, draft)
    {
        return Some(reason);
    }
    // While it is erased the host is on.
    if let Some(hardware) = hardware.filter(|hardware| is_bare(hardware) || erase::is_begun(hardware))
        && let Some(reason) = erase::plan(&o.owned, hardware, now, draft)
    {
        return Some(reason);
    }
    let attached = !o.disk_attachments.is_empty() || !o.nic_attachments.is_empty();
    if (attached || hardware.is_some_and(|hardware| was_begun(&o.owned, hardware)))
        && let Some(reason) = host_off(o, hardware, now, draft)
    {
        return Some(reason);
    }
    if let Some(reason) = take_back(&o.owned, now, draft).or_else(|| pods_leave(&o.owned, now, draft)) {
        return Some(reason);
    }
    // No volume waits for what may take a day.
    if let Some(reason) = claims(o, draft) {
        return Some(reason);
    }
    if let Some(hardware) = hardware {
        // An eraser is booted by the order that the machine was.
        let reason = erase::plan(&o.owned, hardware, now, draft);
        if let Some(reason) = reason.or_else(|| boot::restore(o, hardware, now, draft)) {
            return Some(reason);
        }
    }
    if let Some(reason) = install::remove(o, draft) {
        return Some(reason);
    }
    draft.is_released = true;
    if let Some(reason) = told(o) {
        return Some(reason);
    }
    unclaim(&o.owned, draft);
    if draft.actions.is_empty() {
        draft.act(Action::RemoveMachineFinalizer);
    }
    None
}

/// *HostIsOffFirst*: nothing is taken from a host that is not read off. Once all is released the host only has to stay off.
fn host_off(o: &Situation<'_>, hardware: Option<&Hardware>, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    // A workflow has installed something there, or was about to.
    if hardware.is_some_and(|hardware| was_begun(&o.owned, hardware)) {
        return power::off(&o.owned, hardware.map(|h| name(&h.metadata)).unwrap_or_default(), now, draft);
    }
    if !is_granted(o) {
        return None;
    }
    let Some(hardware) = hardware else {
        let hardware = o.machine.status.as_ref().and_then(|s| s.hardware_name.clone()).unwrap_or_default();
        return Some(Blocked::HardwareMissing { hardware }.into());
    };
    let reason = power::off(&o.owned, name(&hardware.metadata), now, draft);
    let released = o.disk_attachments.iter().all(|a| a.metadata.deletion_timestamp.is_some() && a.spec.release)
        && o.nic_attachments.iter().all(|a| a.metadata.deletion_timestamp.is_some() && a.spec.release);
    if released { None } else { reason }
}

fn detach_all(o: &Owned<'_>, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let (w, mut pending) = (o.writer(now), None);
    for attachment in o.disk_attachments.iter().filter(|a| !keeps(o, a)) {
        pending.get_or_insert(writer::release(&w, attachment, draft));
    }
    for attachment in &o.nic_attachments {
        pending.get_or_insert(nics::detach(o, attachment, now, draft));
    }
    pending
}

/// Attachments, holds and VNics. `None`: nothing of them is left.
pub(super) fn take_back(o: &Owned<'_>, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let pending = detach_all(o, now, draft);
    if pending.is_some() {
        return pending;
    }
    let swept = writer::sweep(&o.writer(now), &BTreeSet::new(), draft);
    swept.or(nics::sweep(o, &BTreeSet::new(), draft))
}

/// The NICs of pods that run on the machine: nobody else's server ever shows them. The pods' own plan gives them back too, when it sees that
/// the machine goes; what proves that a DPU is down is known here.
pub(super) fn pods_leave(o: &Owned<'_>, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let mut pending = None;
    for nic in &o.pod_nics {
        let reason = match nics::detach(o, nic, now, draft) {
            Reason::Waiting(Waiting::Detaching { dpu, .. }) => {
                let owner = &nic.spec.owner;
                let pod = format!("{}/{}", owner.namespace.as_deref().unwrap_or_default(), owner.name);
                Waiting::PodNicsLeaving { pod, count: o.pod_nics.len(), dpu }.into()
            }
            unresponsive => unresponsive,
        };
        pending.get_or_insert(reason);
    }
    pending
}

/// Before an installed machine's claim goes, its status says that nothing of it is on the server any more. With a status that says otherwise a
/// machine without a Hardware has one that was deleted under it, and was not released.
fn told(o: &Situation<'_>) -> Option<Reason> {
    let is_told = o.machine.status.as_ref().is_none_or(|status| status.install.is_none());
    let waits = !is_told && !o.owned.held().is_empty();
    waits.then(|| Waiting::Creating { what: About::ReleasedRecord }.into())
}

pub(super) fn unclaim(o: &Owned<'_>, draft: &mut Draft) {
    for hardware in o.held() {
        draft.act(Action::UnclaimHardware { name: name(&hardware.metadata).to_owned() });
    }
}

/// Claims that were made for this machine, and are to be deleted with it. Those of removed disks are kept.
fn claims(o: &Observed, draft: &mut Draft) -> Option<Reason> {
    let mut pending = None;
    for disk in o.machine.spec.disks.iter().filter(|disk| disk.deletion_policy == DeletionPolicy::Delete) {
        let Some(seen) = o.claims.get(&claim_name(&o.machine, disk)) else { continue };
        let meta = &seen.claim.metadata;
        let ours = !is_users_own(&o.machine, disk)
            && label(meta, labels::MACHINE_UID) == Some(o.uid())
            && !in_use_by(meta, o.uid());
        if ours && meta.deletion_timestamp.is_none() {
            draft.act(Action::DeleteClaim { target: target(meta) });
            let what = About::Claim(name(meta).to_owned());
            pending.get_or_insert(Waiting::Deleting { what }.into());
        }
    }
    pending
}
