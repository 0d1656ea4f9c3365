//! What one DPU is told.

use super::{is_machine, is_pod, label};
use crate::index::IndexKey;
use crate::objects::Objects;
use crate::work::Work;
use crate::world::{Kind, World};
use api::attachment::OwnerReference;
use api::{DiskAttachment, Dpu, NicAttachment, labels};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher;

impl Kind for DiskAttachment {
    fn index(&self) -> Vec<IndexKey> {
        vec![IndexKey::owner(&self.spec.owner.uid), IndexKey::names::<Dpu>("", &self.spec.dpu_name)]
    }

    fn wake(&self, world: &World) {
        world.of_owner(&self.spec.owner);
        world.dpu_that_leaves(&self.spec.dpu_name);
    }
}

impl Kind for NicAttachment {
    fn index(&self) -> Vec<IndexKey> {
        let owners = [&self.spec.owner.uid, &self.spec.vnic_uid].map(|uid| IndexKey::owner(uid));
        owners.into_iter().chain([IndexKey::names::<Dpu>("", &self.spec.dpu_name)]).collect()
    }

    fn wake(&self, world: &World) {
        world.of_owner(&self.spec.owner);
        world.dpu_that_leaves(&self.spec.dpu_name);
        let namespace = self.spec.owner.namespace.clone().unwrap_or_default();
        world.look(Work::VNic, (namespace, self.spec.vnic_name.clone()));
    }
}

/// Holder pods. Those that ask for NICs are [`super::NetworkedPod`]s; no other pod is watched.
impl Kind for Pod {
    fn watched(objects: &Objects, _: &str) -> (Api<Self>, watcher::Config) {
        let holders = watcher::Config::default().labels(&crate::holder_pods::selector());
        (Api::all(objects.client.clone()), holders)
    }

    fn index(&self) -> Vec<IndexKey> {
        label(&self.metadata, labels::MACHINE_UID).map(IndexKey::Owner).into_iter().collect()
    }

    fn wake(&self, world: &World) {
        label(&self.metadata, labels::MACHINE_UID).iter().for_each(|uid| world.of_machine(uid));
    }
}

impl World {
    fn of_owner(&self, owner: &OwnerReference) {
        match owner {
            machine if is_machine(machine) => self.of_machine(&machine.uid),
            pod if is_pod(pod) => self.of_pod(&pod.uid),
            image => self.of_image(&image.uid),
        }
    }
}
