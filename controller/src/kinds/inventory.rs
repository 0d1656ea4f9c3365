//! What machines run on, and who may claim it.

use super::{namespace_of, shares_mac};
use crate::bmc::of_server;
use crate::cache::key;
use crate::index::IndexKey;
use crate::news::OfDpu;
use crate::objects::Objects;
use crate::work::Work;
use crate::world::{Kind, Namespaces, World};
use api::tinkerbell::{Hardware, Machine};
use api::{Dpu, HardwarePolicy, HardwareReport, labels};
use kube::Api;
use kube::runtime::watcher;
use planner::dpu::went_back::is_asked;
use planner::enrol::is_unapproved;
use planner::network::chassis::reported;
use std::sync::Arc;

pub(crate) fn claimed_by(hardware: &Hardware) -> Option<&String> {
    hardware.metadata.annotations.as_ref()?.get(labels::CLAIMED_BY)
}

fn macs(hardware: &Hardware) -> impl Iterator<Item = &String> {
    hardware.spec.interfaces.iter().filter_map(|interface| interface.dhcp.as_ref()?.mac.as_ref())
}

impl Kind for Hardware {
    fn watched(objects: &Objects, of: &Namespaces) -> (Api<Self>, watcher::Config) {
        (objects.namespaced(&of.inventory), watcher::Config::default())
    }

    fn index(&self) -> Vec<IndexKey> {
        // Of no other kind is a UID that of a machine and of a Job.
        let job = self.metadata.annotations.as_ref().and_then(|all| all.get(labels::JOB));
        let owners = claimed_by(self).into_iter().chain(job).map(|uid| IndexKey::owner(uid));
        let agents = self.spec.agent_id.iter().chain(macs(self)).map(|agent| IndexKey::agent(agent));
        let waits = is_unapproved(self).then_some(IndexKey::Unapproved);
        let bmc = of_server(self).map(|bmc| IndexKey::names::<Machine>("", bmc));
        let unclaimed = claimed_by(self).is_none().then_some(IndexKey::Unclaimed);
        let own = IndexKey::Server(self.metadata.name.clone().unwrap_or_default());
        owners.chain(bmc).chain(agents).chain(waits).chain(unclaimed).chain([own]).collect()
    }

    fn wake(&self, world: &World) {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let own = world.hardware.get(namespace_of(&self.metadata), name);
        // Which BMC is read for a Dpu follows from the Hardware that the Dpu names.
        if world.news.of_hardware(name, own.clone()) {
            world.look_at_each(Work::Dpu, &world.dpus, &IndexKey::names::<Self>("", name));
        }
        of_server(self).into_iter().for_each(|bmc| world.jobs_of(bmc));
        world.workflows_prepared_on(name);
        world.workflows_that_await(self);
        world.those_with_a_mac_of(self);
        // Its report says whether it is approved; other reports may wait for its place, or for its MAC addresses.
        world.enrolment_of(namespace_of(&self.metadata), name);
        world.enrolments_of_strangers();
        let has_other_macs = world.placement.are_news_of_macs(name, own.as_deref());
        let claimer = claimed_by(self);
        if let Some(uid) = claimer {
            world.of_machine(uid);
            world.pods_at(uid);
        }
        // One that is claimed gives nobody a server, but the MAC address that it has no more may be that of a server which is not.
        if claimer.is_none() || has_other_macs {
            world.machines_without_hardware();
        }
    }
}

impl Kind for HardwareReport {
    fn watched(objects: &Objects, of: &Namespaces) -> (Api<Self>, watcher::Config) {
        (objects.namespaced(&of.inventory), watcher::Config::default())
    }

    fn index(&self) -> Vec<IndexKey> {
        let has_hardware = self.metadata.owner_references.iter().flatten().next().is_some();
        let told = self.status.iter().flat_map(|status| &status.conditions).map(|told| told.reason.as_str());
        shares_mac(told).into_iter().chain((!has_hardware).then_some(IndexKey::Unapproved)).collect()
    }

