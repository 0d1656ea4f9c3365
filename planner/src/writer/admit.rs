//! The way to a grant: the hold, then the connector's own claim on the volume, and nobody else beside.

use super::claim::{is_pod, keep, pod_is_made, pod_of_hold, volume_attachment};
use super::down::is_lifted;
use super::hold::{Standing, holder, standing};
use super::{Action, Observed, Sink, TakeHold};
use crate::about::About;
use crate::meta::{annotation, name, uid};
use crate::observed::{Bound, DpuSeen};
use crate::orphan;
use crate::reason::{Reason, Waiting};
use api::hold::FenceRecord;
use api::{DiskAttachment, labels};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use std::sync::Arc;

/// So many fences are kept at most beside the newest.
const OLD_FENCES: usize = 63;

/// The epoch to grant, once all that comes before is so. A disk that is only read has no hold, and epoch 1.
pub(crate) fn admit(
    o: &Observed<'_>,
    dpu: &DpuSeen,
    attachment: &DiskAttachment,
    bound: Bound<'_>,
    sink: &mut dyn Sink,
) -> Result<u64, Reason> {
    let hold = o.hold(&bound.volume.hold_name());
    if let Some(reason) = orphan::shown_elsewhere(o.orphans, hold, bound.claim_name(), bound.volume) {
        return Err(reason);
    }
    let epoch = match attachment.spec.read_only {
        true => 1,
        false => take(o, dpu, attachment, bound, sink)?,
    };
    if let Some(reason) = keep(o, dpu, attachment, bound, sink) {
        return Err(reason);
    }
    // Somebody may have come while the hold was taken, or kubelet was connecting the volume.
    match other_user(o, bound) {
        Some(reason) => Err(reason),
        None => Ok(epoch),
    }
}

/// *HoldIsTakenBySwap*: from empty, in the version that was seen. The epoch, once the hold is this attachment's.
fn take(
    o: &Observed<'_>,
    dpu: &DpuSeen,
    attachment: &DiskAttachment,
    bound: Bound<'_>,
    sink: &mut dyn Sink,
) -> Result<u64, Reason> {
    let claim = bound.claim_name().to_owned();
    let hold_name = bound.volume.hold_name();
    let hold = o.hold(&hold_name);
    let last = match standing(hold, &attachment.metadata) {
        Standing::Own { epoch } => return Ok(epoch),
        Standing::Others { by } => return Err(Waiting::VolumeHeld { claim, by }.into()),
        Standing::Empty { epoch } => epoch,
    };
    if let Some(reason) = other_user(o, bound) {
        return Err(reason);
    }
    sink.act(Action::TakeHold(TakeHold {
        name: hold_name,
        driver: bound.volume.driver.clone(),
        volume_handle: bound.volume.handle.clone(),
        persistent_volume_name: bound.volume.name.clone(),
        volume_attachment: match is_pod(attachment) {
            true => String::new(),
            false => volume_attachment(o.owner, false, uid(&bound.claim.claim.metadata)),
        },
        holder_pod: pod_of_hold(o.owner, attachment),
        holder: holder(dpu, &attachment.metadata),
        resource_version: hold.and_then(|hold| hold.metadata.resource_version.clone()),
        epoch: last + 1,
        fences: hold.map(|hold| live_fences(o, &hold.spec.fences)).unwrap_or_default(),
    }));
    Err(Waiting::Creating { what: About::VolumeHold(claim.to_owned()) }.into())
}

/// *FenceIsLifted*: once its DPU reports another boot, or, alive, that it presents nothing at all. The newest are kept.
fn live_fences(o: &Observed<'_>, fences: &[FenceRecord]) -> Vec<FenceRecord> {
    let lifted = |fence: &FenceRecord| {
        let of_it = o.site.dpus.iter().find(|dpu| dpu.uid() == fence.dpu_uid);
        of_it.is_some_and(|dpu| is_lifted(fence, dpu))
    };
    let live: Vec<FenceRecord> = fences.iter().filter(|fence| !lifted(fence)).cloned().collect();
    live[live.len().saturating_sub(OLD_FENCES)..].to_vec()
}

/// A pod or a VolumeAttachment of somebody else, by name.
pub(crate) fn other_user(o: &Observed<'_>, bound: Bound<'_>) -> Option<Reason> {
    let by = user(o, bound)?;
    Some(Waiting::VolumeInUse { claim: bound.claim_name().to_owned(), by }.into())
}

pub(crate) fn user(o: &Observed<'_>, bound: Bound<'_>) -> Option<String> {
    if let Some(pod) = bound.claim.pods.first() {
        return Some(format!("pod '{pod}'"));
    }
    let foreign = |va: &&Arc<VolumeAttachment>| {
        va.spec.source.persistent_volume_name.as_deref() == Some(&bound.volume.name)
            && va.spec.attacher != labels::NATIVE_ATTACHER
            && !is_for_a_holder_pod(o, va)
    };
    let other = o.volume_attachments.iter().find(foreign)?;
    Some(format!("VolumeAttachment '{}' on node '{}'", name(&other.metadata), other.spec.node_name))
}

/// Kubernetes attaches the volume of a holder pod as that of any pod, in the name of its driver: for whom is told by the hold
/// or, of a disk that is only read, by the attachment.
fn is_for_a_holder_pod(o: &Observed<'_>, va: &VolumeAttachment) -> bool {
    let volume = va.spec.source.persistent_volume_name.as_deref();
    let held = o.holds.iter().any(|hold| {
        hold.spec.persistent_volume_name.as_deref() == volume
            && annotation(&hold.metadata, labels::HOLDER_POD).is_some()
            && hold.spec.holder.as_ref().is_some_and(|holder| holder.dpu_name == va.spec.node_name)
    });
    let made = |attachment: &Arc<DiskAttachment>| {
        attachment.spec.dpu_name == va.spec.node_name
            && attachment.spec.volume.as_ref().map(|of| of.persistent_volume_name.as_str()) == volume
            && pod_is_made(o.holder_pods, attachment)
    };
    held || o.attachments.iter().any(made)
}
