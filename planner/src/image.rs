//! One golden image: a volume filled by an agent, its snapshot, and what clones need to know.
//!
//! Nothing writes behind a driver's back: an import is an attachment without a host, under the same holds and grants as a
//! disk's (docs/design/fencing.md).

mod give_back;
mod importer;
#[cfg(test)]
mod tests;

use crate::machine::observed::{ClaimSeen, DpuSeen, SnapshotSeen, has_finalizer, in_use_by, label, name, uid};
use crate::machine::plan::{CreateVolumeAttachment, SelectNode, TakeHold, Target};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use api::attachment::{
    ClaimIdentity, Connector, Consumer, DiskAttachmentSpec, DiskSlot, ImportSource, OwnerReference, VolumeSource,
};
use api::conditions::{self, ConditionStatus};
use api::hold::{FenceRecord, Holder};
use api::image::{ImageImport, MachineImageStatus};
use api::machine::{AttachPhase, DiskBus};
use api::quantity::{bytes, quantity};
use api::{DiskAttachment, VolumeHold, labels, names};
pub use give_back::leftovers;
use give_back::{detach, free, give_back};
use importer::{importer, late, no_importer};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

const IMPORT: &str = "import";

#[derive(Debug, Clone)]
pub struct Observed {
    pub meta: ObjectMeta,
    /// MachineImage or ClusterMachineImage.
    pub kind: &'static str,
    pub import: ImageImport,
    pub status: MachineImageStatus,
    /// Where the image's volume and snapshot are: its own namespace, or the controller's.
    pub namespace: String,
    /// The volume that is filled, or the user's own claim.
    pub claim: Option<ClaimSeen>,
    pub snapshot: Option<SnapshotSeen>,
    /// All that might import.
    pub dpus: Vec<DpuSeen>,
    /// Of this image, by its UID.
    pub attachments: Vec<Arc<DiskAttachment>>,
    pub hold: Option<Arc<VolumeHold>>,
    pub volume_attachments: Vec<Arc<VolumeAttachment>>,
    /// Snapshots and their contents that were made for this image elsewhere are still there.
    pub imported_elsewhere: bool,
    /// Why nothing may be granted on any DPU now (*TimeWentBack*).
    pub no_grants: Option<Reason>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    AddFinalizer,
    RemoveFinalizer,
    CreateClaim(Box<PersistentVolumeClaim>),
    SelectNode(SelectNode),
    ProtectClaim(Target),
    UnprotectClaim(Target),
    DeleteClaim(Target),
    /// Our own, which no attachment needs any more.
    DeleteVolumeAttachment {
        name: String,
    },
    CreateAttachment(Box<DiskAttachment>),
    TakeHold(TakeHold),
    CreateVolumeAttachment(CreateVolumeAttachment),
    Grant {
        target: Target,
        epoch: u64,
    },
    Release(Target),
    /// Step 14, with the proof for the hold's record; without one it was never granted.
    Abandon {
        target: Target,
        hold: Option<String>,
        fence: Option<FenceRecord>,
    },
    FreeVolume {
        hold: String,
        holder: Holder,
        volume_attachment: String,
    },
    CreateSnapshot {
        name: String,
        claim: String,
    },
    DeleteSnapshots,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub status: MachineImageStatus,
    pub wake_at: Option<Timestamp>,
}

impl Observed {
    fn own_labels(&self) -> BTreeMap<String, String> {
        [(labels::MANAGED_BY, labels::MANAGED_BY_VALUE.to_owned()), (labels::IMAGE_UID, uid(&self.meta).to_owned())]
            .map(|(key, value)| (key.to_owned(), value))
            .into()
    }

    fn is_import(&self) -> bool {
        self.import.source.http.is_some()
    }
}

/// The claim that is filled, or that the user gave.
pub fn claim_name(kind: &str, image: &str, import: &ImageImport) -> Option<String> {
    match (&import.source.http, &import.source.persistent_volume_claim) {
        (Some(_), _) => Some(names::claim(&prefixed(kind, image), IMPORT)),
        (_, Some(claim)) => Some(claim.claim_name.clone()),
        _ => None,
    }
}

