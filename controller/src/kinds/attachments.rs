//! What one DPU is told.

use super::{claimed_by, is_image, is_pod, label};
use crate::index::IndexKey;
use crate::objects::Objects;
use crate::work::Work;
use crate::world::{Kind, Namespaces, World};
use api::attachment::OwnerReference;
use api::{DiskAttachment, Dpu, NicAttachment, labels};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher;
use planner::network::pods::worker;

impl Kind for DiskAttachment {
    fn index(&self) -> Vec<IndexKey> {
        vec![IndexKey::owner(&self.spec.owner.uid), IndexKey::names::<Dpu>("", &self.spec.dpu_name)]
    }

    fn wake(&self, world: &World) {
        world.of_owner(&self.spec.owner);
        world.dpu_that_leaves(&self.spec.dpu_name);
        world.server_left(&self.spec.dpu_name);
    }
}

impl Kind for NicAttachment {
    fn index(&self) -> Vec<IndexKey> {
        let owners = [&self.spec.owner.uid, &self.spec.vnic_uid].map(|uid| IndexKey::owner(uid));
        let worker = worker::of(self).map(|uid| IndexKey::Worker(uid.to_owned()));
        owners.into_iter().chain([IndexKey::names::<Dpu>("", &self.spec.dpu_name)]).chain(worker).collect()
    }

    fn wake(&self, world: &World) {
        world.of_owner(&self.spec.owner);
        world.dpu_that_leaves(&self.spec.dpu_name);
        world.server_left(&self.spec.dpu_name);
        // It may wait for this, to give its server back.
        worker::of(self).iter().for_each(|machine| world.of_machine(machine));
        let namespace = self.spec.owner.namespace.clone().unwrap_or_default();
        world.look(Work::VNic, (namespace, self.spec.vnic_name.clone()));
    }
}

/// Holder pods. Those that ask for NICs are [`super::NetworkedPod`]s; no other pod is watched.
impl Kind for Pod {
    fn watched(objects: &Objects, _: &Namespaces) -> (Api<Self>, watcher::Config) {
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
    /// The last that was attached to a server which nobody has claimed may be gone: another machine can have it.
    fn server_left(&self, dpu: &str) {
        let on = IndexKey::names::<Dpu>("", dpu);
        if !self.disks.by(&on).is_empty() || !self.nics.by(&on).is_empty() {
            return;
        }
        let dpu = self.dpus.get("", dpu);
        let server = dpu.iter().flat_map(|dpu| &dpu.spec.hardware_ref).map(|of| IndexKey::Server(of.name.clone()));
        if server.flat_map(|name| self.hardware.by(&name)).any(|hardware| claimed_by(&hardware).is_none()) {
            self.machines_without_hardware();
        }
    }

    /// Who may grant the VNic's attachment now: OVN has the port.
    pub(crate) fn granters_of(&self, vnic_uid: &str) {
        let attachments = self.nics.by(&IndexKey::owner(vnic_uid));
        let awaiting = attachments.iter().filter(|attachment| attachment.spec.grant.is_none());
        awaiting.for_each(|attachment| self.of_owner(&attachment.spec.owner));
    }

    fn of_owner(&self, owner: &OwnerReference) {
        match owner {
            pod if is_pod(pod) => self.of_pod(&pod.uid),
            image if is_image(image) => self.of_image(&image.uid),
            // A Dpu that looks for its boot option is planned as a machine that no longer exists.
            owner => self.of_machine(&owner.uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::dpu::{DpuSpec, HardwareReference};
    use api::labels::CLAIMED_BY;
    use api::tinkerbell::Hardware;
    use serde_json::json;

    fn disk(name: &str) -> DiskAttachment {
        let owner = json!({"kind": "BareMetalMachine", "name": "bm-00", "uid": "m"});
        let spec =
            json!({"owner": owner, "dpuName": "dpu-1", "diskName": "root", "slot": "Boot", "serial": "s", "uuid": "u"});
        let disk = json!({"metadata": {"name": name, "uid": name}, "spec": spec});
        serde_json::from_value(disk).expect("a DiskAttachment")
    }

    /// A Hardware that was deleted and created again under a machine says nothing of that one.
    #[tokio::test(start_paused = true)]
    async fn who_looks_for_a_server_is_woken_once_nothing_is_attached_to_an_unclaimed_one() {
        let (world, machine) = (World::new(0), ("team-a".to_owned(), "bm-01".to_owned()));
        let reference = HardwareReference { name: "server-1".to_owned(), ..Default::default() };
        world.dpus.put(Dpu::new("dpu-1", DpuSpec { hardware_ref: Some(reference), ..Default::default() }));
        let mut hardware = Hardware::default();
        hardware.metadata.name = Some("server-1".to_owned());
        hardware.metadata.annotations = Some([(CLAIMED_BY.to_owned(), "m".to_owned())].into());
        world.hardware.put(hardware.clone());
        world.placement.looks(&machine);
        let woken = || world.queue(Work::Machine).depth();
        disk("a").wake(&world);
        assert_eq!(woken(), 0, "it is claimed");
        hardware.metadata.annotations = None;
        world.hardware.put(hardware);
        world.disks.put(disk("b"));
        disk("a").wake(&world);
        assert_eq!(woken(), 0, "something else is attached");
        world.disks.forget(&disk("b").metadata);
        disk("b").wake(&world);
        assert_eq!(world.queue(Work::Machine).next().await, machine);
    }
}
