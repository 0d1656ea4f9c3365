//! Claims, volumes and who holds them.

use super::{label, made_for, namespace_of, owners};
use crate::cache::key;
use crate::index::IndexKey;
use crate::work::Work;
use crate::world::{Kind, World};
use api::{VolumeHold, labels};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment, VolumeAttributesClass};

impl Kind for PersistentVolumeClaim {
    fn index(&self) -> Vec<IndexKey> {
        let volume = self.spec.iter().filter_map(|spec| spec.volume_name.as_deref());
        let class = self.status.iter().filter_map(|s| s.current_volume_attributes_class_name.as_deref());
        let mut all = owners(&self.metadata);
        all.extend(label(&self.metadata, labels::GROUP_SNAPSHOT).map(IndexKey::Owner));
        all.extend(volume.map(|volume| IndexKey::names::<PersistentVolume>("", volume)));
        all.extend(class.map(|class| IndexKey::names::<VolumeAttributesClass>("", class)));
        all
    }

    fn wake(&self, world: &World) {
        let meta = &self.metadata;
        label(meta, labels::MACHINE_UID).iter().for_each(|uid| world.machine_by_uid(uid));
        label(meta, labels::IMAGE_UID).iter().for_each(|uid| world.of_image(uid));
        world.of_users(meta);
        world.operations_with(meta);
        label(meta, labels::GROUP_SNAPSHOT).iter().for_each(|uid| world.snapshot_by_uid(uid));
        // A claim of the user's own is named by the spec only.
        world.machines_that_name::<Self>(namespace_of(meta), meta.name.as_deref().unwrap_or_default());
    }
}

impl Kind for VolumeAttachment {
    fn index(&self) -> Vec<IndexKey> {
        let volume = self.spec.source.persistent_volume_name.iter();
        let volume = volume.map(|volume| IndexKey::names::<PersistentVolume>("", volume));
        volume.chain(made_for(&self.metadata).map(IndexKey::Owner)).collect()
    }

    fn wake(&self, world: &World) {
        world.of_maker(&self.metadata);
        let somebody_elses = made_for(&self.metadata).next().is_none();
        let volume = self.spec.source.persistent_volume_name.as_ref().filter(|_| somebody_elses);
        let Some(volume) = volume else { return };
        // Whoever of ours waits for that volume.
        for ours in world.volume_attachments.by(&IndexKey::names::<PersistentVolume>("", volume)) {
            label(&ours.metadata, labels::MACHINE_UID).iter().for_each(|uid| world.machine_by_uid(uid));
        }
        world.waiting_for_volume(volume);
    }
}

impl Kind for StorageClass {
    /// Whoever waits for a claim looks again every few seconds.
    fn wake(&self, _: &World) {}
}

/// Kubernetes has it since 1.34.
impl Kind for VolumeAttributesClass {
    const OPTIONAL: bool = true;

    fn wake(&self, world: &World) {
        let class = IndexKey::names::<Self>("", self.metadata.name.as_deref().unwrap_or_default());
        world.claims.by(&class).iter().for_each(|claim| claim.wake(world));
    }
}

impl Kind for VolumeHold {
    fn index(&self) -> Vec<IndexKey> {
        made_for(&self.metadata).map(IndexKey::Owner).collect()
    }

    fn wake(&self, world: &World) {
        world.look(Work::Hold, key(&self.metadata));
        world.dpus_with_orphans();
        world.waiting_for_volume(self.spec.persistent_volume_name.as_deref().unwrap_or_default());
        world.of_maker(&self.metadata);
    }
}

impl World {
    /// Machines whose claim is on this volume.
    fn waiting_for_volume(&self, volume: &str) {
        let volume = IndexKey::names::<PersistentVolume>("", volume);
        self.claims.by(&volume).iter().for_each(|claim| claim.wake(self));
    }
}