pub fn snapshot_name(kind: &str, image: &str, import: &ImageImport) -> String {
    match &import.source.snapshot {
        Some(snapshot) => snapshot.name.clone(),
        None => names::claim(&prefixed(kind, image), "golden"),
    }
}

/// Both kinds may have their objects in the controller's namespace.
fn prefixed(kind: &str, image: &str) -> String {
    if kind == "ClusterMachineImage" { format!("cluster-{image}") } else { image.to_owned() }
}

pub fn plan(o: &Observed, now: Timestamp) -> Plan {
    let mut actions = Vec::new();
    let result = match (o.meta.deletion_timestamp.is_some(), has_finalizer(&o.meta, labels::FINALIZER_IMAGE)) {
        (true, false) => Err(None),
        (true, true) => Err(delete(o, now, &mut actions)),
        (false, false) => {
            actions.push(Action::AddFinalizer);
            Err(Some(Waiting::Creating { what: "the image's finalizer".to_owned() }.into()))
        }
        (false, true) => bring(o, now, &mut actions).map_err(Some),
    };
    let wake_at = waits(&result, now);
    Plan { actions, status: status(o, result, now), wake_at }
}

/// Neither what a provisioner says nor what a Dpu does is an event of ours.
fn waits(result: &Result<(), Option<Reason>>, now: Timestamp) -> Option<Timestamp> {
    let looks_again = matches!(
        result,
        Err(Some(Reason::Waiting(
            Waiting::ClaimPending { .. }
                | Waiting::ClaimBindsLate { .. }
                | Waiting::DpuSilent { .. }
                | Waiting::DpuNotHeard { .. }
                | Waiting::ExposuresUnknown { .. }
                | Waiting::DpuNotReady { .. },
        )))
    );
    looks_again.then(|| now + jiff::SignedDuration::from_secs(5))
}

fn status(o: &Observed, result: Result<(), Option<Reason>>, now: Timestamp) -> MachineImageStatus {
    let mut status = o.status.clone();
    status.observed_generation = o.meta.generation;
    let name = snapshot_name(o.kind, name(&o.meta), &o.import);
    let claim = o.claim.as_ref().map(|claim| &claim.claim);
    if o.snapshot.is_some() {
        status.snapshot_name = Some(name);
        status.snapshot_namespace = Some(o.namespace.clone());
    }
    if let Some(size) = o.snapshot.as_ref().and_then(|snapshot| snapshot.restore_size_bytes) {
        status.virtual_size = Some(quantity(size));
    }
    let class = claim.and_then(|claim| claim.spec.as_ref()?.storage_class_name.clone());
    status.storage_class_name = class.or(status.storage_class_name).or_else(|| o.import.storage_class_name.clone());
    let imported = o.attachments.iter().find_map(|a| a.status.as_ref()?.import.as_ref()?.checksum.clone());
    status.checksum = imported.or(status.checksum);
    let (ready, reason, message) = match result {
        Ok(()) => (ConditionStatus::True, "Ready", String::new()),
        Err(Some(reason)) => (ConditionStatus::False, reason.name(), reason.told()),
        Err(None) => (ConditionStatus::False, "Deleting", String::new()),
    };
    let generation = o.meta.generation;
    conditions::set(&mut status.conditions, conditions::READY, ready, reason, &message, generation, now);
    status
}

