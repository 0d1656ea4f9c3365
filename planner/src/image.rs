//! One golden image: volume, import by a DPU's agent, snapshot. Clones start from the snapshot.
//!
//! An import is a disk without a host: the same hold, grant and release as a machine's disk (docs/design/fencing.md), so
//! nothing writes behind a driver's back. Its steps use the machine's actions where they are the same.

use crate::machine::observed::{ClaimSeen, DpuSeen, SnapshotSeen, VolumeSeen, name, uid};
use crate::machine::plan::{Action, CreateVolumeAttachment, TakeHold, Target};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use api::attachment::{
    ClaimIdentity, Connector, Consumer, DiskAttachmentSpec, DiskSlot, ImportSource, OwnerReference, VolumeSource,
};
use api::conditions::{READY, is_true};
use api::dpu::Maintenance;
use api::hold::Holder;
use api::image::ImageImport;
use api::machine::{AttachPhase, DiskBus};
use api::quantity::{bytes, quantity};
use api::{DiskAttachment, VolumeHold, labels, names};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name of the disk in the attachment of an import.
const DISK: &str = "import";

/// Everything that a plan for one image rests on.
#[derive(Debug, Clone)]
pub struct Observed {
    /// MachineImage or ClusterMachineImage.
    pub kind: &'static str,
    pub name: String,
    pub uid: String,
    /// Where its claim and snapshot are: the image's namespace, or the controller's for a cluster image.
    pub namespace: String,
    pub deleting: bool,
    pub spec: ImageImport,
    /// The golden claim, or the user's own.
    pub claim: Option<ClaimSeen>,
    pub snapshot: Option<SnapshotSeen>,
    /// All of them; one is chosen to import.
    pub dpus: Vec<DpuSeen>,
    /// Of this image.
    pub attachment: Option<Arc<DiskAttachment>>,
    pub hold: Option<Arc<VolumeHold>>,
    /// The VolumeAttachment of the golden claim exists.
    pub volume_attachment: bool,
}

/// What one round decided.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub snapshot: Option<CreateSnapshot>,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSnapshot {
    pub namespace: String,
    pub name: String,
    pub claim: String,
    pub class: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub enum Outcome {
    /// Clones can be made.
    Ready {
        snapshot: String,
        size: Option<Quantity>,
        storage_class: Option<String>,
        checksum: Option<String>,
    },
    Not(Reason),
    /// The image is being deleted and has nothing left that must be given back first.
    #[default]
    Gone,
}

impl Observed {
    /// What its claim and snapshot are called. A cluster image shares a namespace with others: the UID tells them apart.
    pub fn object_name(&self) -> String {
        match self.kind {
            "ClusterMachineImage" => format!("{}-{}", self.name, names::short(&self.uid, 8)),
            _ => format!("{}-golden", self.name),
        }
    }

    pub fn claim_name(&self) -> String {
        match &self.spec.source.persistent_volume_claim {
            Some(claim) => claim.claim_name.clone(),
            None => self.object_name(),
        }
    }

    pub fn snapshot_name(&self) -> String {
        match &self.spec.source.snapshot {
            Some(snapshot) => snapshot.name.clone(),
            None => self.object_name(),
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (labels::MANAGED_BY.to_owned(), labels::MANAGED_BY_VALUE.to_owned()),
            (labels::IMAGE_UID.to_owned(), self.uid.clone()),
        ])
    }
}

/// What to do for this image now.
pub fn plan(o: &Observed) -> Plan {
    let mut plan = Plan::default();
    plan.outcome = match bring(o, &mut plan) {
        Ok(outcome) => outcome,
        Err(reason) => Outcome::Not(reason),
    };
    plan
}

