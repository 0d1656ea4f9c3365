//! One golden image, of either kind.

use crate::Controller;
use crate::bmc::{Owner, Which};
use crate::clock;
use crate::error::{Error, call};
use crate::index::IndexKey;
use crate::machine::gather as machine_gather;
use crate::objects;
use crate::snapshots::{SnapshotSource, VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotSpec};
use crate::went_back;
use crate::work::Work;
use api::quantity::bytes;
use api::{ClusterMachineImage, MachineImage, labels};
use executor::{claims, disks, volumes};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use planner::host::BmcNeed;
use planner::image::{Action, Lent, Observed, Plan};
use planner::machine::observed::{SnapshotSeen, name, uid};
use runtime::queue::{Key, Next};
use std::collections::BTreeMap;

const ROUNDS: usize = 16;

pub async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let owner = Owner::Image(key.clone());
    for _ in 0..ROUNDS {
        let Some(o) = gather(c, key).await? else {
            c.hosts.needs(&owner, &[]);
            return Ok(Next::Wait);
        };
        let plan = planner::image::plan(&o, clock::now());
        want_bmc(c, &owner, &plan.dpu_bmcs);
        for action in &plan.actions {
            act(c, &o, action).await?;
        }
        let wrote = write(c, key, &o, &plan).await?;
        if plan.actions.is_empty() && !wrote {
            return Ok(Next::at(plan.wake_at));
        }
    }
    c.world.look(Work::Image, key.clone());
    Ok(Next::Wait)
}

/// The BMCs of DPUs whose agents are unresponsive.
pub(crate) fn want_bmc(c: &Controller, owner: &Owner, dpu_bmcs: &BTreeMap<String, BmcNeed>) {
    let dpus = dpu_bmcs.iter().map(|(bmc, need)| (Which::Dpu(bmc.clone()), *need));
    c.hosts.needs(owner, &dpus.collect::<Vec<_>>());
}

async fn gather(c: &Controller, key: &Key) -> Result<Option<Observed>, Error> {
    let world = &c.world;
    let (meta, kind, import, status) = if key.0.is_empty() {
        let Some(image) = world.cluster_images.get("", &key.1) else { return Ok(None) };
        (image.metadata.clone(), "ClusterMachineImage", image.spec.import.clone(), image.status.clone())
    } else {
        let Some(image) = world.images.get(&key.0, &key.1) else { return Ok(None) };
        (image.metadata.clone(), "MachineImage", image.spec.import.clone(), image.status.clone())
    };
    let namespace = if key.0.is_empty() { c.namespace.clone() } else { key.0.clone() };
    let attachments = world.disks.by(&IndexKey::owner(uid(&meta)));
    let asks = import.source.http.is_some() && meta.deletion_timestamp.is_none();
    let mut claim = None;
    if let Some(claim_name) = planner::image::claim_name(kind, name(&meta), &import)
        && let Some(there) = world.claims.get(&namespace, &claim_name)
    {
        claim =
            Some(machine_gather::claim_seen(c, &namespace, &attachments, asks, there, &mut Default::default()).await?);
    }
    let volume = claim.as_ref().and_then(|claim| claim.volume.as_ref());
    let hold = volume.and_then(|volume| world.holds.get("", &volume.hold_name()));
    let volume_attachments = volume
        .map(|volume| world.volume_attachments.by(&IndexKey::names::<PersistentVolume>("", &volume.name)))
        .unwrap_or_default();
    let snapshot_name = planner::image::snapshot_name(kind, name(&meta), &import);
    let snapshot = world.snapshots.get(&namespace, &snapshot_name).map(|snapshot| seen(&snapshot));
    let own = (namespace.as_str(), snapshot_name.as_str());
    let imported_elsewhere =
        world.snapshots.by(&IndexKey::owner(uid(&meta))).iter().any(|snapshot| {
            (snapshot.metadata.namespace.as_deref().unwrap_or_default(), name(&snapshot.metadata)) != own
        });
    let dpus = machine_gather::dpus(c, world.dpus.all()).await?;
    Ok(Some(Observed {
        meta,
        kind,
        import,
        status: status.unwrap_or_default(),
        namespace,
        lent: Lent {
            claim,
            dpus,
            attachments,
            hold,
            volume_attachments,
            fences: c.fences.kinds(),
            fence_problems: c.fences.problems(),
        },
        snapshot,
        imported_elsewhere,
        no_grants: went_back::forbids_grant(c),
    }))
}

fn seen(snapshot: &VolumeSnapshot) -> SnapshotSeen {
    let status = snapshot.status.as_ref();
    SnapshotSeen {
        ready: status.and_then(|status| status.ready_to_use).unwrap_or_default(),
        restore_size_bytes: status.and_then(|status| status.restore_size.as_ref()).and_then(bytes),
        error: status.and_then(|status| status.error.as_ref()?.message.clone()),
    }
}