fn bring(o: &Observed, now: Timestamp, actions: &mut Vec<Action>) -> Result<(), Reason> {
    let name = snapshot_name(o.kind, name(&o.meta), &o.import);
    if let Some(snapshot) = &o.snapshot {
        // What was lent for the import is given back in any case.
        let pending = give_back(o, now, actions);
        return match (&snapshot.error, snapshot.ready) {
            (_, true) => pending.map_or(Ok(()), Err),
            (Some(message), false) => Err(Failed::SnapshotFailed { snapshot: name, message: message.clone() }.into()),
            (None, false) => Err(Waiting::SnapshotNotReady { snapshot: name }.into()),
        };
    }
    if o.import.source.snapshot.is_some() {
        return Err(Blocked::SnapshotMissing { snapshot: name }.into());
    }
    let claim = bound_claim(o, now, actions)?;
    if o.is_import() {
        filled(o, claim, now, actions)?;
    }
    let claim_name = crate::machine::observed::name(&claim.claim.metadata).to_owned();
    actions.push(Action::CreateSnapshot { name: name.clone(), claim: claim_name });
    Err(Waiting::Creating { what: format!("VolumeSnapshot '{name}'") }.into())
}

fn bound_claim<'a>(o: &'a Observed, now: Timestamp, actions: &mut Vec<Action>) -> Result<&'a ClaimSeen, Reason> {
    let wanted = claim_name(o.kind, name(&o.meta), &o.import).unwrap_or_default();
    let Some(seen) = &o.claim else {
        if !o.is_import() {
            return Err(Blocked::ClaimMissing { claim: wanted }.into());
        }
        actions.push(Action::CreateClaim(Box::new(new_claim(o, &wanted))));
        return Err(Waiting::Creating { what: format!("PersistentVolumeClaim '{wanted}'") }.into());
    };
    let spec = seen.claim.spec.as_ref();
    if o.is_import() && label(&seen.claim.metadata, labels::IMAGE_UID) != Some(uid(&o.meta)) {
        return Err(Blocked::ClaimNotOurs { claim: wanted }.into());
    }
    if spec.and_then(|spec| spec.volume_mode.as_deref()) != Some("Block") {
        return Err(Blocked::ClaimNotBlock { claim: wanted }.into());
    }
    if seen.claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
        if let Some(reason) = late(o, seen, now, actions) {
            return Err(reason);
        }
        let class = spec.and_then(|spec| spec.storage_class_name.clone()).unwrap_or_else(|| "(default)".to_owned());
        let message = seen.event.clone().unwrap_or_else(|| "its provisioner has not answered yet".to_owned());
        return Err(Waiting::ClaimPending { claim: wanted, class, message }.into());
    }
    if seen.not_csi {
        return Err(Blocked::VolumeNotCsi { claim: wanted }.into());
    }
    Ok(seen)
}

fn new_claim(o: &Observed, claim_name: &str) -> PersistentVolumeClaim {
    let size = o.import.size.as_ref().and_then(bytes).unwrap_or_default();
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(claim_name.to_owned()),
            namespace: Some(o.namespace.clone()),
            labels: Some(o.own_labels()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            volume_mode: Some("Block".to_owned()),
            storage_class_name: o.import.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), quantity(size))].into()),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// The volume holds the image, verified and synced, and nobody can write to it any more.
