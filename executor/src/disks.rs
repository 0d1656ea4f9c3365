//! The writes of docs/design/fencing.md for disks. What decides is compared and swapped, or read from quorum right here.

use crate::verbs::what;
use crate::writes;
use crate::{Error, Shell, Verbs, forget, found, get, known, list, put, seen};
use crate::{fences, holder_pods};
use api::hold::{FenceProof, FenceRecord, Holder, VolumeHoldSpec};
use api::{BareMetalMachine, DiskAttachment, Limits, VolumeHold, labels};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use planner::machine::plan::Seed;
use planner::meta::{Target, label, name};
use planner::writer::{CreateVolumeAttachment, TakeHold, rests_on_silence};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// *AttachmentIsInert*: no grant.
pub async fn create(c: &impl Shell, attachment: &DiskAttachment) -> Result<(), Error> {
    let owner = attachment.spec.owner.uid.clone();
    let ours = |there: &DiskAttachment| there.spec.owner.uid == owner && there.metadata.deletion_timestamp.is_none();
    writes::create(c, attachment, ours).await.map(drop)
}

/// *HoldIsTakenBySwap*: empty → this holder. A hold that is not there yet is taken by creating it.
pub async fn take_hold(c: &impl Shell, owner_labels: BTreeMap<String, String>, take: &TakeHold) -> Result<(), Error> {
    let spec = VolumeHoldSpec {
        driver: take.driver.clone(),
        volume_handle: take.volume_handle.clone(),
        persistent_volume_name: Some(take.persistent_volume_name.clone()),
        holder: Some(take.holder.clone()),
        epoch: take.epoch,
        fences: take.fences.clone(),
    };
    let volume_attachment = (labels::VOLUME_ATTACHMENT.to_owned(), take.volume_attachment.clone());
    let holder_pod = take.holder_pod.clone().map(|pod| (labels::HOLDER_POD.to_owned(), pod));
    let annotations = Some([volume_attachment].into_iter().chain(holder_pod).collect());
    match &take.resource_version {
        None => {
            let mut hold = VolumeHold::new(&take.name, spec);
            (hold.metadata.labels, hold.metadata.annotations) = (Some(owner_labels), annotations);
            let ours = |there: &VolumeHold| there.spec.holder.as_ref() == Some(&take.holder);
            writes::create(c, &hold, ours).await.map(drop)
        }
        Some(version) => {
            let seen = known::<VolumeHold>(c, "", &take.name);
            let Some(seen) = seen.filter(|seen| seen.metadata.resource_version.as_ref() == Some(version)) else {
                let what = what::<VolumeHold>("patch", &take.name);
                return Err(Error::Conflict {
                    what,
                    message: "the VolumeHold was changed since it was read".to_owned(),
                });
            };
            let mut hold = VolumeHold { spec, ..VolumeHold::clone(&seen) };
            (hold.metadata.labels, hold.metadata.annotations) = (Some(owner_labels), annotations);
            match writes::change(c, &*seen, &hold).await {
                Err(error @ Error::Conflict { .. }) => {
                    refresh(c, &take.name).await?;
                    Err(error)
                }
                result => result.map(drop),
            }
        }
    }
}

/// After a conflict: what the hold says now.
async fn refresh(c: &impl Shell, hold: &str) -> Result<Option<VolumeHold>, Error> {
    let there = found(get::<VolumeHold>(c, "", hold).await)?;
    if let Some(there) = &there {
        put(c, there.clone());
    }
    Ok(there)
}

/// *ConnectorClaimsFirst*: our own VolumeAttachment keeps the PersistentVolume.
pub async fn create_volume_attachment(
    c: &impl Shell,
    owner_labels: BTreeMap<String, String>,
    create: &CreateVolumeAttachment,
) -> Result<(), Error> {
    let attachment = VolumeAttachment {
        metadata: ObjectMeta { name: Some(create.name.clone()), labels: Some(owner_labels), ..ObjectMeta::default() },
        spec: VolumeAttachmentSpec {
            attacher: labels::NATIVE_ATTACHER.to_owned(),
            node_name: create.node.clone(),
            source: VolumeAttachmentSource {
                persistent_volume_name: Some(create.persistent_volume_name.clone()),
                ..VolumeAttachmentSource::default()
            },
        },
        status: None,
    };
    let ours =
        |there: &VolumeAttachment| there.spec == attachment.spec && there.metadata.labels == attachment.metadata.labels;
    writes::create(c, &attachment, ours).await.map(drop)
}

