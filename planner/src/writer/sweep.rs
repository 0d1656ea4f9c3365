//! What no attachment needs any more is released: holds, the connectors' claims on volumes, the protection of claims.

use super::{Action, FreeVolume, Observed, Sink, claim, down};
use crate::meta::{annotation, in_use_by, name, target, uid};
use crate::reason::{Reason, Waiting};
use api::hold::{FenceRecord, Holder};
use api::{VolumeHold, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeSet;

/// `wanted`: the claims that stay protected. What is still to be released, if anything.
pub(crate) fn sweep(o: &Observed<'_>, wanted: &BTreeSet<String>, sink: &mut dyn Sink) -> Option<Reason> {
    let attached = o.attachments.iter().filter_map(|a| a.spec.volume.as_ref());
    let mut used: BTreeSet<&str> = attached.map(|volume| volume.persistent_volume_name.as_str()).collect();
    let holds = holds(o, &mut used, sink);
    let volume_attachments = volume_attachments(o, &used, sink);
    let pods = holder_pods(o, sink);
    let claims = claims(o, wanted, &used, sink);
    holds.or(volume_attachments).or(pods).or(claims)
}

/// `used` gains the volumes that are still held.
fn holds<'a>(o: &Observed<'a>, used: &mut BTreeSet<&'a str>, sink: &mut dyn Sink) -> Option<Reason> {
    let mut pending = None;
    for hold in o.holds.iter().copied().filter(|hold| o.owner.made(&hold.metadata)) {
        let Some(holder) = hold.spec.holder.as_ref() else { continue };
        used.extend(hold.spec.persistent_volume_name.as_deref());
        if o.attachments.iter().any(|a| uid(&a.metadata) == holder.attachment_uid) {
            continue;
        }
        if let Some(reason) = o.site.back_on(hold, holder, sink) {
            pending.get_or_insert(reason);
            continue;
        }
        let fence = proof_for_pod(o, hold, holder, sink);
        sink.act(Action::FreeVolume(FreeVolume {
            hold: name(&hold.metadata).to_owned(),
            holder: holder.clone(),
            volume_attachment: annotation(&hold.metadata, labels::VOLUME_ATTACHMENT).unwrap_or_default().to_owned(),
            holder_pod: annotation(&hold.metadata, labels::HOLDER_POD).map(str::to_owned),
            fence,
        }));
        let volume = hold.spec.volume_handle.clone();
        pending.get_or_insert(Waiting::VolumeReleasing { volume }.into());
    }
    pending
}

/// An agent has detached a disk, and its DPU went down before kubelet ended the holder pod: what proves that.
fn proof_for_pod(o: &Observed<'_>, hold: &VolumeHold, holder: &Holder, sink: &mut dyn Sink) -> Option<FenceRecord> {
    annotation(&hold.metadata, labels::HOLDER_POD)?;
    let dpu = down::dpu(o.site.dpus, &holder.dpu_name).filter(|dpu| dpu.uid() == holder.dpu_uid && dpu.silent)?;
    o.site.watch(dpu.name(), sink);
    Some(FenceRecord {
        attachment_uid: holder.attachment_uid.clone(),
        epoch: hold.spec.epoch,
        dpu_uid: dpu.uid().to_owned(),
        boot_id: dpu.boot_id().map(str::to_owned),
        proof: o.site.proof(dpu)?,
        at: Time(o.site.now),
    })
}

fn volume_attachments(o: &Observed<'_>, used: &BTreeSet<&str>, sink: &mut dyn Sink) -> Option<Reason> {
    let mut pending = None;
    for va in o.volume_attachments.iter().filter(|va| o.owner.made(&va.metadata)) {
        let volume = va.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
        if !used.contains(volume) {
            sink.act(Action::DeleteVolumeAttachment { name: name(&va.metadata).to_owned() });
            pending.get_or_insert(Waiting::VolumeReleasing { volume: volume.to_owned() }.into());
        }
    }
    pending
}

fn holder_pods(o: &Observed<'_>, sink: &mut dyn Sink) -> Option<Reason> {
    let mut pending = None;
    for pod in claim::orphaned_pods(o) {
        let silent = down::dpu(o.site.dpus, &pod.node).filter(|dpu| dpu.silent);
        if silent.is_some() {
            o.site.watch(&pod.node, sink);
        }
        let node_is_down = silent.is_some_and(|dpu| o.site.proof(dpu).is_some());
        sink.act(Action::DeleteHolderPod { target: pod.target.clone(), node_is_down });
        pending.get_or_insert(Waiting::HolderPodTerminating { pod: pod.target.name.clone() }.into());
    }
    pending
}

fn claims(o: &Observed<'_>, wanted: &BTreeSet<String>, used: &BTreeSet<&str>, sink: &mut dyn Sink) -> Option<Reason> {
    let mut pending = None;
    for seen in o.claims.iter().copied() {
        let meta = &seen.claim.metadata;
        let volume = seen.claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        if in_use_by(meta, o.owner.uid()) && !wanted.contains(name(meta)) && !used.contains(volume) {
            let hold = seen.volume.as_ref().map(|volume| volume.hold_name());
            sink.act(Action::UnprotectClaim { target: target(meta), hold });
            pending.get_or_insert(Waiting::VolumeReleasing { volume: volume.to_owned() }.into());
        }
    }
    pending
}
