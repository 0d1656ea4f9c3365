//! `MachineSnapshot`: what its plan rests on.

use super::operation::{self, Operation};
use crate::Controller;
use crate::cache::{Cache, key};
use crate::error::Error;
use crate::index::IndexKey;
use crate::snapshots::VolumeSnapshot;
use crate::work::Work;
use crate::world::World;
use api::verbs::snapshot::MachineSnapshotStatus;
use api::{MachineSnapshot, labels};
use planner::machine::claim_name;
use planner::machine::observed::{label, name, uid};
use planner::machine::plan::Target;
use planner::verbs::snapshot::{Observed, VolumeSnapshotSeen};
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
    Ok(planner::verbs::snapshot::plan(&gather(c, object), crate::clock::now()))
}

fn gather(c: &Controller, object: &Arc<MachineSnapshot>) -> Observed {
    let (namespace, _) = key(&object.metadata);
    let world = &c.world;
    let machine = world.machines.get(&namespace, &object.spec.machine_name);
    let disks = machine.iter().flat_map(|machine| machine.spec.disks.iter().map(|disk| claim_name(machine, disk)));
    let claims = disks.filter_map(|claim| Some((claim.clone(), world.claims.get(&namespace, &claim)?))).collect();
    let named = object.status.iter().flat_map(|status| &status.disks).map(|disk| disk.volume_snapshot_name.as_str());
    Observed {
        snapshots: snapshots(c, &namespace, uid(&object.metadata), named),
        object: object.clone(),
        machine,
        claims,
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
        target: Target {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: name(meta).to_owned(),
            uid: uid(meta).to_owned(),
        },
        ours: label(meta, labels::OPERATION_UID) == Some(operation),
        deleting: meta.deletion_timestamp.is_some(),
        taken: status.is_some_and(|status| status.creation_time.is_some()),
        ready: status.and_then(|status| status.ready_to_use).unwrap_or_default(),
        error: status.and_then(|status| status.error.as_ref()?.message.clone()),
    }
}
