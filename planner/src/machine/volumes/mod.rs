//! The claim behind each disk: made from its source, bound, large enough.

pub(super) mod growth;
pub(super) mod limits;

use super::draft::Draft;
use super::named::{claim_name, import_name, is_users_own, own_labels, restored};
use super::observed::{ImageSeen, Observed};
use super::plan::{Action, ImportSnapshot};
use super::situation::Host;
use crate::about::About;
use crate::late;
use crate::meta::{in_use_by, label, name, target};
use crate::observed::Bound;
use crate::reason::{Blocked, Failed, Reason, Waiting};
use api::machine::{Disk, ImageKind, ImageReference};
use api::quantity::{bytes, quantity};
use api::{BareMetalMachine, labels};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedObjectReference, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// How often the events of a pending claim or holder pod are looked at.
pub(super) const PENDING: SignedDuration = SignedDuration::from_secs(5);

/// A claim for a machine, with the content of a snapshot.
pub fn snapshot_claim(
    machine: &BareMetalMachine,
    claim_name: &str,
    size: u64,
    storage_class_name: Option<String>,
    snapshot: &str,
) -> PersistentVolumeClaim {
    claim(machine, claim_name, size, storage_class_name, Some(snapshot.to_owned()))
}

/// The disk's bound claim, or what it waits for. Expanded if the spec asks for more.
pub(super) fn plan<'a>(o: &'a Observed, disk: &Disk, draft: &mut Draft) -> Result<Bound<'a>, Reason> {
    let claim_name = claim_name(&o.machine, disk);
    let users_own = is_users_own(&o.machine, disk);
    let Some(seen) = o.claims.get(&claim_name) else {
        // What a restore put there is not made anew from the first source.
        if users_own || restored(&o.machine, disk).is_some() {
            return Err(Blocked::ClaimMissing { claim: claim_name }.into());
        }
        return Err(create(o, disk, &claim_name, draft));
    };
    let claim = &seen.claim;
    if !users_own && label(&claim.metadata, labels::MACHINE_UID) != Some(o.uid()) {
        return Err(Blocked::ClaimNotOurs { claim: claim_name }.into());
    }
    deleted_in_use(o, disk, claim)?;
    bound(claim, seen.event.as_deref())?;
    if seen.not_csi {
        return Err(Blocked::VolumeNotCsi { claim: claim_name }.into());
    }
    let volume = seen.volume.as_ref().ok_or(Waiting::Creating { what: About::VolumeOfClaim(claim_name.to_owned()) })?;
    if !users_own {
        grow(disk, claim, draft);
        limits::choose(disk, claim, draft);
    }
    Ok(Bound { claim: seen, volume })
}

/// Somebody has deleted the claim of a disk that the machine has. Nothing undoes that: the claim, and with it the volume,
/// stays only for as long as the machine protects it.
fn deleted_in_use(o: &Observed, disk: &Disk, claim: &PersistentVolumeClaim) -> Result<(), Reason> {
    let meta = &claim.metadata;
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    let (Some(volume), Some(_), true) = (volume, &meta.deletion_timestamp, in_use_by(meta, o.uid())) else {
        return Ok(());
    };
    Err(Blocked::ClaimDeletedInUse { claim: name(meta).to_owned(), disk: disk.name.clone(), volume }.into())
}

/// A claim that has its volume, and stays. `event`: what was last said about it.
pub fn bound(claim: &PersistentVolumeClaim, event: Option<&str>) -> Result<(), Reason> {
    let claim_name = name(&claim.metadata).to_owned();
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(Waiting::ClaimBeingDeleted { claim: claim_name }.into());
    }
    let spec = claim.spec.as_ref();
    if spec.and_then(|spec| spec.volume_mode.as_deref()) != Some("Block") {
        return Err(Blocked::ClaimNotBlock { claim: claim_name }.into());
    }
    match claim.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Bound") => Ok(()),
        Some("Lost") => Err(Blocked::ClaimLost { claim: claim_name }.into()),
        _ => {
            let class = spec.and_then(|spec| spec.storage_class_name.clone()).unwrap_or_else(|| "(default)".to_owned());
            let message = event.unwrap_or("its provisioner has not answered yet").to_owned();
            Err(Waiting::ClaimPending { claim: claim_name, class, message }.into())
        }
    }
}

/// What a claim that is not bound waits for; a claim of a late class is told the DPU's node.
pub(super) fn pending(
    o: &Observed,
    host: Host<'_>,
    disk: &Disk,
    reason: Reason,
    now: Timestamp,
    draft: &mut Draft,
) -> Reason {
    if !matches!(reason, Reason::Waiting(Waiting::ClaimPending { .. })) {
        return reason;
    }
    // What its provisioner says is no event of ours.
    draft.wake(now + PENDING);
    let made_by_us = !is_users_own(&o.machine, disk);
    let seen = o.claims.get(&claim_name(&o.machine, disk));
    let Some(late) = seen.and_then(|seen| late::pending(seen, host.dpu.name(), made_by_us, now)) else { return reason };
    if let Some(select) = late.select {
        draft.act(Action::SelectNode(select));
    }
    late.reason
}