    fn wake(&self, world: &World) {
        world.look(Work::Enrolment, key(&self.metadata));
        // It is named like its Hardware.
        let (namespace, name) = (namespace_of(&self.metadata), self.metadata.name.as_deref().unwrap_or_default());
        if world.placement.are_news_of_disks(name, world.reports.get(namespace, name).as_deref()) {
            world.machines_without_hardware();
        }
        let hardware = world.hardware.get(namespace, name);
        hardware.iter().filter_map(|hardware| claimed_by(hardware)).for_each(|uid| world.machine_by_uid(uid));
        hardware.iter().for_each(|hardware| world.workflows_that_await(hardware));
    }
}

impl Kind for HardwarePolicy {
    fn watched(objects: &Objects, of: &Namespaces) -> (Api<Self>, watcher::Config) {
        (objects.namespaced(&of.inventory), watcher::Config::default())
    }

    fn wake(&self, world: &World) {
        world.machines_without_hardware();
    }
}

impl Kind for Dpu {
    fn index(&self) -> Vec<IndexKey> {
        let hardware = self.spec.hardware_ref.iter().map(|hardware| IndexKey::names::<Hardware>("", &hardware.name));
        let bmc = self.spec.bmc_ref.iter().map(|bmc| IndexKey::names::<Machine>("", &bmc.name));
        let unassigned = self.spec.hardware_ref.is_none().then_some(IndexKey::Unassigned);
        let holds = self.status.as_ref().is_some_and(|status| !status.orphans.is_empty());
        let namespace = self.status.iter().flat_map(|status| &status.namespace).map(|own| IndexKey::namespace(own));
        let chassis = reported(self).map(|chassis| IndexKey::Chassis(chassis.to_owned()));
        let told = [chassis, holds.then_some(IndexKey::HasOrphans), is_asked(self).then_some(IndexKey::AskedForReport)];
        hardware.chain(bmc).chain(unassigned).chain(namespace).chain(told.into_iter().flatten()).collect()
    }

    /// For all but what follows from what the machine on its host has attached: the Dpu itself, that machine, whose ports are there, and
    /// all that still look for a server. That machine also when nothing is presented to the host any more.
    fn wake(&self, world: &World) {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let news = world.news.of_dpu(name, world.dpus.get("", name));
        if news != OfDpu::Nothing {
            world.machines_of_dpu(self);
        }
        if news != OfDpu::Anything {
            return;
        }
        world.look(Work::Dpu, key(&self.metadata));
        world.pods_on(name);
        world.pods_of_machine_on(self);
        world.vnics_shown_by(self);
        // Their ports are bound to its chassis.
        let held = IndexKey::names::<Self>("", name);
        world.look_at_each(Work::VNic, &world.vnics, &held);
        world.vnics.by(&held).iter().for_each(|vnic| world.floating_ips_of(vnic));
        world.look_at_each(Work::ProviderNetwork, &world.provider_networks, &held);
        world.look_at_those_told_of_chassis();
        world.machines_without_hardware();
    }
}

impl World {
    /// What waits for an agent of this server tells why none comes.
    fn workflows_that_await(&self, hardware: &Hardware) {
        for agent in hardware.spec.agent_id.iter().chain(macs(hardware)) {
            self.look_at_each(Work::Workflow, &self.workflows, &IndexKey::agent(agent));
        }
    }

    /// Hardware with one MAC address are told of each other; and whatever tells of such may do so no longer.
    fn those_with_a_mac_of(&self, hardware: &Hardware) {
        let is_other = |other: &Arc<Hardware>| other.metadata.name != hardware.metadata.name;
        for other in macs(hardware).flat_map(|mac| self.hardware.by(&IndexKey::agent(mac))).filter(is_other) {
            self.enrolment_of(namespace_of(&other.metadata), other.metadata.name.as_deref().unwrap_or_default());
            self.workflows_that_await(&other);
            match claimed_by(&other) {
                Some(uid) => self.of_machine(uid),
                None => self.machines_without_hardware(),
            }
        }
        self.look_at_each(Work::Machine, &self.machines, &IndexKey::SharesMac);
        self.look_at_each(Work::Workflow, &self.workflows, &IndexKey::SharesMac);
        self.look_at_each(Work::Enrolment, &self.reports, &IndexKey::SharesMac);
    }

