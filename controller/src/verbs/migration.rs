//! `MachineMigration`: what its plan rests on.

use super::operation::{self, Operation};
use crate::Controller;
use crate::cache::{Cache, key};
use crate::error::Error;
use crate::machine::gather;
use crate::queue::{Key, Next};
use crate::world::World;
use api::MachineMigration;
use api::verbs::migration::MachineMigrationStatus;
use planner::verbs::migration::Observed;
use planner::verbs::{Plan, Verb};
use std::sync::Arc;

impl Operation for MachineMigration {
    const VERB: Verb = Verb::Migration;

    fn cache(world: &World) -> &Arc<Cache<Self>> {
        &world.verbs.migrations
    }
}

pub(super) async fn reconcile(c: Arc<Controller>, key: Key) -> Next {
    operation::reconcile(&c, "machinemigration", &key, plan).await
}

async fn plan(c: &Controller, object: &Arc<MachineMigration>) -> Result<Plan<MachineMigrationStatus>, Error> {
    let (namespace, _) = key(&object.metadata);
    let machine = match c.world.machines.get(&namespace, &object.spec.machine_name) {
        Some(machine) => Some(gather::for_placement(c, machine).await?),
        None => None,
    };
    let o = Observed { object: object.clone(), machine };
    Ok(planner::verbs::migration::plan(&o, crate::clock::now()))
}
