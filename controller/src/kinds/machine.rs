//! Machines, and who wakes them.

use super::{label, namespace_of, own_uid, shares_mac, users};
use crate::cache::key;
use crate::index::IndexKey;
use crate::snapshots::VolumeSnapshot;
use crate::work::Work;
use crate::world::{Kind, World};
use api::machine::{Disk, ImageKind, Interface};
use api::tinkerbell::{Hardware, Template};
use api::{BareMetalMachine, ClusterMachineImage, Dpu, MachineImage, Subnet, VNic, labels};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::machine::{claim_name, vnic_name};
use planner::network::pods::is_pods_mark;

impl Kind for BareMetalMachine {
    fn index(&self) -> Vec<IndexKey> {
        let namespace = namespace_of(&self.metadata);
        let mut all = vec![IndexKey::namespace(namespace)];
        all.extend(own_uid(&self.metadata));
        all.extend(self.spec.disks.iter().flat_map(|disk| named_by_disk(self, disk)));
        let template = self.spec.boot.workflow.iter().map(|workflow| &workflow.template_name);
        all.extend(template.map(|name| IndexKey::names::<Template>(namespace, name)));
        all.extend(self.spec.interfaces.iter().flat_map(|interface| named_by_interface(self, interface)));
        all.extend(self.spec.node_name.iter().map(|node| IndexKey::names::<Node>("", node)));
        all.extend(installed_on(self).map(|hardware| IndexKey::names::<Hardware>("", hardware)));
        all.extend(shares_mac(
            self.status.iter().flat_map(|status| &status.conditions).map(|told| told.reason.as_str()),
        ));
        all
    }

    fn wake(&self, world: &World) {
        world.look(Work::Machine, key(&self.metadata));
        world.operations_of(&self.metadata);
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        world.of_machine(uid);
        self.spec.node_name.iter().for_each(|node| world.pods_that_name::<Dpu>("", node));
        world.pods_at(uid);
        if installed_on(self).is_some() && !world.has_machine(uid) {
            // The server on which it was installed may be free by that alone, if its Hardware was deleted under it.
            world.machines_without_hardware();
        }
    }
}

/// The server on which a Workflow has installed this machine, or has begun to, until it is released: whatever its Hardware says.
fn installed_on(machine: &BareMetalMachine) -> Option<&String> {
    let status = machine.status.as_ref().filter(|status| status.install.is_some())?;
    status.hardware_name.as_ref()
}

fn named_by_disk(machine: &BareMetalMachine, disk: &Disk) -> Vec<IndexKey> {
    let namespace = namespace_of(&machine.metadata);
    let mut all = vec![IndexKey::names::<PersistentVolumeClaim>(namespace, &claim_name(machine, disk))];
    all.extend(disk.source.image.iter().map(|image| match image.kind {
        ImageKind::MachineImage => IndexKey::names::<MachineImage>(namespace, &image.name),
        ImageKind::ClusterMachineImage => IndexKey::names::<ClusterMachineImage>("", &image.name),
    }));
    all.extend(
        disk.source.snapshot.iter().map(|snapshot| IndexKey::names::<VolumeSnapshot>(namespace, &snapshot.name)),
    );
    all
}

fn named_by_interface(machine: &BareMetalMachine, interface: &Interface) -> Vec<IndexKey> {
    let namespace = namespace_of(&machine.metadata);
    let subnet = interface.subnet.iter().map(|subnet| IndexKey::names::<Subnet>(namespace, subnet));
    subnet.chain([IndexKey::names::<VNic>(namespace, &vnic_name(machine, interface))]).collect()
}

impl World {
    /// The machine with this UID is looked at again.
    pub fn machine_by_uid(&self, uid: &str) {
        for machine in self.machines.by(&IndexKey::uid(uid)) {
            self.look(Work::Machine, key(&machine.metadata));
            self.operations_of(&machine.metadata);
        }
    }

    /// The machine with this UID, or something of it, has changed: it is looked at again, and what it has left if it was deleted.
    pub(super) fn of_machine(&self, uid: &str) {
        match self.has_machine(uid) {
            true => self.machine_by_uid(uid),
            false => self.look(Work::Leftovers, (String::new(), uid.to_owned())),
        }
    }

    pub(crate) fn has_machine(&self, uid: &str) -> bool {
        !self.machines.by(&IndexKey::uid(uid)).is_empty()
    }

    /// Of a machine, an image or a pod, as the labels say.
    pub(super) fn of_maker(&self, meta: &ObjectMeta) {
        label(meta, labels::MACHINE_UID).iter().for_each(|uid| self.of_machine(uid));
        label(meta, labels::IMAGE_UID).iter().for_each(|uid| self.of_image(uid));
        label(meta, labels::POD_UID).iter().for_each(|uid| self.of_pod(uid));
    }

    /// The machines and pods that use a claim or VNic. An image looks at the claim that it made itself.
    pub(super) fn of_users(&self, meta: &ObjectMeta) {
        let image = label(meta, labels::IMAGE_UID);
        for (user, mark) in users(meta).filter(|(user, _)| image.as_deref() != Some(user)) {
            if is_pods_mark(mark) { self.of_pod(user) } else { self.of_machine(user) }
        }
    }

    /// The machines that name this object.
    pub(super) fn machines_that_name<K: kube::Resource<DynamicType = ()>>(&self, namespace: &str, name: &str) {
        self.look_at_each(Work::Machine, &self.machines, &IndexKey::names::<K>(namespace, name));
    }

    /// Those that have no server yet, for the inventory has changed.
    pub(crate) fn machines_without_hardware(&self) {
        self.migrations_that_look();
        self.placement.waiting().into_iter().for_each(|machine| self.look(Work::Machine, machine));
    }
}

impl Kind for Namespace {
    /// Its labels decide which servers its machines may claim, and which ProviderNetworks it may use.
    fn wake(&self, world: &World) {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        world.look_at_each(Work::Machine, &world.machines, &IndexKey::namespace(name));
        world.outside_without_address(&IndexKey::namespace(name));
        world.look_at_each(Work::Subnet, &world.subnets, &IndexKey::namespace(name));
        if let Some(dpu) = label(&self.metadata, labels::DPU) {
            world.look(Work::Dpu, (String::new(), dpu));
        }
    }
}