    /// What is made for the agent of this server, and told of its Hardware, if anything was seen of it.
    pub(super) fn enrolment_of(&self, namespace: &str, report: &str) {
        if self.reports.get(namespace, report).is_some() {
            self.look(Work::Enrolment, (namespace.to_owned(), report.to_owned()));
        }
    }

    /// The same of every server that is in no inventory.
    pub(super) fn enrolments_of_strangers(&self) {
        self.look_at_each(Work::Enrolment, &self.reports, &IndexKey::Unapproved);
    }

    /// The machine on the DPU's host.
    pub fn machines_of_dpu(&self, dpu: &Dpu) {
        let Some(reference) = dpu.spec.hardware_ref.as_ref() else { return };
        for hardware in self.hardware.by(&IndexKey::Server(reference.name.clone())) {
            if let Some(uid) = claimed_by(&hardware) {
                self.machine_by_uid(uid);
            }
        }
    }

    /// Those whose node is the machine on the DPU's host.
    fn pods_of_machine_on(&self, dpu: &Dpu) {
        let server = dpu.spec.hardware_ref.iter().map(|reference| IndexKey::Server(reference.name.clone()));
        for hardware in server.flat_map(|server| self.hardware.by(&server)) {
            let machines = claimed_by(&hardware).map(|uid| self.machines.by(&IndexKey::uid(uid)));
            let nodes = machines.iter().flatten().filter_map(|machine| machine.spec.node_name.as_ref());
            nodes.for_each(|node| self.pods_that_name::<Dpu>("", node));
        }
    }

    /// What becomes of an orphan may hang on who holds its volume or its VNic now.
    pub(super) fn dpus_with_orphans(&self) {
        self.look_at_each(Work::Dpu, &self.dpus, &IndexKey::HasOrphans);
    }