fn filled(o: &Observed, claim: &ClaimSeen, now: Timestamp, actions: &mut Vec<Action>) -> Result<(), Reason> {
    let done = |a: &Arc<DiskAttachment>| a.status.as_ref().and_then(|s| s.import.as_ref()).is_some_and(|i| i.done);
    let recorded = o.status.checksum.is_some();
    if recorded || o.attachments.iter().any(done) {
        // Recorded in status before the attachment goes: the next round would not know otherwise.
        return match recorded {
            true => give_back(o, now, actions).map_or(Ok(()), Err),
            false => Err(Waiting::Creating { what: "the record of the verified image".to_owned() }.into()),
        };
    }
    let Some(attachment) = o.attachments.first() else {
        // What an import before this one had is given back first.
        return Err(free(o, actions).unwrap_or_else(|| attach(o, claim, actions)));
    };
    let dpu = attachment.spec.dpu_name.clone();
    let down = o.dpus.iter().any(|seen| seen.name() == dpu && seen.is_confirmed_down());
    if attachment.metadata.deletion_timestamp.is_some() || down {
        // It begins anew, on another DPU.
        let detaching = Waiting::Detaching { what: "the import".to_owned(), dpu };
        return Err(detach(o, attachment, now, actions).unwrap_or_else(|| detaching.into()));
    }
    let silent = || {
        let silent = o.dpus.iter().any(|seen| seen.name() == dpu && seen.silent);
        silent.then(|| Waiting::DpuSilent { dpu: dpu.clone() }.into())
    };
    if attachment.spec.grant.is_none() {
        // Nobody reads a grant on a silent DPU now, and one that comes back much later might.
        return Err(o.no_grants.clone().or_else(silent).unwrap_or_else(|| grant(o, claim, attachment, actions)));
    }
    let status = attachment.status.as_ref();
    let what = "the import".to_owned();
    let message = status.and_then(|status| {
        let bad = status.conditions.iter().find(|c| c.status != "True" && !c.message.is_empty())?;
        Some(format!("{}: {}", bad.reason, bad.message))
    });
    if status.is_some_and(|status| status.phase == AttachPhase::Failed) {
        return Err(Failed::AttachFailed { what, dpu, message: message.unwrap_or_default() }.into());
    }
    if let Some(reason) = silent() {
        return Err(reason);
    }
    let written = status.and_then(|status| status.import.as_ref()).map(|i| i.bytes_written).unwrap_or_default();
    let message = format!(": {} MiB written{}", written >> 20, message.map(|m| format!(" ({m})")).unwrap_or_default());
    Err(Waiting::Attaching { what, dpu, message }.into())
}

fn target(meta: &ObjectMeta) -> Target {
    Target {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: name(meta).to_owned(),
        uid: uid(meta).to_owned(),
    }
}

fn attach(o: &Observed, claim: &ClaimSeen, actions: &mut Vec<Action>) -> Reason {
    let claim_name = name(&claim.claim.metadata).to_owned();
    let Some(volume) = &claim.volume else {
        return Waiting::Creating { what: format!("the volume of '{claim_name}'") }.into();
    };
    if !in_use_by(&claim.claim.metadata, uid(&o.meta)) {
        actions.push(Action::ProtectClaim(target(&claim.claim.metadata)));
        return Waiting::Creating { what: format!("the protection of claim '{claim_name}'") }.into();
    }
    let Some((dpu, namespace)) = importer(o, claim, &volume.driver) else {
        return no_importer(o, claim, &volume.driver);
    };
    let http = o.import.source.http.clone();
    let claim_meta = &claim.claim.metadata;
    let spec = DiskAttachmentSpec {
        owner: OwnerReference {
            kind: o.kind.to_owned(),
            namespace: o.meta.namespace.clone(),
            name: name(&o.meta).to_owned(),
            uid: uid(&o.meta).to_owned(),
        },
        dpu_name: dpu.name().to_owned(),
        disk_name: IMPORT.to_owned(),
        consumer: Consumer::Import,
        volume: Some(VolumeSource {
            driver: volume.driver.clone(),
            volume_handle: volume.handle.clone(),
            attributes: volume.attributes.clone(),
            persistent_volume_name: volume.name.clone(),
            claim: ClaimIdentity { namespace: o.namespace.clone(), name: claim_name, uid: uid(claim_meta).to_owned() },
            connector: Connector::Native,
        }),
        seed_secret_name: None,
        import: http.map(|http| ImportSource { url: http.url, checksum: http.checksum }),
        bus: DiskBus::NVMe,
        slot: DiskSlot::HotPlug,
        serial: names::serial(uid(claim_meta)),
        uuid: uid(claim_meta).to_owned(),
        read_only: false,
        size: claim.claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage").cloned()),
        qos: None,
        grant: None,
        holder_pod_uid: None,
        release: false,
    };
    let mut attachment = DiskAttachment::new(&names::attachment(uid(&o.meta), name(&o.meta), IMPORT), spec);
    attachment.metadata.namespace = Some(namespace.to_owned());
    attachment.metadata.labels = Some(o.own_labels());
    attachment.metadata.finalizers = Some(vec![labels::FINALIZER_EXPOSED.to_owned()]);
    actions.push(Action::CreateAttachment(Box::new(attachment)));
    Waiting::Creating { what: "the attachment for the import".to_owned() }.into()
}

