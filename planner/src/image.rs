//! One golden image: a volume filled by an agent, its snapshot, and what clones need to know.
//!
//! Nothing writes behind a driver's back: an import is an attachment without a host, under the same holds and grants as a
//! disk's (docs/design/fencing.md).

mod draft;
mod give_back;
mod importer;
mod lent;
#[cfg(test)]
mod tests;

pub use crate::late::SelectNode;
pub use draft::{GiveBack, Plan};
pub use give_back::leftovers;
pub use lent::{Leftovers, Lent};

use crate::about::About;
use crate::dpu::not_ready;
use crate::meta::{Target, has_finalizer, in_use_by, label, name, target, uid};
use crate::observed::{Bound, ClaimSeen, DpuSeen, OrphanOn, SnapshotSeen};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use crate::writer::{self, Owner, down};
use api::attachment::{
    ClaimIdentity, Connector, Consumer, DiskAttachmentSpec, DiskSlot, ImportSource, OwnerReference, VolumeSource,
};
use api::image::{HttpSource, ImageImport, MachineImageStatus};
use api::machine::{AttachPhase, DiskBus};
use api::quantity::{bytes, quantity};
use api::{DiskAttachment, labels, names};
use draft::Draft;
use give_back::{free, give_back};
use importer::{importer, late, no_importer};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
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
    pub lent: Lent,
    pub snapshot: Option<SnapshotSeen>,
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
    DeleteClaim(Target),
    CreateAttachment(Box<DiskAttachment>),
    Grant {
        target: Target,
        epoch: u64,
    },
    /// What the one-writer protocol asks for.
    Volume(Box<writer::Action>),
    CreateSnapshot {
        name: String,
        claim: String,
    },
    DeleteSnapshots,
}

impl From<writer::Action> for Action {
    fn from(action: writer::Action) -> Self {
        Self::Volume(Box::new(action))
    }
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

    /// What all of these DPUs report of the claim's volume.
    fn orphans(&self) -> Vec<OrphanOn> {
        let volume = self.claim.as_ref().and_then(|claim| claim.volume.as_ref());
        let reported = |dpu: &DpuSeen| dpu.dpu.status.as_ref().map(|s| s.orphans.clone()).unwrap_or_default();
        let all = self
            .dpus
            .iter()
            .flat_map(|dpu| reported(dpu).into_iter().map(|orphan| OrphanOn { dpu: dpu.clone(), orphan }));
        all.filter(|one| volume.is_some_and(|volume| one.is_of(volume))).collect()
    }

    /// What the one-writer protocol rests on.
    fn writer<'a>(&'a self, orphans: &'a [OrphanOn], now: Timestamp) -> writer::Observed<'a> {
        let namespace = self.meta.namespace.as_deref().unwrap_or_default();
        writer::Observed { orphans, ..self.lent.writer(Owner::Image { uid: uid(&self.meta), namespace }, now) }
    }
}

impl Deref for Observed {
    type Target = Lent;

    fn deref(&self) -> &Lent {
        &self.lent
    }
}