    /// A Dpu that is being deleted waits for the last attachment.
    pub(super) fn dpu_that_leaves(&self, name: &str) {
        if self.dpus.get("", name).is_none_or(|dpu| dpu.metadata.deletion_timestamp.is_some()) {
            self.look(Work::Dpu, (String::new(), name.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::BareMetalMachine;
    use runtime::queue::{self, Next};
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    const MAC: &str = "52:54:00:00:00:01";

    /// A server that a machine has.
    fn claimed(mac: &str, own_labels: serde_json::Value) -> Hardware {
        let meta = json!({"namespace": "inventory", "name": "claimed", "uid": "h", "labels": own_labels,
                          "annotations": {(labels::CLAIMED_BY): "its-machine"}});
        let spec = json!({"interfaces": [{"dhcp": {"mac": mac}}]});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).expect("a Hardware")
    }

    /// Whether an event of this Hardware wakes a machine of this name, which looks for a server.
    fn wakes(world: &World, machine: &str, hardware: &Hardware) -> bool {
        let (queue, machine) = (world.queue(Work::Machine), ("team-a".to_owned(), machine.to_owned()));
        let before = queue.depth();
        world.placement.looks(&machine);
        hardware.wake(world);
        world.placement.ended(&machine);
        queue.depth() > before
    }

    /// The one server that would do has the MAC address of a claimed one: of the machine `NoHardwareFits` is told, which names neither.
    #[tokio::test]
    async fn a_mac_address_that_a_claimed_server_has_no_more_wakes_who_looks_for_a_server() {
        let world = World::new(0);
        let mistaken = claimed(MAC, json!({}));
        world.hardware.put(mistaken.clone());
        mistaken.wake(&world);
        assert!(!wakes(&world, "waits", &mistaken), "of a server that others have nothing is news");
        let mended = claimed("52:54:00:00:00:02", json!({}));
        world.hardware.put(mended.clone());
        assert!(wakes(&world, "is-woken", &mended), "its MAC address was mended");
        let labelled = claimed("52:54:00:00:00:02", json!({"rack": "7"}));
        world.hardware.put(labelled.clone());
        assert!(!wakes(&world, "waits-on", &labelled));
        world.hardware.forget(&labelled.metadata);
        assert!(wakes(&world, "is-woken-again", &labelled), "it was deleted");
    }

    /// How often something of this kind of work was looked at since it was last asked.
    struct Looks(Arc<AtomicUsize>);

    impl Looks {
        fn of(world: &World, work: Work) -> Self {
            let count = Arc::new(AtomicUsize::new(0));
            let (queue, looks) = (world.queue(work).clone(), count.clone());
            tokio::spawn(queue::work(queue, 1, move |_| {
                looks.fetch_add(1, Ordering::SeqCst);
                std::future::ready(Next::Wait)
            }));
            Self(count)
        }

        /// Time is the test's own: it passes once nobody has anything to do.
        async fn since(&self) -> usize {
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.0.swap(0, Ordering::SeqCst)
        }
    }

    /// A fence rests on whether the agent presents anything: see planner::writer, *FenceIsLifted*.
    #[tokio::test(start_paused = true)]
    async fn what_a_dpu_has_room_for_wakes_its_machine_alone_and_only_with_the_first_disk_and_the_last() {
        let world = World::new(0);
        world.hardware.put(claimed(MAC, json!({})));
        let mut machine = BareMetalMachine::new("bm-01", Default::default());
        (machine.metadata.namespace, machine.metadata.uid) =
            (Some("team-a".to_owned()), Some("its-machine".to_owned()));
        world.machines.put(machine);
        let (dpus, machines) = (Looks::of(&world, Work::Dpu), Looks::of(&world, Work::Machine));
        let looks = async |free: u32| {
            let room = |disks: u32| json!({"disks": disks, "nics": 8, "hotPlugPorts": 8});
            let spec = json!({"hardwareRef": {"name": "claimed"}});
            let status = json!({"capacity": room(8), "allocatable": room(free)});
            let dpu = json!({"metadata": {"name": "dpu-1"}, "spec": spec, "status": status});
            let dpu: Dpu = serde_json::from_value(dpu).expect("a Dpu");
            world.dpus.put(dpu.clone());
            dpu.wake(&world);
            (dpus.since().await, machines.since().await)
        };
        assert_eq!(looks(8).await, (1, 1), "it is new");
        for (free, of_machine) in [(7, 1), (6, 0), (7, 0), (8, 1), (8, 0)] {
            assert_eq!(looks(free).await, (0, of_machine), "{free} are free");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_at_a_hardware_does_not_wake_its_dpu_and_another_bmc_does() {
        let world = World::new(0);
        let dpu = json!({"metadata": {"name": "dpu-1"}, "spec": {"hardwareRef": {"name": "claimed"}}});
        world.dpus.put(serde_json::from_value(dpu).expect("a Dpu"));
        let dpus = Looks::of(&world, Work::Dpu);
        let looks = async |hardware: &Hardware| {
            world.hardware.put(hardware.clone());
            hardware.wake(&world);
            dpus.since().await
        };
        let mut hardware = claimed(MAC, json!({}));
        assert_eq!(looks(&hardware).await, 1, "it is new");
        let annotations = hardware.metadata.annotations.get_or_insert_default();
        annotations.insert(labels::BOOT_ORDER_BEFORE.to_owned(), "Boot0001".to_owned());
        assert_eq!(looks(&hardware).await, 0);
        hardware.spec.bmc_ref =
            serde_json::from_value(json!({"kind": "Machine", "name": "bmc-1"})).expect("a reference");
        assert_eq!(looks(&hardware).await, 1);
    }
}