fn grant(o: &Observed, claim: &ClaimSeen, attachment: &DiskAttachment, actions: &mut Vec<Action>) -> Reason {
    let what = "the grant of the import".to_owned();
    let claim_name = name(&claim.claim.metadata).to_owned();
    let Some(volume) = &claim.volume else {
        return Waiting::Creating { what }.into();
    };
    let Some(dpu) = o.dpus.iter().find(|dpu| dpu.name() == attachment.spec.dpu_name) else {
        return Waiting::DpuNotReady { dpu: attachment.spec.dpu_name.clone(), message: "it is gone".to_owned() }.into();
    };
    let volume_attachment = names::volume_attachment(uid(&claim.claim.metadata));
    match o.hold.as_ref().and_then(|hold| hold.spec.holder.as_ref().map(|holder| (hold, holder))) {
        None => {
            let old = o.hold.as_ref();
            actions.push(Action::TakeHold(TakeHold {
                name: volume.hold_name(),
                driver: volume.driver.clone(),
                volume_handle: volume.handle.clone(),
                persistent_volume_name: volume.name.clone(),
                volume_attachment,
                holder_pod: None,
                holder: Holder {
                    attachment_uid: uid(&attachment.metadata).to_owned(),
                    attachment_namespace: attachment.metadata.namespace.clone().unwrap_or_default(),
                    attachment_name: name(&attachment.metadata).to_owned(),
                    dpu_uid: dpu.uid().to_owned(),
                    dpu_name: dpu.name().to_owned(),
                },
                resource_version: old.and_then(|hold| hold.metadata.resource_version.clone()),
                epoch: old.map(|hold| hold.spec.epoch).unwrap_or_default() + 1,
                fences: old.map(|hold| hold.spec.fences.clone()).unwrap_or_default(),
            }));
        }
        Some((_, holder)) if holder.attachment_uid != uid(&attachment.metadata) => {
            let by = format!("attachment '{}' on Dpu '{}'", holder.attachment_name, holder.dpu_name);
            return Waiting::VolumeHeld { claim: claim_name, by }.into();
        }
        Some((hold, _)) => match o.volume_attachments.iter().any(|va| name(&va.metadata) == volume_attachment) {
            false => actions.push(Action::CreateVolumeAttachment(CreateVolumeAttachment {
                name: volume_attachment,
                node: dpu.name().to_owned(),
                persistent_volume_name: volume.name.clone(),
            })),
            true => actions.push(Action::Grant { target: target(&attachment.metadata), epoch: hold.spec.epoch }),
        },
    }
    Waiting::Creating { what }.into()
}

fn delete(o: &Observed, now: Timestamp, actions: &mut Vec<Action>) -> Option<Reason> {
    if let Some(reason) = give_back(o, now, actions) {
        return Some(reason);
    }
    let own_snapshot = o.snapshot.is_some() && o.import.source.snapshot.is_none();
    if own_snapshot || o.imported_elsewhere {
        actions.push(Action::DeleteSnapshots);
        return Some(Waiting::Deleting { what: "the VolumeSnapshots of the image".to_owned() }.into());
    }
    if o.is_import()
        && let Some(claim) = &o.claim
        && label(&claim.claim.metadata, labels::IMAGE_UID) == Some(uid(&o.meta))
        && claim.claim.metadata.deletion_timestamp.is_none()
    {
        actions.push(Action::DeleteClaim(target(&claim.claim.metadata)));
        return Some(Waiting::Deleting { what: "the volume of the image".to_owned() }.into());
    }
    actions.push(Action::RemoveFinalizer);
    None
}
