//! Who may write a volume: steps 3, 5, 10 and 14 of docs/design/fencing.md.

use super::claim::Host;
use super::draft::Draft;
use super::observed::{DpuSeen, Observed, annotation, label, name, uid};
use super::plan::{Action, TakeHold};
use super::volumes::Bound;
use super::{attach, down, fencing, holder_pod};
use crate::reason::{Reason, Waiting};
use api::hold::{FenceRecord, Holder};
use api::{DiskAttachment, VolumeHold, labels};
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Steps 3 and 6: a pod or a VolumeAttachment of somebody else, by name.
pub(super) fn other_user(o: &Observed, bound: Bound<'_>) -> Option<String> {
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
fn is_for_a_holder_pod(o: &Observed, va: &VolumeAttachment) -> bool {
    let volume = va.spec.source.persistent_volume_name.as_deref();
    let held = o.holds.values().any(|hold| {
        hold.spec.persistent_volume_name.as_deref() == volume
            && annotation(&hold.metadata, labels::HOLDER_POD).is_some()
            && hold.spec.holder.as_ref().is_some_and(|holder| holder.dpu_name == va.spec.node_name)
    });
    let made = |attachment: &Arc<DiskAttachment>| {
        attachment.spec.dpu_name == va.spec.node_name
            && attachment.spec.volume.as_ref().map(|of| of.persistent_volume_name.as_str()) == volume
            && holder_pod::is_made(o, attachment)
    };
    held || o.disk_attachments.iter().any(made)
}

/// Step 5. The epoch, once the hold is this attachment's.
pub(super) fn take(
    o: &Observed,
    host: Host<'_>,
    attachment: &DiskAttachment,
    bound: Bound<'_>,
    draft: &mut Draft,
) -> Result<u64, Reason> {
    let claim = bound.claim_name().to_owned();
    let hold_name = bound.volume.hold_name();
    let hold = o.holds.get(&hold_name);
    if let Some(holder) = hold.and_then(|hold| hold.spec.holder.as_ref()) {
        if holder.attachment_uid == uid(&attachment.metadata) {
            return Ok(hold.map(|hold| hold.spec.epoch).unwrap_or_default());
        }
        let by = format!("attachment '{}' on Dpu '{}'", holder.attachment_name, holder.dpu_name);
        return Err(Waiting::VolumeHeld { claim, by }.into());
    }
    if let Some(by) = other_user(o, bound) {
        return Err(Waiting::VolumeInUse { claim, by }.into());
    }
    let old = hold.map(|hold| &hold.spec);
    draft.act(Action::TakeHold(TakeHold {
        name: hold_name,
        driver: bound.volume.driver.clone(),
        volume_handle: bound.volume.handle.clone(),
        persistent_volume_name: bound.volume.name.clone(),
        volume_attachment: match holder_pod::is_needed(attachment) {
            true => String::new(),
            false => attach::volume_attachment_name(o, false, uid(&bound.claim.claim.metadata)),
        },
        holder_pod: holder_pod::of(o, attachment),
        holder: holder(host.dpu, attachment),
        resource_version: hold.and_then(|hold| hold.metadata.resource_version.clone()),
        epoch: old.map(|spec| spec.epoch).unwrap_or_default() + 1,
        fences: old.map(|spec| live_fences(o, &spec.fences)).unwrap_or_default(),
    }));
    Err(Waiting::Creating { what: format!("the hold on the volume of '{claim}'") }.into())
}

fn holder(dpu: &DpuSeen, attachment: &DiskAttachment) -> Holder {
    Holder {
        attachment_uid: uid(&attachment.metadata).to_owned(),
        attachment_namespace: attachment.metadata.namespace.clone().unwrap_or_default(),
        attachment_name: name(&attachment.metadata).to_owned(),
        dpu_uid: dpu.uid().to_owned(),
        dpu_name: dpu.name().to_owned(),
    }
}

/// A fence is lifted once its DPU reports another boot, or, alive, that it presents nothing at all; the newest are kept.
fn live_fences(o: &Observed, fences: &[FenceRecord]) -> Vec<FenceRecord> {
    let lifted = |fence: &FenceRecord| {
        let of_it = o.dpus.iter().find(|dpu| dpu.uid() == fence.dpu_uid);
        of_it.is_some_and(|dpu| dpu.boot_id() != fence.boot_id.as_deref() || fencing::presents_nothing(dpu))
    };
    let live: Vec<FenceRecord> = fences.iter().filter(|fence| !lifted(fence)).cloned().collect();
    live[live.len().saturating_sub(63)..].to_vec()
}

/// Why an attachment that is being taken away cannot be in use any more: never granted, or its DPU is proven down. A holder
/// pod is a use: where nobody answers for it, the proof goes on record while the attachment is there, for by that it ends.
pub(super) fn proof_of_end(o: &Observed, attachment: &DiskAttachment, now: Timestamp) -> Option<Option<FenceRecord>> {
    let seen = down::dpu(o, &attachment.spec.dpu_name);
    let epoch = match &attachment.spec.grant {
        Some(grant) => grant.epoch,
        None if seen.is_some_and(|dpu| dpu.silent) && holder_pod::is_made(o, attachment) => epoch_of(o, attachment)?,
        None => return Some(None),
    };
    let dpu = seen?;
    let proof = down::proof(o, dpu)?;
    let fence = attachment.status.as_ref().and_then(|status| status.fence.as_ref());
    Some(Some(FenceRecord {
        attachment_uid: uid(&attachment.metadata).to_owned(),
        epoch,
        dpu_uid: dpu.uid().to_owned(),
        boot_id: fence.map(|f| f.boot_id.clone()).or_else(|| dpu.boot_id().map(str::to_owned)),
        proof,
        at: Time(now),
    }))
}

/// An agent has let go of a disk, and its DPU went down before kubelet ended the holder pod: what proves that.
fn proof_for_pod(
    o: &Observed,
    hold: &VolumeHold,
    holder: &Holder,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<FenceRecord> {
    annotation(&hold.metadata, labels::HOLDER_POD)?;
    let dpu = down::dpu(o, &holder.dpu_name).filter(|dpu| dpu.uid() == holder.dpu_uid && dpu.silent)?;
    down::watch(o, dpu.name(), now, draft);
    Some(FenceRecord {
        attachment_uid: holder.attachment_uid.clone(),
        epoch: hold.spec.epoch,
        dpu_uid: dpu.uid().to_owned(),
        boot_id: dpu.boot_id().map(str::to_owned),
        proof: down::proof(o, dpu)?,
        at: Time(now),
    })
}

/// Of the hold on its volume. A disk that is only read has none, and epoch 1.
fn epoch_of(o: &Observed, attachment: &DiskAttachment) -> Option<u64> {
    if attachment.spec.read_only {
        return Some(1);
    }
    let own = uid(&attachment.metadata);
    let is_own = |hold: &VolumeHold| hold.spec.holder.as_ref().is_some_and(|holder| holder.attachment_uid == own);
    o.holds.values().find(|hold| is_own(hold)).map(|hold| hold.spec.epoch)
}

/// Step 10 and what follows: gives back every hold, VolumeAttachment and protection of a claim that no attachment needs
/// any more. What is still to be given back, if anything.
pub(super) fn sweep(
    o: &Observed,
    wanted_claims: &BTreeSet<String>,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    let mut pending = None;
    let present: BTreeSet<&str> = o.disk_attachments.iter().map(|a| uid(&a.metadata)).collect();
    let volumes_in_use: BTreeSet<&str> = o
        .disk_attachments
        .iter()
        .filter_map(|a| a.spec.volume.as_ref())
        .map(|v| v.persistent_volume_name.as_str())
        .collect();
    let mut held = BTreeSet::new();
    for hold in o.holds.values().filter(|hold| label(&hold.metadata, labels::MACHINE_UID) == Some(o.uid())) {
        let Some(holder) = hold.spec.holder.as_ref() else { continue };
        held.extend(hold.spec.persistent_volume_name.as_deref());
        if !present.contains(holder.attachment_uid.as_str()) {
            if let Some(reason) = down::back_on(o, hold, holder, now, draft) {
                pending.get_or_insert(reason);
                continue;
            }
            let volume_attachment = annotation(&hold.metadata, labels::VOLUME_ATTACHMENT).unwrap_or_default();
            let fence = proof_for_pod(o, hold, holder, now, draft);
            draft.act(Action::FreeVolume {
                hold: name(&hold.metadata).to_owned(),
                holder: holder.clone(),
                volume_attachment: volume_attachment.to_owned(),
                holder_pod: annotation(&hold.metadata, labels::HOLDER_POD).map(str::to_owned),
                fence,
            });
            let volume = hold.spec.volume_handle.clone();
            pending.get_or_insert(Waiting::VolumeReleasing { volume }.into());
        }
    }
    let ours = |meta| label(meta, labels::MACHINE_UID) == Some(o.uid());
    for va in o.volume_attachments.iter().filter(|va| ours(&va.metadata)) {
        let volume = va.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
        if !volumes_in_use.contains(volume) && !held.contains(volume) {
            draft.act(Action::DeleteVolumeAttachment { name: name(&va.metadata).to_owned() });
            pending.get_or_insert(Waiting::VolumeReleasing { volume: volume.to_owned() }.into());
        }
    }
    for pod in holder_pod::strays(o) {
        let silent = down::dpu(o, &pod.node).filter(|dpu| dpu.silent);
        if silent.is_some() {
            down::watch(o, &pod.node, now, draft);
        }
        let node_is_down = silent.is_some_and(|dpu| down::proof(o, dpu).is_some());
        draft.act(Action::DeleteHolderPod { target: pod.target.clone(), node_is_down });
        pending.get_or_insert(detaching_pod(&pod.target.name));
    }
    for (claim_name, seen) in &o.claims {
        let meta = &seen.claim.metadata;
        let volume = seen.claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        let used = volumes_in_use.contains(volume) || held.contains(volume);
        if super::observed::in_use_by(meta, o.uid()) && !wanted_claims.contains(claim_name) && !used {
            draft.act(Action::UnprotectClaim {
                target: super::volumes::target(meta),
                hold: seen.volume.as_ref().map(|volume| volume.hold_name()),
            });
            pending.get_or_insert(Waiting::VolumeReleasing { volume: volume.to_owned() }.into());
        }
    }
    pending
}

fn detaching_pod(pod: &str) -> Reason {
    Waiting::HolderPodTerminating { pod: pod.to_owned() }.into()
}