/// Asks for the spec's size where it is more than the claim asks for.
fn grow(disk: &Disk, claim: &PersistentVolumeClaim, draft: &mut Draft) {
    let asked = disk.size.as_ref().and_then(bytes);
    if let (Some(asked), Some(requested)) = (asked, requested(claim))
        && asked > requested
    {
        draft.act(Action::ExpandClaim { target: target(&claim.metadata), size: quantity(asked) });
    }
}

fn requested(claim: &PersistentVolumeClaim) -> Option<u64> {
    bytes(claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")?)
}

/// Where a new claim gets its contents and its defaults from.
struct Source {
    snapshot: Option<String>,
    size: Option<u64>,
    storage_class: Option<String>,
}

fn create(o: &Observed, disk: &Disk, claim_name: &str, draft: &mut Draft) -> Reason {
    let source = match source(o, disk, draft) {
        Ok(source) => source,
        Err(reason) => return reason,
    };
    let asked = disk.size.as_ref().and_then(bytes);
    if let (Some(asked), Some(needed)) = (asked, source.size)
        && asked < needed
    {
        return Blocked::VolumeTooSmall {
            disk: disk.name.clone(),
            asked: quantity(asked).0,
            needed: quantity(needed).0,
        }
        .into();
    }
    let Some(size) = asked.or(source.size) else {
        let snapshot = source.snapshot.unwrap_or_default();
        return Waiting::SnapshotNotReady { snapshot }.into();
    };
    let class = disk.storage_class_name.clone().or(source.storage_class);
    let mut made = claim(&o.machine, claim_name, size, class, source.snapshot);
    made.spec.get_or_insert_default().volume_attributes_class_name = disk.volume_attributes_class_name.clone();
    draft.act(Action::CreateClaim(Box::new(made)));
    Waiting::Creating { what: About::Claim(claim_name.to_owned()) }.into()
}

fn claim(
    machine: &BareMetalMachine,
    claim_name: &str,
    size: u64,
    storage_class_name: Option<String>,
    snapshot: Option<String>,
) -> PersistentVolumeClaim {
    let data_source_ref = snapshot.map(|name| TypedObjectReference {
        api_group: Some("snapshot.storage.k8s.io".to_owned()),
        kind: "VolumeSnapshot".to_owned(),
        name,
        namespace: None,
    });
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(claim_name.to_owned()),
            namespace: machine.metadata.namespace.clone(),
            labels: Some(own_labels(machine)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            volume_mode: Some("Block".to_owned()),
            storage_class_name,
            data_source_ref,
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), quantity(size))].into()),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

fn source(o: &Observed, disk: &Disk, draft: &mut Draft) -> Result<Source, Reason> {
    if let Some(image) = &disk.source.image {
        return from_image(o, image, draft);
    }
    if let Some(snapshot) = &disk.source.snapshot {
        let size = ready_snapshot(o, &snapshot.name)?;
        return Ok(Source { snapshot: Some(snapshot.name.clone()), size, storage_class: None });
    }
    Ok(Source { snapshot: None, size: None, storage_class: None })
}

/// The size that a clone has at least.
fn ready_snapshot(o: &Observed, snapshot: &str) -> Result<Option<u64>, Reason> {
    let seen = o.snapshots.get(snapshot).ok_or(Blocked::SnapshotMissing { snapshot: snapshot.to_owned() })?;
    if seen.ready {
        return Ok(seen.restore_size_bytes);
    }
    Err(match &seen.error {
        Some(message) => Failed::SnapshotFailed { snapshot: snapshot.to_owned(), message: message.clone() }.into(),
        None => Waiting::SnapshotNotReady { snapshot: snapshot.to_owned() }.into(),
    })
}

fn from_image(o: &Observed, reference: &ImageReference, draft: &mut Draft) -> Result<Source, Reason> {
    let kind = match reference.kind {
        ImageKind::MachineImage => "MachineImage",
        ImageKind::ClusterMachineImage => "ClusterMachineImage",
    };
    let title = format!("{kind} '{}'", reference.name);
    let key = (reference.kind, reference.name.clone());
    let image = o.images.get(&key).ok_or(Blocked::ImageMissing { image: title })?;
    if !image.ready {
        let why = image.why.clone();
        return Err(Waiting::ImageNotReady { image: reference.name.clone(), why }.into());
    }
    let snapshot = match reference.kind {
        ImageKind::MachineImage => image.snapshot_name.clone(),
        ImageKind::ClusterMachineImage => imported(o, reference, image, draft)?,
    };
    let size = (image.size_bytes > 0).then_some(image.size_bytes);
    Ok(Source { snapshot: Some(snapshot), size, storage_class: image.storage_class.clone() })
}

/// Data sources across namespaces are off: a snapshot in the machine's namespace, of the same content.
fn imported(o: &Observed, reference: &ImageReference, image: &ImageSeen, draft: &mut Draft) -> Result<String, Reason> {
    let name = import_name(&reference.name, &image.uid);
    if o.snapshots.contains_key(&name) {
        return ready_snapshot(o, &name).map(|_| name);
    }
    let content = image.content.clone().ok_or(Waiting::SnapshotNotReady { snapshot: image.snapshot_name.clone() })?;
    draft.act(Action::ImportSnapshot(ImportSnapshot {
        name: name.clone(),
        namespace: o.namespace().to_owned(),
        content,
        image_uid: image.uid.clone(),
    }));
    Err(Waiting::Creating { what: About::VolumeSnapshot(name.to_owned()) }.into())
}
