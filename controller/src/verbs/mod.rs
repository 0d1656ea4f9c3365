//! Operations on whole machines: what each is planned on, and how a plan is carried out.

pub(crate) mod migration;
mod operation;
pub(crate) mod restore;
pub(crate) mod snapshot;

use crate::Controller;
use crate::cache::Cache;
use crate::error::{Error, call, found};
use crate::index::IndexKey;
use api::BareMetalMachine;
use operation::Operation;
use planner::verbs::{Verb, lock};

/// The operation that has this machine is gone: deleted by somebody who took its finalizer away.
pub(crate) async fn lock_is_void(c: &Controller, machine: &BareMetalMachine) -> Result<bool, Error> {
    let Some(lock) = lock(&machine.metadata) else { return Ok(false) };
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let world = &c.world;
    match lock.verb {
        Verb::Snapshot => is_gone(c, &world.machine_snapshots, namespace, &lock.name, &lock.uid).await,
        Verb::Restore => is_gone(c, &world.restores, namespace, &lock.name, &lock.uid).await,
        Verb::Migration => is_gone(c, &world.migrations, namespace, &lock.name, &lock.uid).await,
    }
}

async fn is_gone<K: Operation>(
    c: &Controller,
    cache: &Cache<K>,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<bool, Error> {
    if !cache.by(&IndexKey::uid(uid)).is_empty() {
        return Ok(false);
    }
    let what = format!("get {} '{name}'", K::VERB.kind());
    let there = found(call(&what, c.objects.namespaced::<K>(namespace).get(name)).await)?;
    Ok(there.is_none_or(|there| there.meta().uid.as_deref() != Some(uid)))
}
