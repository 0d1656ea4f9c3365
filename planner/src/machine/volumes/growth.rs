//! Growing: the claim asks for more, the storage has it, the host is told, and the claim says so.
//!
//! Where kubelet connects the volume it also says in the claim's status that it has grown. Natively nobody would: there the
//! agent reports what the storage has, and the controller completes the claim (the part that kubelet has in Kubernetes'
//! own expansion, once the driver's controller has said that the node comes next).

use super::requested;
use crate::agent;
use crate::machine::draft::Draft;
use crate::machine::plan::Action;
use crate::machine::situation::Situation;
use crate::meta::{target, uid};
use crate::observed::Bound;
use crate::reason::{Blocked, Reason, Waiting};
use crate::writer::claim::is_pod;
use crate::writer::hold::words;
use crate::writer::{self, user};
use api::DiskAttachment;
use api::conditions;
use api::machine::Disk;
use api::quantity::{bytes, quantity};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimCondition};

/// Kubernetes' own conditions of a claim.
const NODE_COMES_NEXT: &str = "FileSystemResizePending";
const CONTROLLER_FAILED: &str = "ControllerResizeError";
/// CSI 1.12, ControllerExpandVolume: the volume is in use, and is expanded offline only. The one word that is looked for in a message: it is
/// external-resizer's, which has no field for it (`allocatedResourceStatuses` says ControllerResizeInfeasible for other codes only),
/// and that a driver expands offline only is a capability of its plugin, which no object of the cluster tells.
const OFFLINE_ONLY: &str = "FailedPrecondition";

fn condition<'a>(claim: &'a PersistentVolumeClaim, type_: &str) -> Option<&'a PersistentVolumeClaimCondition> {
    let all = claim.status.as_ref()?.conditions.as_ref()?;
    all.iter().find(|condition| condition.type_ == type_ && condition.status == "True")
}

/// What is asked for and not there yet.
fn lacking(disk: &Disk, bound: Bound<'_>) -> Option<(u64, u64)> {
    let (asked, there) = (disk.size.as_ref().and_then(bytes)?, bound.capacity()?);
    (asked > there).then_some((asked, there))
}

/// The driver grows only volumes that nobody has.
pub(in crate::machine) fn needs_stop(disk: &Disk, bound: Bound<'_>) -> Option<Reason> {
    lacking(disk, bound)?;
    let failed = condition(&bound.claim.claim, CONTROLLER_FAILED)?;
    let message = failed.message.clone().filter(|message| message.contains(OFFLINE_ONLY))?;
    Some(Blocked::ExpandNeedsStop { claim: bound.claim_name().to_owned(), message }.into())
}

/// What a bound claim still lacks of the size that was asked for.
pub(in crate::machine) fn expanding(
    o: &Situation<'_>,
    w: &writer::Observed<'_>,
    disk: &Disk,
    bound: Bound<'_>,
) -> Option<Reason> {
    let (asked, there) = lacking(disk, bound)?;
    if let Some(reason) = needs_stop(disk, bound) {
        return Some(reason);
    }
    let said = bound.claim.claim.status.as_ref().and_then(|status| {
        let all = status.conditions.as_ref()?.iter();
        all.filter_map(|condition| condition.message.clone()).find(|message| !message.is_empty())
    });
    let mut message = said.unwrap_or_else(|| format!("{} of {}", quantity(there).0, quantity(asked).0));
    if let Some(by) = elsewhere(o, w, bound) {
        message = format!("{message}; it is used by {by}");
    }
    Some(Waiting::ClaimExpanding { claim: bound.claim_name().to_owned(), message }.into())
}

/// Who has the volume, if it is not this machine.
fn elsewhere(o: &Situation<'_>, w: &writer::Observed<'_>, bound: Bound<'_>) -> Option<String> {
    let holder = o.holds.get(&bound.volume.hold_name()).and_then(|hold| hold.spec.holder.as_ref());
    match holder {
        Some(holder) if o.disk_attachments.iter().any(|a| uid(&a.metadata) == holder.attachment_uid) => None,
        Some(holder) => Some(words(holder)),
        None => user(w, bound),
    }
}

/// The volume has grown: the DPU is told. A size that only a power cycle shows is said in `RestartRequired`. Where nobody
/// else completes the claim, it is completed here.
pub(in crate::machine) fn plan(disk: &Disk, attachment: &DiskAttachment, bound: Bound<'_>, draft: &mut Draft) {
    let told = attachment.spec.size.as_ref().and_then(bytes).unwrap_or_default();
    if let (Some(size), Some(there)) = (bound.size(), bound.capacity())
        && there > told
    {
        draft.act(Action::ResizeDisk { target: target(&attachment.metadata), size });
    }
    let status = attachment.status.as_ref();
    let resized = status.and_then(|s| conditions::get(&s.conditions, conditions::RESIZED));
    if resized.is_some_and(|c| c.status == "False" && c.reason == agent::Blocked::ResizeNeedsPowerCycle.as_str()) {
        draft.restart_required.get_or_insert(Blocked::ResizeNeedsPowerCycle { disk: disk.name.clone() }.into());
    }
    if let Some(reason) = needs_stop(disk, bound) {
        draft.restart_required.get_or_insert(reason);
    }
    let stored = status.and_then(|s| s.volume_capacity.as_ref()).and_then(bytes);
    if let Some(size) = completed(bound, stored).filter(|_| !is_pod(attachment)) {
        let target = bound.target();
        draft.act(Action::CompleteExpansion { target, size: quantity(size) });
    }
}

/// What the claim may say: the driver's controller has done its part, and the storage has what the claim asks for.
fn completed(bound: Bound<'_>, stored: Option<u64>) -> Option<u64> {
    let claim = &bound.claim.claim;
    condition(claim, NODE_COMES_NEXT)?;
    let (asked, there) = (requested(claim)?, bound.capacity()?);
    (asked > there && stored? >= asked).then_some(asked)
}

/// A host that is off gives a volume back that grows only while nobody has it. `Some`: it is on its way.
pub(in crate::machine) fn give_back(
    o: &Situation<'_>,
    disk: &Disk,
    attachment: &DiskAttachment,
    bound: Bound<'_>,
    draft: &mut Draft,
) -> Option<Reason> {
    let reason = needs_stop(disk, bound)?;
    if !o.owned.is_off() {
        return None;
    }
    draft.act(Action::ReleaseDisk { target: target(&attachment.metadata) });
    Some(reason)
}
