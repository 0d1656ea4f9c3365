//! What was lent for an import is given back: steps 8 to 10 and 13 of docs/design/fencing.md. All of it carries the image's UID, so
//! that it goes when the image is no more, too.

use super::{Action, Observed, Plan, status, target, waits};
use crate::machine::observed::{annotation, in_use_by, label, name, uid};
use crate::reason::{Reason, Waiting};
use api::hold::{FenceProof, FenceRecord};
use api::{DiskAttachment, VolumeHold, labels, names};
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;

/// What an image that is no more has left: a controller that did not know yet that it had been deposed, or a request of one that
/// arrived late, made it after the last look. Claim and snapshot are kept: the finalizer may have been taken away for them.
pub fn leftovers(o: &Observed, now: Timestamp) -> Plan {
    let mut actions = Vec::new();
    let result = give_back(o, now, &mut actions).map_or(Ok(()), |reason| Err(Some(reason)));
    let wake_at = waits(&result, now);
    Plan { actions, status: status(o, result, now), wake_at }
}

/// Steps 8 to 10 for the import; `None`: nothing is lent any more.
pub(super) fn give_back(o: &Observed, now: Timestamp, actions: &mut Vec<Action>) -> Option<Reason> {
    if let Some(attachment) = o.attachments.first() {
        let dpu = attachment.spec.dpu_name.clone();
        let detaching = Waiting::Detaching { what: "the import".to_owned(), dpu };
        return Some(detach(o, attachment, now, actions).unwrap_or_else(|| detaching.into()));
    }
    if let Some(reason) = free(o, actions) {
        return Some(reason);
    }
    let ours = |va: &&Arc<VolumeAttachment>| label(&va.metadata, labels::IMAGE_UID) == Some(uid(&o.meta));
    if let Some(va) = o.volume_attachments.iter().find(ours) {
        actions.push(Action::DeleteVolumeAttachment { name: name(&va.metadata).to_owned() });
        let volume = va.spec.source.persistent_volume_name.clone().unwrap_or_default();
        return Some(Waiting::VolumeReleasing { volume }.into());
    }
    let claim = o.claim.as_ref().filter(|claim| in_use_by(&claim.claim.metadata, uid(&o.meta)))?;
    actions.push(Action::UnprotectClaim(target(&claim.claim.metadata)));
    Some(Waiting::VolumeReleasing { volume: name(&claim.claim.metadata).to_owned() }.into())
}

/// The attachment goes: its agent takes it back, or, where an administrator vouches that the DPU is down, nobody (step 13). A
/// silent agent is said, and waited for.
pub(super) fn detach(
    o: &Observed,
    attachment: &DiskAttachment,
    now: Timestamp,
    actions: &mut Vec<Action>,
) -> Option<Reason> {
    let meta = &attachment.metadata;
    if meta.deletion_timestamp.is_none() || !attachment.spec.release {
        actions.push(Action::Release(target(meta)));
        return None;
    }
    let Some(grant) = attachment.spec.grant else {
        actions.push(Action::Abandon { target: target(meta), hold: None, fence: None });
        return None;
    };
    let dpu = o.dpus.iter().find(|dpu| dpu.name() == attachment.spec.dpu_name).filter(|dpu| dpu.silent)?;
    if !dpu.is_confirmed_down() {
        return Some(Waiting::DpuSilent { dpu: dpu.name().to_owned() }.into());
    }
    let written = attachment.status.as_ref().and_then(|status| status.fence.as_ref());
    let fence = FenceRecord {
        attachment_uid: uid(meta).to_owned(),
        epoch: grant.epoch,
        dpu_uid: dpu.uid().to_owned(),
        boot_id: written.map(|fence| fence.boot_id.clone()).or_else(|| dpu.boot_id().map(str::to_owned)),
        proof: FenceProof::ConfirmedDown,
        at: Time(now),
    };
    let hold = attachment.spec.volume.as_ref().map(|volume| names::hold(&volume.driver, &volume.volume_handle));
    actions.push(Action::Abandon { target: target(meta), hold, fence: Some(fence) });
    None
}

/// A hold of this image that no attachment needs any more; `None`: there is none.
pub(super) fn free(o: &Observed, actions: &mut Vec<Action>) -> Option<Reason> {
    let ours = |hold: &&Arc<VolumeHold>| label(&hold.metadata, labels::IMAGE_UID) == Some(uid(&o.meta));
    if let Some((hold, holder)) = o.hold.as_ref().filter(ours).and_then(|h| Some((h, h.spec.holder.clone()?))) {
        let volume_attachment = annotation(&hold.metadata, labels::VOLUME_ATTACHMENT).unwrap_or_default();
        actions.push(Action::FreeVolume {
            hold: name(&hold.metadata).to_owned(),
            holder,
            volume_attachment: volume_attachment.to_owned(),
        });
        return Some(Waiting::VolumeReleasing { volume: hold.spec.volume_handle.clone() }.into());
    }
    None
}
