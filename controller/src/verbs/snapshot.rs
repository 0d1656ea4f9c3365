//! `MachineSnapshot`: what its plan rests on.

use super::operation::{self, Operation};
use crate::Controller;
use crate::cache::{Cache, key};
use crate::error::Error;
use crate::index::IndexKey;
use crate::snapshots::{VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeSnapshot};
use crate::volumes::Source;
use crate::work::Work;
use crate::world::World;
use api::verbs::snapshot::{Consistency, MachineSnapshotStatus};
use api::{MachineSnapshot, labels};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use planner::machine::claim_name;
use planner::machine::observed::{annotation, label, name, uid};
use planner::meta::target;
use planner::verbs::observed::{GroupClass, GroupSeen, Observed, VolumeSnapshotSeen};
use planner::verbs::{Plan, Verb};
use runtime::queue::{Key, Next};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Operation for MachineSnapshot {
    const VERB: Verb = Verb::Snapshot;
    const WORK: Work = Work::MachineSnapshot;

    fn cache(world: &World) -> &Arc<Cache<Self>> {
        &world.machine_snapshots
    }
}

pub(crate) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    operation::reconcile(c, key, plan).await
}

async fn plan(c: &Controller, object: &Arc<MachineSnapshot>) -> Result<Plan<MachineSnapshotStatus>, Error> {
    Ok(planner::verbs::snapshot::plan(&gather(c, object).await?, crate::clock::now()))
}

async fn gather(c: &Controller, object: &Arc<MachineSnapshot>) -> Result<Observed, Error> {
    let (namespace, own_name) = key(&object.metadata);
    let own_uid = uid(&object.metadata);
    let world = &c.world;
    let machine = world.machines.get(&namespace, &object.spec.machine_name);
    let disks = machine.iter().flat_map(|machine| machine.spec.disks.iter().map(|disk| claim_name(machine, disk)));
    let claims: BTreeMap<_, _> =
        disks.filter_map(|claim| Some((claim.clone(), world.claims.get(&namespace, &claim)?))).collect();
    let recorded = || object.status.iter().flat_map(|status| &status.disks);
    let mut snapshots = snapshots(c, &namespace, own_uid, recorded().map(|disk| disk.volume_snapshot_name.as_str()));
    let group = world.group_snapshots.get(&namespace, &own_name).map(|group| seen_group(&group, own_uid));
    if let Some(group) = &group {
        let members = world.snapshots.by(&IndexKey::owner(&group.target.uid));
        snapshots.extend(members.iter().map(|there| (name(&there.metadata).to_owned(), seen(there, own_uid))));
    }
    let decides = recorded().next().is_none() && object.spec.consistency == Consistency::Machine && claims.len() > 1;
    Ok(Observed {
        drivers: if decides { drivers(c, &claims).await? } else { BTreeMap::new() },
        classes: world.group_classes.all().iter().map(|class| group_class(class)).collect(),
        labelled: labelled(c, own_uid),
        group,
        snapshots,
        object: object.clone(),
        machine,
        claims,
    })
}

/// The CSI driver of each claim's volume, of those that have one.
async fn drivers(
    c: &Controller,
    claims: &BTreeMap<String, Arc<PersistentVolumeClaim>>,
) -> Result<BTreeMap<String, String>, Error> {
    let mut drivers = BTreeMap::new();
    for (name, claim) in claims {
        if let Source::Csi(volume) = c.volumes.of_claim(&c.objects, claim).await? {
            drivers.insert(name.clone(), volume.driver);
        }
    }
    Ok(drivers)
}

fn labelled(c: &Controller, operation: &str) -> Vec<Arc<PersistentVolumeClaim>> {
    let is_labelled =
        |claim: &Arc<PersistentVolumeClaim>| label(&claim.metadata, labels::GROUP_SNAPSHOT) == Some(operation);
    c.world.claims.by(&IndexKey::owner(operation)).into_iter().filter(is_labelled).collect()
}

fn group_class(class: &VolumeGroupSnapshotClass) -> GroupClass {
    let meta = &class.metadata;
    GroupClass {
        name: name(meta).to_owned(),
        driver: class.driver.clone(),
        is_default: annotation(meta, "groupsnapshot.storage.kubernetes.io/is-default-class") == Some("true"),
    }
}

fn seen_group(group: &VolumeGroupSnapshot, operation: &str) -> GroupSeen {
    let meta = &group.metadata;
    let status = group.status.as_ref();
    GroupSeen {
        target: target(meta),
        ours: label(meta, labels::OPERATION_UID) == Some(operation),
        deleting: meta.deletion_timestamp.is_some(),
        bound: status.is_some_and(|status| status.bound_volume_group_snapshot_content_name.is_some()),
        error: status.and_then(|status| status.error.as_ref()?.message.clone()),
    }
}

/// Those that are named, and all that were made for the operation.
pub(super) fn snapshots<'a>(
    c: &Controller,
    namespace: &str,
    operation: &str,
    named: impl Iterator<Item = &'a str>,
) -> BTreeMap<String, VolumeSnapshotSeen> {
    let named = named.filter_map(|name| c.world.snapshots.get(namespace, name));
    let made = c.world.snapshots.by(&IndexKey::owner(operation));
    named.chain(made).map(|there| (name(&there.metadata).to_owned(), seen(&there, operation))).collect()
}

fn seen(snapshot: &VolumeSnapshot, operation: &str) -> VolumeSnapshotSeen {
    let meta = &snapshot.metadata;
    let status = snapshot.status.as_ref();
    VolumeSnapshotSeen {
        target: target(meta),
        ours: label(meta, labels::OPERATION_UID) == Some(operation),
        deleting: meta.deletion_timestamp.is_some(),
        taken: status.is_some_and(|status| status.creation_time.is_some()),
        ready: status.and_then(|status| status.ready_to_use).unwrap_or_default(),
        error: status.and_then(|status| status.error.as_ref()?.message.clone()),
        claim: snapshot.spec.source.persistent_volume_claim_name.clone(),
        group_uid: snapshot.group().map(|group| group.uid.clone()),
    }
}