impl DerefMut for Observed {
    fn deref_mut(&mut self) -> &mut Lent {
        &mut self.lent
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
    let mut draft = Draft::default();
    let result = match (o.meta.deletion_timestamp.is_some(), has_finalizer(&o.meta, labels::FINALIZER_IMAGE)) {
        (true, false) => Err(None),
        (true, true) => Err(delete(o, now, &mut draft)),
        (false, false) => {
            draft.act(Action::AddFinalizer);
            Err(Some(Waiting::Creating { what: About::ImageFinalizer }.into()))
        }
        (false, true) => bring(o, now, &mut draft).map_err(Some),
    };
    draft.finish(o, result, now)
}

fn bring(o: &Observed, now: Timestamp, draft: &mut Draft) -> Result<(), Reason> {
    let name = snapshot_name(o.kind, name(&o.meta), &o.import);
    if let Some(snapshot) = &o.snapshot {
        // What was lent for the import is given back in any case.
        let pending = give_back(o, now, draft);
        return match (&snapshot.error, snapshot.ready) {
            (_, true) => pending.map_or(Ok(()), Err),
            (Some(message), false) => Err(Failed::SnapshotFailed { snapshot: name, message: message.clone() }.into()),
            (None, false) => Err(Waiting::SnapshotNotReady { snapshot: name }.into()),
        };
    }
    if o.import.source.snapshot.is_some() {
        return Err(Blocked::SnapshotMissing { snapshot: name }.into());
    }
    let claim = bound_claim(o, now, draft)?;
    if o.is_import() {
        filled(o, claim, now, draft)?;
    }
    let claim_name = crate::machine::observed::name(&claim.claim.metadata).to_owned();
    draft.act(Action::CreateSnapshot { name: name.clone(), claim: claim_name });
    Err(Waiting::Creating { what: About::VolumeSnapshot(name.to_owned()) }.into())
}

fn bound_claim<'a>(o: &'a Observed, now: Timestamp, draft: &mut Draft) -> Result<&'a ClaimSeen, Reason> {
    let wanted = claim_name(o.kind, name(&o.meta), &o.import).unwrap_or_default();
    let Some(seen) = &o.claim else {
        if !o.is_import() {
            return Err(Blocked::ClaimMissing { claim: wanted }.into());
        }
        draft.act(Action::CreateClaim(Box::new(new_claim(o, &wanted))));
        return Err(Waiting::Creating { what: About::Claim(wanted.to_owned()) }.into());
    };
    let spec = seen.claim.spec.as_ref();
    if o.is_import() && label(&seen.claim.metadata, labels::IMAGE_UID) != Some(uid(&o.meta)) {
        return Err(Blocked::ClaimNotOurs { claim: wanted }.into());
    }
    if spec.and_then(|spec| spec.volume_mode.as_deref()) != Some("Block") {
        return Err(Blocked::ClaimNotBlock { claim: wanted }.into());
    }
    if seen.claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
        if let Some(reason) = late(o, seen, now, draft) {
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
fn filled(o: &Observed, claim: &ClaimSeen, now: Timestamp, draft: &mut Draft) -> Result<(), Reason> {
    let done = |a: &Arc<DiskAttachment>| a.status.as_ref().and_then(|s| s.import.as_ref()).is_some_and(|i| i.done);
    let recorded = o.status.checksum.is_some();
    if recorded || o.attachments.iter().any(done) {
        // Recorded in status before the attachment goes: the next round would not know otherwise.
        return match recorded {
            true => give_back(o, now, draft).map_or(Ok(()), Err),
            false => Err(Waiting::Creating { what: About::ImageRecord }.into()),
        };
    }
    let Some(attachment) = o.attachments.first() else {
        // What an import before this one had is given back first.
        return Err(free(o, now, draft).unwrap_or_else(|| attach(o, claim, draft)));
    };
    let dpu = attachment.spec.dpu_name.clone();
    let site = o.site(now);
    let seen = down::dpu(site.dpus, &dpu);
    if attachment.metadata.deletion_timestamp.is_some() || seen.is_some_and(|seen| site.proof(seen).is_some()) {
        // It begins anew, on another DPU.
        return Err(writer::release(&o.writer(&[], now), attachment, draft));
    }
    if attachment.spec.grant.is_none() {
        // Nobody reads a grant on an unresponsive DPU now, and one that comes back much later might.
        let blocked = o.no_grants.clone().or_else(|| site.unresponsive(&dpu));
        return Err(blocked.unwrap_or_else(|| grant(o, claim, attachment, now, draft)));
    }
    let status = attachment.status.as_ref();
    let what = About::Import;
    let message = status.and_then(|status| {
        let bad = status.conditions.iter().find(|c| c.status != "True" && !c.message.is_empty())?;
        Some(format!("{}: {}", bad.reason, bad.message))
    });
    if status.is_some_and(|status| status.phase == AttachPhase::Failed) {
        return Err(Failed::AttachFailed { what, dpu, message: message.unwrap_or_default() }.into());
    }
    if let Some(reason) = site.unresponsive(&dpu) {
        site.watch(&dpu, draft);
        return Err(reason);
    }
    let written = status.and_then(|status| status.import.as_ref()).map(|i| i.bytes_written).unwrap_or_default();
    let message = format!(": {} MiB written{}", written >> 20, message.map(|m| format!(" ({m})")).unwrap_or_default());
    Err(Waiting::Attaching { what, dpu, message }.into())
}

fn attach(o: &Observed, claim: &ClaimSeen, draft: &mut Draft) -> Reason {
    let claim_name = name(&claim.claim.metadata).to_owned();
    let Some(volume) = &claim.volume else {
        return Waiting::Creating { what: About::VolumeOfClaim(claim_name) }.into();
    };
    if !in_use_by(&claim.claim.metadata, uid(&o.meta)) {
        draft.act(Action::ProtectClaim(target(&claim.claim.metadata)));
        return Waiting::Creating { what: About::ClaimProtection(claim_name) }.into();
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
        eraser: None,
        hold_disk: None,
        import: http.map(|HttpSource { url, checksum, ca_bundle, format }| ImportSource {
            url,
            checksum,
            ca_bundle,
            format,
        }),
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
    draft.act(Action::CreateAttachment(Box::new(attachment)));
    Waiting::Creating { what: About::ImportAttachment }.into()
}

/// *OrphanIsNotGranted* and the way to a grant, as for a disk.
fn grant(o: &Observed, claim: &ClaimSeen, attachment: &DiskAttachment, now: Timestamp, draft: &mut Draft) -> Reason {
    let (orphans, dpu_name) = (o.orphans(), &attachment.spec.dpu_name);
    let w = o.writer(&orphans, now);
    let Some(volume) = &claim.volume else { return w.granting(attachment) };
    let Some(dpu) = down::dpu(&o.dpus, dpu_name) else {
        return Waiting::DpuNotReady { dpu: dpu_name.clone(), message: "it does not exist any more".to_owned() }.into();
    };
    if dpu.boot_id().is_none() {
        // What its host has already is known with its agent's first report.
        return not_ready(dpu);
    }
    match writer::admit(&w, dpu, attachment, Bound { claim, volume }, draft) {
        Ok(epoch) => draft.act(Action::Grant { target: target(&attachment.metadata), epoch }),
        Err(reason) => return reason,
    }
    w.granting(attachment)
}

fn delete(o: &Observed, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    if let Some(reason) = give_back(o, now, draft) {
        return Some(reason);
    }
    let own_snapshot = o.snapshot.is_some() && o.import.source.snapshot.is_none();
    if own_snapshot || o.imported_elsewhere {
        draft.act(Action::DeleteSnapshots);
        return Some(Waiting::Deleting { what: About::VolumeSnapshotsOfImage }.into());
    }
    if o.is_import()
        && let Some(claim) = &o.claim
        && label(&claim.claim.metadata, labels::IMAGE_UID) == Some(uid(&o.meta))
        && claim.claim.metadata.deletion_timestamp.is_none()
    {
        draft.act(Action::DeleteClaim(target(&claim.claim.metadata)));
        return Some(Waiting::Deleting { what: About::VolumeOfImage }.into());
    }
    draft.act(Action::RemoveFinalizer);
    None
}