fn bring(o: &Observed, plan: &mut Plan) -> Result<Outcome, Reason> {
    if o.deleting {
        end_import(o, plan)?;
        return Ok(Outcome::Gone);
    }
    if o.spec.source.http.is_some() && o.snapshot.is_none() {
        import(o, plan)?;
    }
    end_import(o, plan)?;
    let snapshot = o.snapshot_name();
    match &o.snapshot {
        Some(seen) if seen.ready => Ok(Outcome::Ready {
            snapshot,
            size: seen.restore_size_bytes.map(quantity).or_else(|| o.spec.size.clone()),
            storage_class: o.spec.storage_class_name.clone().or_else(|| claim_class(o)),
            checksum: o.spec.source.http.as_ref().map(|http| http.checksum.clone()),
        }),
        Some(SnapshotSeen { error: Some(message), .. }) => {
            Err(Failed::SnapshotFailed { snapshot, message: message.clone() }.into())
        }
        Some(_) => Err(Waiting::SnapshotNotReady { snapshot }.into()),
        None if o.spec.source.snapshot.is_some() => Err(Blocked::SnapshotMissing { snapshot }.into()),
        None => {
            bound(o)?;
            let class = o.spec.volume_snapshot_class_name.clone();
            let (namespace, claim) = (o.namespace.clone(), o.claim_name());
            plan.snapshot = Some(CreateSnapshot { namespace, name: snapshot.clone(), claim, class });
            Err(Waiting::Creating { what: format!("VolumeSnapshot '{snapshot}'") }.into())
        }
    }
}

fn claim_class(o: &Observed) -> Option<String> {
    o.claim.as_ref()?.claim.spec.as_ref()?.storage_class_name.clone()
}

/// The bound claim and its volume, or what it waits for.
fn bound(o: &Observed) -> Result<(&ClaimSeen, &VolumeSeen), Reason> {
    let claim = o.claim_name();
    let Some(seen) = &o.claim else {
        return Err(Blocked::ClaimMissing { claim }.into());
    };
    let spec = seen.claim.spec.as_ref();
    if spec.and_then(|s| s.volume_mode.as_deref()) != Some("Block") {
        return Err(Blocked::ClaimNotBlock { claim }.into());
    }
    if seen.claim.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Bound") {
        let class = spec.and_then(|s| s.storage_class_name.clone()).unwrap_or_else(|| "(default)".to_owned());
        let message = seen.event.clone().unwrap_or_else(|| "its provisioner has not answered yet".to_owned());
        return Err(Waiting::ClaimPending { claim, class, message }.into());
    }
    if seen.not_csi {
        return Err(Blocked::VolumeNotCsi { claim }.into());
    }
    let volume = seen.volume.as_ref().ok_or(Waiting::Creating { what: format!("the volume of '{claim}'") })?;
    Ok((seen, volume))
}

/// `Ok`: everything is written, verified and synced.
fn import(o: &Observed, plan: &mut Plan) -> Result<(), Reason> {
    if o.claim.is_none() {
        plan.actions.push(Action::CreateClaim(Box::new(golden_claim(o))));
        return Err(Waiting::Creating { what: format!("PersistentVolumeClaim '{}'", o.claim_name()) }.into());
    }
    let (claim, volume) = bound(o)?;
    let Some(attachment) = &o.attachment else {
        // No attachment and no hold of ours that has been given back: not begun. Otherwise the import is over.
        if o.hold.as_ref().is_some_and(|hold| hold.spec.epoch > 0 && hold.spec.holder.is_none()) {
            return Ok(());
        }
        let dpu = choose(o, volume)?;
        plan.actions.push(Action::CreateDiskAttachment(Box::new(attachment(o, dpu, claim, volume))));
        return Err(Waiting::Creating { what: "the attachment of the import".to_owned() }.into());
    };
    let status = attachment.status.as_ref();
    if attachment.metadata.deletion_timestamp.is_some()
        || status.and_then(|s| s.import.as_ref()).is_some_and(|i| i.done)
    {
        return Ok(());
    }
    let dpu = attachment.spec.dpu_name.clone();
    if attachment.spec.grant.is_some() {
        let what = format!("image '{}'", o.name);
        let said = status.and_then(|s| s.conditions.iter().find(|c| c.status == "False" && !c.message.is_empty()));
        let message = said.map(|c| c.message.clone()).unwrap_or_default();
        if status.is_some_and(|s| s.phase == AttachPhase::Failed) {
            return Err(Failed::AttachFailed { what, dpu, message }.into());
        }
        let written = status.and_then(|s| s.import.as_ref()).map(|i| i.bytes_written).unwrap_or_default();
        let message = format!(" ({} MiB written) {message}", written >> 20);
        return Err(Waiting::Attaching { what, dpu, message: message.trim_end().to_owned() }.into());
    }
    grant(o, attachment, claim, volume, plan)
}

