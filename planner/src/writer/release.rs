//! The way back of one attachment: asked for, then its agent detaches it, or nobody does whose absence is proven.

use super::{Action, Observed, Sink, claim, down, fence};
use crate::meta::{target, uid};
use crate::reason::{Reason, Waiting};
use api::hold::FenceRecord;
use api::{DiskAttachment, VolumeHold, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Why an attachment that is being taken away cannot be in use any more.
enum End {
    /// Nothing was ever granted by it.
    NeverGranted,
    /// Its DPU is down, by this proof.
    Down(FenceRecord),
}

/// Takes an attachment away; what is waited for.
pub(crate) fn release(o: &Observed<'_>, attachment: &DiskAttachment, sink: &mut dyn Sink) -> Reason {
    let (target, dpu) = (target(&attachment.metadata), &attachment.spec.dpu_name);
    if attachment.metadata.deletion_timestamp.is_none() || !attachment.spec.release {
        sink.act(Action::Release { target });
    } else if let Some(end) = end(o, attachment) {
        let hold = attachment.spec.volume.as_ref().map(|v| names::hold(&v.driver, &v.volume_handle));
        let fence = match end {
            End::NeverGranted => None,
            End::Down(fence) => Some(fence),
        };
        sink.act(Action::Abandon { target, hold, fence });
    } else {
        o.site.watch(dpu, sink);
        if let Some(reason) = fence::plan(o, attachment, sink).or_else(|| o.site.unresponsive(dpu)) {
            return reason;
        }
    }
    Waiting::Detaching { what: o.owner.what(attachment), dpu: dpu.clone() }.into()
}

/// A holder pod is a use: where nobody answers for it, the proof goes on record while the attachment is there, for by that the pod
/// ends.
fn end(o: &Observed<'_>, attachment: &DiskAttachment) -> Option<End> {
    let seen = down::dpu(o.site.dpus, &attachment.spec.dpu_name);
    let epoch = match &attachment.spec.grant {
        Some(grant) => grant.epoch,
        None if seen.is_some_and(|dpu| dpu.silent) && claim::pod_is_made(o.holder_pods, attachment) => {
            epoch_of(o, attachment)?
        }
        None => return Some(End::NeverGranted),
    };
    let dpu = seen?;
    let proof = o.site.proof(dpu)?;
    let fence = attachment.status.as_ref().and_then(|status| status.fence.as_ref());
    Some(End::Down(FenceRecord {
        attachment_uid: uid(&attachment.metadata).to_owned(),
        epoch,
        dpu_uid: dpu.uid().to_owned(),
        boot_id: fence.map(|f| f.boot_id.clone()).or_else(|| dpu.boot_id().map(str::to_owned)),
        proof,
        at: Time(o.site.now),
    }))
}

/// Of the hold on its volume. A disk that is only read has none, and epoch 1.
fn epoch_of(o: &Observed<'_>, attachment: &DiskAttachment) -> Option<u64> {
    if attachment.spec.read_only {
        return Some(1);
    }
    let own = uid(&attachment.metadata);
    let is_own = |hold: &VolumeHold| hold.spec.holder.as_ref().is_some_and(|holder| holder.attachment_uid == own);
    o.holds.iter().find(|hold| is_own(hold)).map(|hold| hold.spec.epoch)
}
