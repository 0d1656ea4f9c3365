//! Operations on whole machines: their watched copies, their queues, and who is looked at again when something changes.

mod migration;
pub(crate) mod operation;
mod restore;
mod snapshot;

use crate::Controller;
use crate::cache::{Cache, key};
use crate::error::{Error, call, found};
use crate::objects::Objects;
use crate::queue::{self, Queue};
use crate::world::{World, spawn};
use api::verbs::{HasPhase, OperationPhase};
use api::{BareMetalMachine, MachineMigration, MachineRestore, MachineSnapshot, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::runtime::watcher;
use operation::Operation;
use planner::verbs::{Verb, lock};
use std::sync::Arc;
use tokio::task::JoinSet;

/// What of the world is about operations.
pub struct Verbs {
    pub snapshots: Arc<Cache<MachineSnapshot>>,
    pub restores: Arc<Cache<MachineRestore>>,
    pub migrations: Arc<Cache<MachineMigration>>,
    queues: [Arc<Queue>; Verb::ALL.len()],
}

/// Words of the index: the UID, and the machine as `namespace/name`.
fn words(meta: &ObjectMeta, machine: &str) -> Vec<String> {
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    meta.uid.iter().cloned().chain([format!("{namespace}/{machine}")]).collect()
}

impl Verbs {
    pub fn new() -> Self {
        Self {
            snapshots: Cache::new(|s| words(&s.metadata, &s.spec.machine_name)),
            restores: Cache::new(|r| words(&r.metadata, &r.spec.machine_name)),
            migrations: Cache::new(|m| words(&m.metadata, &m.spec.machine_name)),
            queues: std::array::from_fn(|_| Arc::default()),
        }
    }

    pub fn queue(&self, verb: Verb) -> &Arc<Queue> {
        &self.queues[verb as usize]
    }

    pub fn is_ready(&self) -> bool {
        self.snapshots.is_ready() && self.restores.is_ready() && self.migrations.is_ready()
    }

    pub async fn wait_ready(&self) {
        self.snapshots.wait_ready().await;
        self.restores.wait_ready().await;
        self.migrations.wait_ready().await;
    }

    pub fn watch(&self, set: &mut JoinSet<()>, world: &Arc<World>, objects: &Objects) {
        let all = watcher::Config::default;
        spawn(set, world, &self.snapshots, Api::all(objects.client.clone()), all(), |w, s: &MachineSnapshot| {
            w.verbs.queue(Verb::Snapshot).add(key(&s.metadata));
            // Restores that wait for it.
            w.verbs.machine_changed(&ObjectMeta { name: Some(s.spec.machine_name.clone()), ..s.metadata.clone() });
        });
        spawn(set, world, &self.restores, Api::all(objects.client.clone()), all(), |w, r: &MachineRestore| {
            w.verbs.queue(Verb::Restore).add(key(&r.metadata));
        });
        spawn(set, world, &self.migrations, Api::all(objects.client.clone()), all(), |w, m: &MachineMigration| {
            w.verbs.queue(Verb::Migration).add(key(&m.metadata));
            // What is over makes room for the next.
            w.queues.machines.add((key(&m.metadata).0, m.spec.machine_name.clone()));
        });
    }

    pub fn migrations_of(&self, namespace: &str, machine: &str) -> Vec<Arc<MachineMigration>> {
        self.migrations.by(&format!("{namespace}/{machine}"))
    }

    /// What is under way with this machine is looked at again.
    pub fn machine_changed(&self, meta: &ObjectMeta) {
        let (namespace, name) = key(meta);
        let word = format!("{namespace}/{name}");
        self.under_way(&self.snapshots, &word);
        self.under_way(&self.restores, &word);
        self.under_way(&self.migrations, &word);
    }

    /// Migrations that look for a target, for the inventory has changed.
    pub fn inventory_changed(&self) {
        for migration in self.migrations.all().iter().filter(|m| m.phase() == OperationPhase::Pending) {
            self.queue(Verb::Migration).add(key(&migration.metadata));
        }
    }

    fn under_way<K: Operation>(&self, cache: &Cache<K>, word: &str) {
        for object in cache.by(word).iter().filter(|object| !object.phase().is_over()) {
            self.queue(K::VERB).add(key(object.meta()));
        }
    }

    /// The operation that something was made for is looked at again.
    pub fn part_changed(&self, meta: &ObjectMeta) {
        let Some(uid) = meta.labels.as_ref().and_then(|labels| labels.get(labels::OPERATION_UID)) else { return };
        for object in self.snapshots.by(uid) {
            self.queue(Verb::Snapshot).add(key(&object.metadata));
        }
        for object in self.restores.by(uid) {
            self.queue(Verb::Restore).add(key(&object.metadata));
        }
    }
}

/// Starts the work on every kind.
pub(crate) fn work(c: &Arc<Controller>, concurrency: usize, tasks: &mut JoinSet<()>) {
    let snapshots = c.clone();
    let queue = c.world.verbs.queue(Verb::Snapshot).clone();
    tasks.spawn(queue::work(queue, concurrency, move |key| snapshot::reconcile(snapshots.clone(), key)));
    let restores = c.clone();
    let queue = c.world.verbs.queue(Verb::Restore).clone();
    tasks.spawn(queue::work(queue, concurrency, move |key| restore::reconcile(restores.clone(), key)));
    let migrations = c.clone();
    let queue = c.world.verbs.queue(Verb::Migration).clone();
    tasks.spawn(queue::work(queue, concurrency, move |key| migration::reconcile(migrations.clone(), key)));
}

/// The operation that has this machine is gone: deleted by somebody who took its finalizer away.
pub(crate) async fn lock_is_void(c: &Controller, machine: &BareMetalMachine) -> Result<bool, Error> {
    let Some(lock) = lock(&machine.metadata) else { return Ok(false) };
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let verbs = &c.world.verbs;
    match lock.verb {
        Verb::Snapshot => is_gone(c, &verbs.snapshots, namespace, &lock.name, &lock.uid).await,
        Verb::Restore => is_gone(c, &verbs.restores, namespace, &lock.name, &lock.uid).await,
        Verb::Migration => is_gone(c, &verbs.migrations, namespace, &lock.name, &lock.uid).await,
    }
}

async fn is_gone<K: Operation>(
    c: &Controller,
    cache: &Cache<K>,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<bool, Error> {
    if !cache.by(uid).is_empty() {
        return Ok(false);
    }
    let what = format!("get {} '{name}'", K::VERB.kind());
    let there = found(call(&what, c.objects.namespaced::<K>(namespace).get(name)).await)?;
    Ok(there.is_none_or(|there| there.meta().uid.as_deref() != Some(uid)))
}
