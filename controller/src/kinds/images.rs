//! Golden images, of either kind, and the VolumeSnapshots and VolumeGroupSnapshots that they and the operations rest on.

use super::{label, namespace_of, own_uid};
use crate::cache::key;
use crate::index::IndexKey;
use crate::snapshots::{VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeSnapshot};
use crate::work::Work;
use crate::world::{Kind, World};
use api::{ClusterMachineImage, MachineImage, labels};

impl Kind for MachineImage {
    fn index(&self) -> Vec<IndexKey> {
        own_uid(&self.metadata).into_iter().collect()
    }

    fn wake(&self, world: &World) {
        let meta = &self.metadata;
        world.of_image(meta.uid.as_deref().unwrap_or_default());
        world.machines_that_name::<Self>(namespace_of(meta), meta.name.as_deref().unwrap_or_default());
    }
}

impl Kind for ClusterMachineImage {
    fn index(&self) -> Vec<IndexKey> {
        own_uid(&self.metadata).into_iter().collect()
    }

    fn wake(&self, world: &World) {
        world.of_image(self.metadata.uid.as_deref().unwrap_or_default());
        world.machines_that_name::<Self>("", self.metadata.name.as_deref().unwrap_or_default());
    }
}

impl Kind for VolumeSnapshot {
    const OPTIONAL: bool = true;

    fn index(&self) -> Vec<IndexKey> {
        let labels = [labels::IMAGE_UID, labels::OPERATION_UID];
        let of_group = self.group().map(|group| group.uid.clone());
        labels.into_iter().filter_map(|name| label(&self.metadata, name)).chain(of_group).map(IndexKey::Owner).collect()
    }

    fn wake(&self, world: &World) {
        let meta = &self.metadata;
        if let Some(image) = label(meta, labels::IMAGE_UID) {
            world.image_by_uid(&image);
            // One of a cluster image that was brought into a machine's namespace.
            for image in world.cluster_images.by(&IndexKey::uid(&image)) {
                world.machines_that_name::<ClusterMachineImage>("", image.metadata.name.as_deref().unwrap_or_default());
            }
        }
        world.operations_with(meta);
        if let Some(group) = self.group() {
            // A MachineSnapshot and its VolumeGroupSnapshot have one name.
            world.look(Work::MachineSnapshot, (namespace_of(meta).to_owned(), group.name.clone()));
        }
        world.machines_that_name::<Self>(namespace_of(meta), meta.name.as_deref().unwrap_or_default());
    }
}

impl Kind for VolumeGroupSnapshot {
    const OPTIONAL: bool = true;

    fn wake(&self, world: &World) {
        world.look(Work::MachineSnapshot, key(&self.metadata));
    }
}

impl Kind for VolumeGroupSnapshotClass {
    const OPTIONAL: bool = true;

    fn wake(&self, world: &World) {
        world.snapshots_that_wait();
    }
}

impl World {
    pub(crate) fn has_image(&self, uid: &str) -> bool {
        let uid = IndexKey::uid(uid);
        !self.images.by(&uid).is_empty() || !self.cluster_images.by(&uid).is_empty()
    }

    fn image_by_uid(&self, uid: &str) {
        let uid = IndexKey::uid(uid);
        self.look_at_each(Work::Image, &self.images, &uid);
        self.look_at_each(Work::Image, &self.cluster_images, &uid);
    }

    /// The image with this UID, or something of it, has changed: it is looked at again, and what it has left if it was deleted.
    pub(super) fn of_image(&self, uid: &str) {
        match self.has_image(uid) {
            true => self.image_by_uid(uid),
            false => self.look(Work::Leftovers, (String::new(), uid.to_owned())),
        }
    }
}
