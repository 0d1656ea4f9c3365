//! Operations on whole machines.

use super::{label, namespace_of, own_uid};
use crate::cache::{Cache, key};
use crate::index::IndexKey;
use crate::work::Work;
use crate::world::{Kind, World};
use api::verbs::{HasPhase, OperationPhase};
use api::{BareMetalMachine, MachineMigration, MachineRestore, MachineSnapshot, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

fn index(meta: &ObjectMeta, machine: &str) -> Vec<IndexKey> {
    let machine = IndexKey::names::<BareMetalMachine>(namespace_of(meta), machine);
    own_uid(meta).into_iter().chain([machine]).collect()
}

impl Kind for MachineSnapshot {
    fn index(&self) -> Vec<IndexKey> {
        index(&self.metadata, &self.spec.machine_name)
    }

    fn wake(&self, world: &World) {
        world.look(Work::MachineSnapshot, key(&self.metadata));
        // Restores that wait for it.
        world.operations_on(namespace_of(&self.metadata), &self.spec.machine_name);
    }
}

impl Kind for MachineRestore {
    fn index(&self) -> Vec<IndexKey> {
        index(&self.metadata, &self.spec.machine_name)
    }

    fn wake(&self, world: &World) {
        world.look(Work::MachineRestore, key(&self.metadata));
    }
}

impl Kind for MachineMigration {
    fn index(&self) -> Vec<IndexKey> {
        index(&self.metadata, &self.spec.machine_name)
    }

    fn wake(&self, world: &World) {
        world.look(Work::MachineMigration, key(&self.metadata));
        // What is over makes room for the next.
        world.look(Work::Machine, (namespace_of(&self.metadata).to_owned(), self.spec.machine_name.clone()));
    }
}

impl World {
    /// What is under way with this machine is looked at again.
    pub(super) fn operations_of(&self, machine: &ObjectMeta) {
        self.operations_on(namespace_of(machine), machine.name.as_deref().unwrap_or_default());
    }

    fn operations_on(&self, namespace: &str, machine: &str) {
        let machine = IndexKey::names::<BareMetalMachine>(namespace, machine);
        self.under_way(Work::MachineSnapshot, &self.machine_snapshots, &machine);
        self.under_way(Work::MachineRestore, &self.restores, &machine);
        self.under_way(Work::MachineMigration, &self.migrations, &machine);
    }

    fn under_way<K: Kind + HasPhase>(&self, work: Work, cache: &Cache<K>, machine: &IndexKey) {
        for object in cache.by(machine).iter().filter(|object| !object.phase().is_over()) {
            self.look(work, key(object.meta()));
        }
    }

    /// Migrations that look for a target, for the inventory has changed.
    pub(super) fn migrations_that_look(&self) {
        for migration in self.migrations.all().iter().filter(|m| m.phase() == OperationPhase::Pending) {
            self.look(Work::MachineMigration, key(&migration.metadata));
        }
    }

    /// MachineSnapshots that are not begun: whether a VolumeGroupSnapshot can be taken of their disks may have changed.
    pub(super) fn snapshots_that_wait(&self) {
        for snapshot in self.machine_snapshots.all().iter().filter(|s| s.phase() == OperationPhase::Pending) {
            self.look(Work::MachineSnapshot, key(&snapshot.metadata));
        }
    }

    pub(super) fn snapshot_by_uid(&self, uid: &str) {
        self.look_at_each(Work::MachineSnapshot, &self.machine_snapshots, &IndexKey::uid(uid));
    }

    /// The operation that something was made for is looked at again.
    pub(super) fn operations_with(&self, meta: &ObjectMeta) {
        let Some(uid) = label(meta, labels::OPERATION_UID).map(IndexKey::Uid) else { return };
        self.look_at_each(Work::MachineSnapshot, &self.machine_snapshots, &uid);
        self.look_at_each(Work::MachineRestore, &self.restores, &uid);
    }
}