/// Labels of what is made for an image.
pub(crate) fn own_labels(uid: &str) -> BTreeMap<String, String> {
    [(labels::MANAGED_BY, labels::MANAGED_BY_VALUE), (labels::IMAGE_UID, uid)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

async fn act(c: &Controller, o: &Observed, action: &Action) -> Result<(), Error> {
    match action {
        Action::AddFinalizer => finalizer(c, o, true).await,
        Action::RemoveFinalizer => finalizer(c, o, false).await,
        Action::CreateClaim(claim) => claims::create(c, claim, labels::IMAGE_UID).await,
        Action::SelectNode(select) => claims::select_node(c, select).await,
        Action::ProtectClaim(target) => claims::protect(c, uid(&o.meta), target).await,
        Action::DeleteClaim(target) => claims::delete(c, target).await,
        Action::CreateAttachment(attachment) => disks::create(c, attachment).await,
        Action::Grant { target, epoch } => disks::grant(c, target, *epoch, None, None).await,
        Action::Volume(action) => {
            let owner =
                volumes::Owner { label: labels::IMAGE_UID, uid: uid(&o.meta), labels: own_labels(uid(&o.meta)) };
            volumes::act(c, &owner, action).await
        }
        Action::CreateSnapshot { name, claim } => create_snapshot(c, o, name, claim).await,
        Action::DeleteSnapshots => delete_snapshots(c, o).await,
    }
}

async fn create_snapshot(c: &Controller, o: &Observed, snapshot: &str, claim: &str) -> Result<(), Error> {
    let snapshot = VolumeSnapshot {
        metadata: ObjectMeta {
            name: Some(snapshot.to_owned()),
            namespace: Some(o.namespace.clone()),
            labels: Some(own_labels(uid(&o.meta))),
            ..ObjectMeta::default()
        },
        spec: VolumeSnapshotSpec {
            source: SnapshotSource {
                persistent_volume_claim_name: Some(claim.to_owned()),
                volume_snapshot_content_name: None,
            },
            volume_snapshot_class_name: o.import.volume_snapshot_class_name.clone(),
        },
        status: None,
    };
    let own = uid(&o.meta).to_owned();
    let ours = |there: &VolumeSnapshot| {
        there.metadata.labels.as_ref().and_then(|all| all.get(labels::IMAGE_UID)) == Some(&own)
    };
    objects::create(&c.objects.namespaced(&o.namespace), &c.world.snapshots, &snapshot, ours).await.map(drop)
}

/// All that carry the image's UID, wherever they are; contents that are kept by policy go after their snapshots.
async fn delete_snapshots(c: &Controller, o: &Observed) -> Result<(), Error> {
    for snapshot in c.world.snapshots.by(&IndexKey::owner(uid(&o.meta))) {
        let namespace = snapshot.metadata.namespace.clone().unwrap_or_default();
        let api = c.objects.namespaced::<VolumeSnapshot>(&namespace);
        objects::delete(&api, &c.world.snapshots, &snapshot.metadata, false).await?;
    }
    let api = c.objects.cluster::<VolumeSnapshotContent>();
    let params = ListParams::default().labels(&format!("{}={}", labels::IMAGE_UID, uid(&o.meta)));
    let contents = call("list VolumeSnapshotContents", api.list(&params)).await?;
    let cache = crate::cache::Cache::new(|_| Vec::new());
    for content in contents {
        objects::delete(&api, &cache, &content.metadata, false).await?;
    }
    Ok(())
}

async fn finalizer(c: &Controller, o: &Observed, present: bool) -> Result<(), Error> {
    let (world, finalizer) = (&c.world, labels::FINALIZER_IMAGE);
    if o.kind == "ClusterMachineImage" {
        let api = c.objects.cluster::<ClusterMachineImage>();
        return objects::finalize(&api, &world.cluster_images, &o.meta, finalizer, present).await;
    }
    let api = c.objects.namespaced::<MachineImage>(o.meta.namespace.as_deref().unwrap_or_default());
    objects::finalize(&api, &world.images, &o.meta, finalizer, present).await
}

/// True: something new was written.
async fn write(c: &Controller, key: &Key, o: &Observed, plan: &Plan) -> Result<bool, Error> {
    if plan.status == o.status {
        return Ok(false);
    }
    if o.kind == "ClusterMachineImage" {
        let Some(seen) = c.world.cluster_images.get("", &key.1) else { return Ok(false) };
        let mut image = ClusterMachineImage::clone(&seen);
        image.status = Some(plan.status.clone());
        objects::change_status(&c.objects.cluster(), &c.world.cluster_images, &*seen, &image).await?;
    } else {
        let Some(seen) = c.world.images.get(&key.0, &key.1) else { return Ok(false) };
        let mut image = MachineImage::clone(&seen);
        image.status = Some(plan.status.clone());
        objects::change_status(&c.objects.namespaced(&key.0), &c.world.images, &*seen, &image).await?;
    }
    Ok(true)
}
