//! What a machine is installed by: Templates, wherever machines are, and the Workflows of the inventory.

use super::{made_for, namespace_of};
use crate::index::IndexKey;
use crate::objects::Objects;
use crate::world::{Kind, World};
use api::labels;
use api::tinkerbell::{Hardware, Template, Workflow};
use kube::Api;
use kube::runtime::watcher;

impl Kind for Template {
    fn index(&self) -> Vec<IndexKey> {
        made_for(&self.metadata).map(IndexKey::Owner).collect()
    }

    fn wake(&self, world: &World) {
        let meta = &self.metadata;
        world.of_maker(meta);
        world.machines_that_name::<Self>(namespace_of(meta), meta.name.as_deref().unwrap_or_default());
    }
}

impl Kind for Workflow {
    fn watched(objects: &Objects, inventory: &str) -> (Api<Self>, watcher::Config) {
        (objects.namespaced(inventory), watcher::Config::default())
    }

    fn index(&self) -> Vec<IndexKey> {
        let hardware = self.spec.hardware_ref.iter().map(|name| IndexKey::names::<Hardware>("", name));
        made_for(&self.metadata).map(IndexKey::Owner).chain(hardware).collect()
    }

    /// One that is no machine's keeps its server from being claimed while it runs.
    fn wake(&self, world: &World) {
        world.of_maker(&self.metadata);
        if super::label(&self.metadata, labels::MACHINE_UID).is_none() {
            world.machines_without_hardware();
        }
    }
}
