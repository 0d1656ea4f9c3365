//! `MachineRestore`: what its plan rests on.

use super::operation::{self, Operation};
use super::snapshot::snapshots;
use crate::Controller;
use crate::cache::{Cache, key};
use crate::error::Error;
use crate::work::Work;
use crate::world::World;
use api::MachineRestore;
use api::verbs::restore::MachineRestoreStatus;
use planner::machine::claim_name;
use planner::machine::observed::uid;
use planner::verbs::restore::Observed;
use planner::verbs::{Plan, Verb};
use runtime::queue::{Key, Next};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Operation for MachineRestore {
    const VERB: Verb = Verb::Restore;
    const WORK: Work = Work::MachineRestore;

    fn cache(world: &World) -> &Arc<Cache<Self>> {
        &world.restores
    }
}

pub(crate) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    operation::reconcile(c, key, plan).await
}

async fn plan(c: &Controller, object: &Arc<MachineRestore>) -> Result<Plan<MachineRestoreStatus>, Error> {
    Ok(planner::verbs::restore::plan(&gather(c, object), crate::clock::now()))
}

fn gather(c: &Controller, object: &Arc<MachineRestore>) -> Observed {
    let (namespace, _) = key(&object.metadata);
    let world = &c.world;
    let machine = world.machines.get(&namespace, &object.spec.machine_name);
    let snapshot = world.machine_snapshots.get(&namespace, &object.spec.snapshot_name);
    let taken = snapshot.iter().flat_map(|snapshot| &snapshot.status).flat_map(|status| &status.disks);
    let recorded = || object.status.iter().flat_map(|status| &status.disks);
    let named = taken.map(|disk| &disk.volume_snapshot_name).chain(recorded().map(|disk| &disk.volume_snapshot_name));
    let snapshots = snapshots(c, &namespace, uid(&object.metadata), named.map(String::as_str));
    let of_machine = machine.iter().flat_map(|m| m.spec.disks.iter().map(|disk| claim_name(m, disk)));
    let of_status = recorded().flat_map(|disk| [disk.claim_name.clone(), disk.previous_claim_name.clone()]);
    let claims: BTreeSet<String> = of_machine.chain(of_status).collect();
    let claims = claims.into_iter().filter_map(|claim| Some((claim.clone(), world.claims.get(&namespace, &claim)?)));
    Observed { claims: claims.collect(), object: object.clone(), machine, snapshot, snapshots }
}