/// Steps 5 and 6 of docs/design/fencing.md.
fn grant(
    o: &Observed,
    attachment: &DiskAttachment,
    claim: &ClaimSeen,
    volume: &VolumeSeen,
    plan: &mut Plan,
) -> Result<(), Reason> {
    let claim_name = o.claim_name();
    let holder = o.hold.as_ref().and_then(|hold| hold.spec.holder.as_ref());
    let ours = holder.is_some_and(|holder| holder.attachment_uid == uid(&attachment.metadata));
    if let (Some(holder), false) = (holder, ours) {
        let by = format!("attachment '{}' on Dpu '{}'", holder.attachment_name, holder.dpu_name);
        return Err(Waiting::VolumeHeld { claim: claim_name, by }.into());
    }
    let volume_attachment = names::volume_attachment(uid(&claim.claim.metadata));
    let old = o.hold.as_ref().map(|hold| &hold.spec);
    if !ours {
        let dpu = o.dpus.iter().find(|dpu| dpu.name() == attachment.spec.dpu_name);
        plan.actions.push(Action::TakeHold(TakeHold {
            name: volume.hold_name(),
            driver: volume.driver.clone(),
            volume_handle: volume.handle.clone(),
            persistent_volume_name: volume.name.clone(),
            volume_attachment,
            holder: Holder {
                attachment_uid: uid(&attachment.metadata).to_owned(),
                attachment_namespace: attachment.metadata.namespace.clone().unwrap_or_default(),
                attachment_name: name(&attachment.metadata).to_owned(),
                dpu_uid: dpu.map(|dpu| dpu.uid().to_owned()).unwrap_or_default(),
                dpu_name: attachment.spec.dpu_name.clone(),
            },
            resource_version: o.hold.as_ref().and_then(|hold| hold.metadata.resource_version.clone()),
            epoch: old.map(|spec| spec.epoch).unwrap_or_default() + 1,
            fences: old.map(|spec| spec.fences.clone()).unwrap_or_default(),
        }));
        return Err(Waiting::Creating { what: format!("the hold on the volume of '{claim_name}'") }.into());
    }
    if !o.volume_attachment {
        plan.actions.push(Action::CreateVolumeAttachment(CreateVolumeAttachment {
            name: volume_attachment,
            node: attachment.spec.dpu_name.clone(),
            persistent_volume_name: volume.name.clone(),
        }));
        return Err(Waiting::Creating { what: format!("the VolumeAttachment of '{claim_name}'") }.into());
    }
    let epoch = old.map(|spec| spec.epoch).unwrap_or_default();
    plan.actions.push(Action::GrantDisk { target: target(&attachment.metadata), epoch, seed: None });
    Err(Waiting::Creating { what: "the grant of the import".to_owned() }.into())
}

/// Steps 8 to 10: attachment released, then the connector's claim and the hold. `Ok`: nothing is left of the import.
fn end_import(o: &Observed, plan: &mut Plan) -> Result<(), Reason> {
    if let Some(attachment) = &o.attachment {
        let dpu = attachment.spec.dpu_name.clone();
        if attachment.metadata.deletion_timestamp.is_none() || !attachment.spec.release {
            plan.actions.push(Action::ReleaseDisk { target: target(&attachment.metadata) });
        } else if attachment.spec.grant.is_none() {
            plan.actions.push(Action::AbandonDisk { target: target(&attachment.metadata), hold: None, fence: None });
        } else if o.dpus.iter().any(|seen| seen.name() == dpu && seen.silent) {
            return Err(Waiting::DpuSilent { dpu }.into());
        }
        return Err(Waiting::Detaching { what: format!("image '{}'", o.name), dpu }.into());
    }
    let held = o.hold.as_ref().and_then(|hold| hold.spec.holder.clone().map(|holder| (hold, holder)));
    if let (Some((hold, holder)), Some(claim)) = (held, &o.claim)
        && holder.attachment_name == attachment_name(o)
    {
        plan.actions.push(Action::FreeVolume {
            hold: name(&hold.metadata).to_owned(),
            holder,
            volume_attachment: names::volume_attachment(uid(&claim.claim.metadata)),
        });
        return Err(Waiting::VolumeReleasing { volume: hold.spec.volume_handle.clone() }.into());
    }
    Ok(())
}

