//! `MachineMigration`: what its plan rests on.

use super::operation::{self, Operation};
use crate::Controller;
use crate::cache::{Cache, key};
use crate::error::Error;
use crate::machine::gather;
use crate::work::Work;
use crate::world::World;
use api::MachineMigration;
use api::verbs::migration::MachineMigrationStatus;
use planner::verbs::migration::Observed;
use planner::verbs::{Plan, Verb};
use runtime::queue::{Key, Next};
use std::sync::Arc;

impl Operation for MachineMigration {
    const VERB: Verb = Verb::Migration;
    const WORK: Work = Work::MachineMigration;

    fn cache(world: &World) -> &Arc<Cache<Self>> {
        &world.migrations
    }
}

pub(crate) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    operation::reconcile(c, key, plan).await
}

async fn plan(c: &Controller, object: &Arc<MachineMigration>) -> Result<Plan<MachineMigrationStatus>, Error> {
    let by = key(&object.metadata);
    let machine = match c.world.machines.get(&by.0, &object.spec.machine_name) {
        Some(machine) => Some(gather::servers::for_move(c, &by, machine).await?),
        None => None,
    };
    let o = Observed { object: object.clone(), machine };
    Ok(planner::verbs::migration::plan(&o, crate::clock::now()))
}