async fn patch(c: &impl Verbs<DiskAttachment>, seen: &DiskAttachment, change: Value) -> Result<DiskAttachment, Error> {
    writes::patch(c, &seen.metadata, change).await
}

/// *GrantIsForOneAttachment*: bound to the UID, so a late one hits nothing.
pub async fn grant(
    c: &impl Shell,
    target: &Target,
    epoch: u64,
    seed: Option<&Seed>,
    holder_pod_uid: Option<&str>,
) -> Result<(), Error> {
    let attachment = seen::<DiskAttachment>(c, target)?;
    if let Some(seed) = seed {
        write_seed(c, attachment.as_ref(), seed).await?;
    }
    fences::admit(c, &attachment, epoch).await?;
    let mut spec = json!({"grant": {"epoch": epoch}});
    if let Some(uid) = holder_pod_uid {
        spec["holderPodUID"] = json!(uid);
    }
    patch(c, &attachment, json!({"spec": spec})).await.map(drop)
}

/// The Secret belongs to the attachment and goes with it.
pub(crate) async fn write_seed<K>(c: &impl Shell, attachment: &K, seed: &Seed) -> Result<(), Error>
where
    K: Resource<DynamicType = ()>,
{
    let meta = attachment.meta();
    let owner = OwnerReference {
        api_version: "metalplane.io/v1alpha1".to_owned(),
        kind: K::kind(&()).into_owned(),
        name: name(meta).to_owned(),
        uid: meta.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let made = ObjectMeta {
        namespace: meta.namespace.clone(),
        labels: meta.labels.clone(),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    put_seed(c, made, seed).await
}

/// `meta` is without a name.
pub(crate) async fn put_seed(c: &impl Shell, meta: ObjectMeta, seed: &Seed) -> Result<(), Error> {
    let data = seed.data.iter().map(|(key, text)| (key.clone(), ByteString(text.clone().into_bytes()))).collect();
    let metadata = ObjectMeta { name: Some(seed.secret_name.clone()), ..meta };
    let secret = Secret { metadata, data: Some(data), ..Secret::default() };
    match Verbs::create(c, &secret).await {
        // Of an attachment or a try before this one, or of a write whose answer was lost.
        Err(Error::AlreadyExists { .. }) => {
            let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
            let there = get::<Secret>(c, namespace, &seed.secret_name).await?;
            let mut wanted = there.clone();
            wanted.metadata.labels = secret.metadata.labels;
            wanted.metadata.owner_references = secret.metadata.owner_references;
            wanted.data = secret.data;
            writes::change(c, &there, &wanted).await.map(drop)
        }
        result => result.map(drop),
    }
}

pub async fn resize(c: &impl Shell, target: &Target, size: &Quantity) -> Result<(), Error> {
    let attachment = seen::<DiskAttachment>(c, target)?;
    patch(c, &attachment, json!({"spec": {"size": size}})).await.map(drop)
}

/// The whole of it: a limit that is not named has to go.
pub async fn limit(c: &impl Shell, target: &Target, limits: &Limits) -> Result<(), Error> {
    let attachment = seen::<DiskAttachment>(c, target)?;
    let before = attachment.spec.qos.unwrap_or_default();
    let gone = before.iter().map(|(name, _)| (name.to_owned(), Value::Null));
    let kept = limits.iter().map(|(name, limit)| (name.to_owned(), json!(limit)));
    let change = if limits.is_empty() { Value::Null } else { gone.chain(kept).collect() };
    patch(c, &attachment, json!({"spec": {"qos": change}})).await.map(drop)
}

/// `release`, then delete.
pub async fn release(c: &impl Shell, target: &Target) -> Result<(), Error> {
    let mut attachment = DiskAttachment::clone(&*seen(c, target)?);
    if !attachment.spec.release {
        attachment = patch(c, &attachment, json!({"spec": {"release": true}})).await?;
    }
    if attachment.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    writes::delete::<DiskAttachment>(c, &attachment.metadata, false).await
}

/// *ProofGoesOnRecord*: the proof into the record, then the finalizer of the attachment that nobody answers for any more.
pub async fn abandon(
    c: &impl Shell,
    target: &Target,
    hold: Option<&str>,
    fence: Option<&FenceRecord>,
) -> Result<(), Error> {
    let attachment = seen::<DiskAttachment>(c, target)?;
    if rests_on_silence(attachment.spec.grant.is_some(), fence) {
        c.confirm_silent(&target.namespace).await?;
    }
    if let (Some(hold), Some(fence)) = (hold, fence)
        && let Some(there) = refresh(c, hold).await?
        && there.spec.holder.as_ref().is_some_and(|holder| holder.attachment_uid == target.uid)
    {
        record(c, there, fence).await?;
    }
    fences::dismiss_reader(c, &attachment).await;
    let finalizers = writes::finalizers(&attachment.metadata, labels::FINALIZER_EXPOSED, false);
    match patch(c, &attachment, json!({"metadata": {"finalizers": finalizers}})).await {
        Ok(patched) => {
            if patched.metadata.finalizers.iter().flatten().count() == 0 {
                forget::<DiskAttachment>(c, &patched.metadata);
            }
            Ok(())
        }
        Err(Error::NotFound { .. }) => {
            forget::<DiskAttachment>(c, &attachment.metadata);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The proof into the hold's record, once.
async fn record(c: &impl Shell, seen: VolumeHold, fence: &FenceRecord) -> Result<VolumeHold, Error> {
    let same = |old: &FenceRecord| old.attachment_uid == fence.attachment_uid && old.epoch == fence.epoch;
    if seen.spec.fences.iter().any(same) {
        return Ok(seen);
    }
    let mut hold = seen.clone();
    hold.spec.fences.push(fence.clone());
    writes::change(c, &seen, &hold).await
}

/// *GoneIsSeen*, *PodEndIsSeen*, *HoldIsEmptiedBySwap*: the attachment is gone (read from quorum), the connector's own claim goes and is seen gone, then the hold is
/// emptied. Only then may another attachment take it. `fence`: the holder pod's node is proven down.
pub async fn free(
    c: &impl Shell,
    hold: &str,
    holder: &Holder,
    volume_attachment: &str,
    holder_pod: Option<&str>,
    fence: Option<&FenceRecord>,
) -> Result<(), Error> {
    let Some(mut there) = refresh(c, hold).await? else { return Ok(()) };
    if there.spec.holder.as_ref() != Some(holder) {
        return Ok(());
    }
    let (namespace, attachment) = (&holder.attachment_namespace, &holder.attachment_name);
    if let Some(still) = found(get::<DiskAttachment>(c, namespace, attachment).await)?
        && still.metadata.uid.as_deref() == Some(&holder.attachment_uid)
    {
        put(c, still);
        let what = what::<DiskAttachment>("get", attachment);
        return Err(Error::NotConfirmed { what, message: "it is still there".to_owned() });
    }
    if !volume_attachment.is_empty() {
        let owner = [labels::MACHINE_UID, labels::IMAGE_UID]
            .into_iter()
            .find_map(|owner_label| Some((owner_label, label(&there.metadata, owner_label)?)));
        if let Some((owner_label, owner_uid)) = owner {
            delete_volume_attachment(c, volume_attachment, owner_label, owner_uid).await?;
        }
    }
    if let Some(fence) = fence {
        c.confirm_silent(&holder.attachment_namespace).await?;
        there = record(c, there, fence).await?;
    }
    if let Some(pod) = holder_pod {
        let proven = there.spec.fences.iter().any(|fence| is_down(fence, holder));
        holder_pods::see_gone(c, pod, &holder.attachment_uid, proven).await?;
    }
    fences::dismiss(c, &there, holder).await;
    let mut freed = there.clone();
    freed.spec.holder = None;
    writes::change(c, &there, &freed).await.map(drop)
}

/// *DpuIsDown*: the proof that ended this holder: its node is down, kubelet included.
fn is_down(fence: &FenceRecord, holder: &Holder) -> bool {
    fence.attachment_uid == holder.attachment_uid && fence.proof != FenceProof::StorageFenced
}

/// From quorum: the attachment with this UID, which was made for this machine, is gone.
pub async fn confirm_gone(c: &impl Shell, machine_uid: &str, attachment_uid: &str) -> Result<(), Error> {
    let there = list::<DiskAttachment>(c, Some((labels::MACHINE_UID, machine_uid))).await?;
    match there.into_iter().find(|a| a.metadata.uid.as_deref() == Some(attachment_uid)) {
        Some(attachment) => {
            let what = format!("list DiskAttachments of machine {machine_uid}");
            let message = format!("attachment '{}' is there", name(&attachment.metadata));
            put(c, attachment);
            Err(Error::NotConfirmed { what, message })
        }
        None => Ok(()),
    }
}

/// From quorum: no attachment that was made for this owner is for this volume. A cache that is behind the others must not
/// take away what keeps a volume that is in use.
pub async fn confirm_unused(c: &impl Shell, owner_label: &str, owner_uid: &str, volume: &str) -> Result<(), Error> {
    let there = list::<DiskAttachment>(c, Some((owner_label, owner_uid))).await?;
    let of_it = |a: &DiskAttachment| a.spec.volume.as_ref().is_some_and(|v| v.persistent_volume_name == volume);
    match there.into_iter().find(of_it) {
        Some(attachment) => {
            let what = format!("list DiskAttachments of PersistentVolume '{volume}'");
            let message = format!("attachment '{}' is there", name(&attachment.metadata));
            put(c, attachment);
            Err(Error::NotConfirmed { what, message })
        }
        None => Ok(()),
    }
}

/// Deletes our own VolumeAttachment, which no attachment needs any more, and sees it gone.
pub async fn drop_volume_attachment(
    c: &impl Shell,
    name: &str,
    owner_label: &str,
    owner_uid: &str,
) -> Result<(), Error> {
    let there = found(get::<VolumeAttachment>(c, "", name).await)?;
    if let Some(volume) = there.and_then(|there| there.spec.source.persistent_volume_name) {
        confirm_unused(c, owner_label, owner_uid, &volume).await?;
    }
    delete_volume_attachment(c, name, owner_label, owner_uid).await
}

/// Deletes our own VolumeAttachment and sees it gone.
async fn delete_volume_attachment(c: &impl Shell, name: &str, owner_label: &str, owner_uid: &str) -> Result<(), Error> {
    // Read before the answer: one that is made meanwhile has the same name, and must not be forgotten.
    let old = known::<VolumeAttachment>(c, "", name);
    let Some(there) = found(get::<VolumeAttachment>(c, "", name).await)? else {
        if let Some(old) = old {
            forget::<VolumeAttachment>(c, &old.metadata);
        }
        return Ok(());
    };
    let ours = there.spec.attacher == labels::NATIVE_ATTACHER && label(&there.metadata, owner_label) == Some(owner_uid);
    if !ours {
        return Ok(());
    }
    writes::delete::<VolumeAttachment>(c, &there.metadata, false).await?;
    match found(get::<VolumeAttachment>(c, "", name).await)? {
        Some(still) if still.metadata.uid == there.metadata.uid => {
            let what = what::<VolumeAttachment>("get", name);
            Err(Error::NotConfirmed { what, message: "it is still there".to_owned() })
        }
        _ => Ok(()),
    }
}

/// Labels of what is made for a machine.
pub fn own_labels(machine: &BareMetalMachine) -> BTreeMap<String, String> {
    [
        (labels::MANAGED_BY, labels::MANAGED_BY_VALUE.to_owned()),
        (labels::MACHINE, name(&machine.metadata).to_owned()),
        (labels::MACHINE_UID, machine.metadata.uid.clone().unwrap_or_default()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}
