//! The connector's own claim on a volume: a VolumeAttachment of ours, or the holder pod by which kubelet connects the volume. It is
//! made after the hold is taken and before the grant, and is gone before the hold is emptied.

use super::{Action, CreateVolumeAttachment, Observed, Owner, Sink};
use crate::about::About;
use crate::meta::{name, uid};
use crate::observed::{Bound, DpuSeen, HolderPodSeen};
use crate::reason::{Reason, Waiting};
use api::attachment::Connector;
use api::{DiskAttachment, names};

/// Our own VolumeAttachment keeps the PersistentVolume, for as long as the volume is attached; `None`: it is there. Where kubelet
/// connects, the holder pod does.
pub(crate) fn keep(
    o: &Observed<'_>,
    dpu: &DpuSeen,
    attachment: &DiskAttachment,
    bound: Bound<'_>,
    sink: &mut dyn Sink,
) -> Option<Reason> {
    if is_pod(attachment) {
        return None;
    }
    let wanted = volume_attachment(o.owner, attachment.spec.read_only, uid(&bound.claim.claim.metadata));
    if o.volume_attachments.iter().any(|va| name(&va.metadata) == wanted) {
        return None;
    }
    sink.act(Action::CreateVolumeAttachment(CreateVolumeAttachment {
        name: wanted,
        node: dpu.name().to_owned(),
        persistent_volume_name: bound.volume.name.clone(),
    }));
    Some(Waiting::Creating { what: About::VolumeAttachment(bound.claim_name().to_owned()) }.into())
}

/// A volume that is only read has one for each reader.
pub(super) fn volume_attachment(owner: Owner<'_>, read_only: bool, claim_uid: &str) -> String {
    let name = names::volume_attachment(claim_uid);
    if read_only { format!("{name}-{}", names::short(owner.uid(), 10)) } else { name }
}

/// Kubelet connects it.
pub(crate) fn is_pod(attachment: &DiskAttachment) -> bool {
    attachment.spec.volume.as_ref().is_some_and(|volume| volume.connector == Connector::Kubelet)
}

pub(crate) fn pod_name(attachment: &DiskAttachment) -> String {
    names::holder_pod(uid(&attachment.metadata))
}

pub(crate) fn pod<'a>(pods: &'a [HolderPodSeen], attachment: &DiskAttachment) -> Option<&'a HolderPodSeen> {
    let name = pod_name(attachment);
    pods.iter().find(|pod| pod.target.name == name)
}

/// Only its kubelet can bring it further, whatever state it is in.
pub(crate) fn pod_is_made(pods: &[HolderPodSeen], attachment: &DiskAttachment) -> bool {
    is_pod(attachment) && pod(pods, attachment).is_some()
}

/// The hold's record of it: `namespace/name`.
pub(super) fn pod_of_hold(owner: Owner<'_>, attachment: &DiskAttachment) -> Option<String> {
    is_pod(attachment).then(|| format!("{}/{}", owner.namespace(), pod_name(attachment)))
}

/// Those of the owner that no attachment needs any more.
pub(super) fn orphaned_pods<'a>(o: &'a Observed<'_>) -> impl Iterator<Item = &'a HolderPodSeen> {
    let needed = |pod: &&HolderPodSeen| o.attachments.iter().any(|a| uid(&a.metadata) == pod.attachment_uid);
    let held = |pod: &&HolderPodSeen| {
        let mut holders = o.holds.iter().filter_map(|hold| hold.spec.holder.as_ref());
        holders.any(|holder| holder.attachment_uid == pod.attachment_uid)
    };
    // One that is held goes when its hold is emptied, in that order.
    o.holder_pods.iter().filter(move |pod| !needed(pod) && !held(pod))
}