fn target(meta: &ObjectMeta) -> Target {
    Target {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: name(meta).to_owned(),
        uid: uid(meta).to_owned(),
    }
}

fn golden_claim(o: &Observed) -> PersistentVolumeClaim {
    let size = o.spec.size.clone().unwrap_or_else(|| quantity(0));
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(o.claim_name()),
            namespace: Some(o.namespace.clone()),
            labels: Some(o.labels()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            volume_mode: Some("Block".to_owned()),
            storage_class_name: o.spec.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), size)])),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// The first, by name, that is approved, answers and understands the driver.
fn choose<'a>(o: &'a Observed, volume: &VolumeSeen) -> Result<&'a DpuSeen, Reason> {
    let serves = |dpu: &&DpuSeen| {
        let status = dpu.dpu.status.clone().unwrap_or_default();
        dpu.dpu.spec.approved
            && dpu.dpu.spec.maintenance == Maintenance::None
            && !dpu.silent
            && status.namespace.is_some()
            && is_true(&status.conditions, READY)
            && status.connectors.iter().any(|c| c.driver == volume.driver)
    };
    o.dpus.iter().filter(serves).min_by_key(|dpu| dpu.name()).ok_or_else(|| {
        let message = format!("none that is approved and ready connects volumes of CSI driver '{}'", volume.driver);
        Waiting::DpuNotReady { dpu: "(any)".to_owned(), message }.into()
    })
}

fn attachment_name(o: &Observed) -> String {
    names::attachment(&o.uid, &o.name, DISK)
}

fn attachment(o: &Observed, dpu: &DpuSeen, claim: &ClaimSeen, volume: &VolumeSeen) -> DiskAttachment {
    let meta = &claim.claim.metadata;
    let import = o.spec.source.http.as_ref();
    let capacity = claim.claim.status.as_ref().and_then(|s| s.capacity.as_ref()?.get("storage").cloned());
    let spec = DiskAttachmentSpec {
        owner: OwnerReference {
            kind: o.kind.to_owned(),
            namespace: Some(o.namespace.clone()),
            name: o.name.clone(),
            uid: o.uid.clone(),
        },
        dpu_name: dpu.name().to_owned(),
        disk_name: DISK.to_owned(),
        consumer: Consumer::Import,
        volume: Some(VolumeSource {
            driver: volume.driver.clone(),
            volume_handle: volume.handle.clone(),
            attributes: volume.attributes.clone(),
            persistent_volume_name: volume.name.clone(),
            claim: ClaimIdentity { namespace: o.namespace.clone(), name: o.claim_name(), uid: uid(meta).to_owned() },
            connector: Connector::Native,
        }),
        seed_secret_name: None,
        import: import.map(|http| ImportSource { url: http.url.clone(), checksum: http.checksum.clone() }),
        bus: DiskBus::NVMe,
        slot: DiskSlot::HotPlug,
        serial: names::serial(uid(meta)),
        uuid: uid(meta).to_owned(),
        read_only: false,
        size: capacity.or_else(|| o.spec.size.clone()).filter(|size| bytes(size).is_some()),
        grant: None,
        release: false,
    };
    let mut attachment = DiskAttachment::new(&attachment_name(o), spec);
    attachment.metadata.namespace = dpu.namespace().map(str::to_owned);
    attachment.metadata.labels = Some(o.labels());
    attachment.metadata.finalizers = Some(vec![labels::FINALIZER_EXPOSED.to_owned()]);
    attachment
}
