//! Vpcs, Subnets, SecurityGroups, VNics, and who has which address.

use super::{namespace_of, own_uid, owners};
use crate::cache::key;
use crate::index::IndexKey;
use crate::network::{about, allowed as beside_own, allowing, choosers, subnet_of, unassigned};
use crate::work::Work;
use crate::world::{Kind, World};
use api::conditions::{self, PROGRAMMED};
use api::network::canonical;
use api::{AddressHold, Dpu, FloatingIP, NatGateway, ProviderNetwork, SecurityGroup, Subnet, VNic, Vpc};
use planner::network::outside::Kind as Outside;
use planner::network::{addresses, admission, allowed, desired, flows, port, provider, routes, subnets};
use runtime::queue::Key;

impl Kind for Vpc {
    /// By the Subnets that it has admitted, too: one of them may no longer exist.
    fn index(&self) -> Vec<IndexKey> {
        let own = key(&self.metadata);
        let hops = routes::hops(self).map(|hop| IndexKey::Hop(own.clone(), hop));
        let subnets = admission::admitted(self).iter().map(|subnet| IndexKey::names::<Subnet>(&own.0, &subnet.name));
        own_uid(&self.metadata).into_iter().chain(hops).chain(subnets).collect()
    }

    fn wake(&self, world: &World) {
        let (namespace, name) = key(&self.metadata);
        let named = IndexKey::names::<Self>(&namespace, &name);
        // A Subnet that is new in it may have what they ask for beside their own addresses.
        world.look_at_each(Work::VNic, &world.vnics, &allowing(&namespace));
        world.look_at_each(Work::Subnet, &world.subnets, &named);
        world.look_at_each(Work::SecurityGroup, &world.groups, &named);
        world.look_at_each(Work::NatGateway, &world.nat_gateways, &named);
        for subnet in admission::admitted(self) {
            world.look(Work::Subnet, (namespace.clone(), subnet.name.clone()));
        }
        world.look(Work::Vpc, (namespace, name));
    }
}

impl Kind for SecurityGroup {
    /// By its Vpc, by the groups that are its peers, and by its deletion.
    fn index(&self) -> Vec<IndexKey> {
        let namespace = namespace_of(&self.metadata);
        let mut all: Vec<IndexKey> = own_uid(&self.metadata).into_iter().collect();
        all.push(IndexKey::names::<Vpc>(namespace, &self.spec.vpc.name));
        all.extend(self.metadata.deletion_timestamp.is_some().then(|| IndexKey::InDeletion(namespace.to_owned())));
        all.extend(desired::peers(self).map(|peer| IndexKey::names::<Self>(namespace, peer)));
        all.dedup();
        all
    }

    fn wake(&self, world: &World) {
        let (namespace, name) = key(&self.metadata);
        let named = IndexKey::names::<Self>(&namespace, &name);
        world.look_at_each(Work::SecurityGroup, &world.groups, &named);
        world.vnics_without_port(&named);
        // Those that are in it by its Vpc.
        for subnet in world.subnets.by(&IndexKey::names::<Vpc>(&namespace, &self.spec.vpc.name)) {
            let (namespace, subnet) = key(&subnet.metadata);
            world.vnics_without_port(&IndexKey::names::<Subnet>(&namespace, &subnet));
        }
        world.look(Work::Vpc, (namespace.clone(), self.spec.vpc.name.clone()));
        world.look(Work::SecurityGroup, (namespace, name));
    }
}

impl Kind for Subnet {
    /// By its namespace where the labels of that decide whether it may be on its ProviderNetwork.
    fn index(&self) -> Vec<IndexKey> {
        let namespace = namespace_of(&self.metadata);
        let mut all: Vec<IndexKey> = own_uid(&self.metadata).into_iter().collect();
        all.push(IndexKey::names::<Vpc>(namespace, admission::vpc_of(self)));
        all.extend(
            self.spec
                .provider_network
                .iter()
                .flat_map(|network| [IndexKey::names::<ProviderNetwork>("", network), IndexKey::namespace(namespace)]),
        );
        all
    }

    fn wake(&self, world: &World) {
        let (namespace, name) = key(&self.metadata);
        let there = world.subnets.get(&namespace, &name);
        if there.is_none_or(|there| there.metadata.uid != self.metadata.uid) {
            world.pools.forget(self.metadata.uid.as_deref().unwrap_or_default());
        }
        let named = IndexKey::names::<Self>(&namespace, &name);
        world.look_at_each(Work::Machine, &world.machines, &named);
        for vnic in world.vnics.by(&named) {
            world.machines_that_name::<VNic>(&namespace, vnic.metadata.name.as_deref().unwrap_or_default());
        }
        world.vnics_without_addresses(&named);
        world.vnics_without_port(&named);
        world.pods_that_name::<Self>(&namespace, &name);
        world.look(Work::Vpc, (namespace.clone(), admission::vpc_of(self).to_owned()));
        if let Some(network) = &self.spec.provider_network {
            world.look(Work::ProviderNetwork, (String::new(), network.clone()));
        }
        world.look(Work::Subnet, (namespace, name));
    }
}

impl Kind for VNic {
    fn index(&self) -> Vec<IndexKey> {
        let subnet = subnet_of(self);
        let mut all = owners(&self.metadata);
        all.extend(own_uid(&self.metadata));
        all.push(IndexKey::names::<Subnet>(&subnet.0, &subnet.1));
        let groups = self.spec.security_groups.iter().flatten();
        all.extend(groups.map(|group| IndexKey::names::<SecurityGroup>(&subnet.0, group)));
        let holder = self.status.as_ref().and_then(|status| status.holder.as_ref());
        let node = holder.map(|holder| &holder.dpu_name).or(self.spec.node_name.as_ref());
        all.extend(node.map(|node| IndexKey::names::<Dpu>("", node)));
        all.extend(addresses::interests(self).iter().map(|address| about(&subnet, address)));
        all.extend(addresses::chooses(self).then(|| choosers(&subnet)));
        all.extend(addresses::runs_unassigned(self).then(|| unassigned(&subnet)));
        let beside: Vec<String> = allowed::asked(self).chain(allowed::said(self).cloned()).collect();
        all.extend(beside.first().map(|_| allowing(&subnet.0)));
        all.extend(beside.iter().map(|address| beside_own(&subnet, address)));
        all.dedup();
        all
    }

    fn wake(&self, world: &World) {
        let (meta, subnet) = (&self.metadata, subnet_of(self));
        world.look(Work::VNic, key(meta));
        world.machines_that_name::<Self>(namespace_of(meta), meta.name.as_deref().unwrap_or_default());
        world.pods_that_name::<Self>(namespace_of(meta), meta.name.as_deref().unwrap_or_default());
        world.dpus_with_orphans();
        world.of_maker(meta);
        world.of_users(meta);
        // Whoever waits for an address that this one has without a hold.
        addresses::interests(self).iter().for_each(|address| world.vnics_without_addresses(&about(&subnet, address)));
        if addresses::runs_unassigned(self) {
            world.vnics_without_addresses(&choosers(&subnet));
        }
        world.groups_in_deletion(self, &subnet);
        world.floating_ips_of(self);
        world.neighbours_of(self, &subnet);
        world.look(Work::Subnet, subnet);
    }
}

impl Kind for AddressHold {
    /// By its owner's name too, which another VNic may have by now.
    fn index(&self) -> Vec<IndexKey> {
        let owner = &self.spec.owner;
        let named = match Outside::of(owner) {
            Some(Outside::NatGateway) => IndexKey::names::<NatGateway>(&owner.namespace, &owner.name),
            Some(Outside::FloatingIP) => IndexKey::names::<FloatingIP>(&owner.namespace, &owner.name),
            None if subnets::is_own(self) => IndexKey::names::<Subnet>(&owner.namespace, &owner.name),
            None => IndexKey::names::<VNic>(&owner.namespace, &owner.name),
        };
        vec![IndexKey::owner(&owner.uid), named, IndexKey::owner(&self.spec.subnet.uid)]
    }

    fn wake(&self, world: &World) {
        let (owner, subnet) = (&self.spec.owner, &self.spec.subnet);
        if let Some(kind) = Outside::of(owner) {
            let work = if kind == Outside::NatGateway { Work::NatGateway } else { Work::FloatingIP };
            world.look(work, (owner.namespace.clone(), owner.name.clone()));
            if !world.note(self) {
                world.outside_without_address(&IndexKey::names::<ProviderNetwork>("", &subnet.name));
            }
            world.beside_on_vlan(&subnet.name, self.spec.held());
            return world.look(Work::ProviderNetwork, (String::new(), subnet.name.clone()));
        }
        let on = world.subnets.get(&subnet.namespace, &subnet.name);
        on.and_then(|on| on.spec.provider_network.clone())
            .iter()
            .for_each(|network| world.beside_on_vlan(network, self.spec.held()));
        let subnet = (subnet.namespace.clone(), subnet.name.clone());
        if !subnets::is_own(self) {
            world.look(Work::VNic, (owner.namespace.clone(), owner.name.clone()));
        }
        world.vnics_without_addresses(&about(&subnet, self.spec.held()));
        if !world.note(self) {
            world.vnics_without_addresses(&choosers(&subnet));
        }
        world.look(Work::Subnet, subnet);
    }
}

impl World {
    /// Whether the hold exists; the pool of its Subnet is told.
    pub(crate) fn note(&self, hold: &AddressHold) -> bool {
        let name = hold.metadata.name.as_deref().unwrap_or_default();
        let mut there = false;
        self.pools.note(hold, || {
            there = self.address_holds.get("", name).is_some();
            there
        });
        there
    }

    /// Who has no address on another ProviderNetwork of the VLAN, and may wait for this one.
    fn beside_on_vlan(&self, network: &str, held: &str) {
        let Some(network) = self.provider_networks.get("", network) else { return };
        let all = self.provider_networks.all();
        for other in all.iter().filter(|other| provider::is_beside(&network, other)) {
            self.outside_without_address(&IndexKey::names::<ProviderNetwork>("", &key(&other.metadata).1));
            if let Some(subnet) = provider::holder(other) {
                let subnet = (subnet.namespace.clone(), subnet.name.clone());
                self.vnics_without_addresses(&about(&subnet, held));
                self.vnics_without_addresses(&choosers(&subnet));
            }
        }
    }

    /// Whoever has, or asks for, what an orphan of this DPU has. Orphans are few.
    pub(super) fn vnics_shown_by(&self, dpu: &Dpu) {
        for orphan in dpu.status.iter().flat_map(|status| &status.orphans) {
            let has: Vec<String> =
                orphan.addresses.iter().chain(&orphan.mac_address).map(|has| canonical(has)).collect();
            for subnet in self.subnets.all() {
                let subnet = key(&subnet.metadata);
                has.iter().for_each(|has| self.look_at_each(Work::VNic, &self.vnics, &about(&subnet, has)));
            }
        }
    }

    /// Who may have an address of the VNic, whose address the VNic may have, and the Vpc whose routes lead to it.
    fn neighbours_of(&self, vnic: &VNic, subnet: &Key) {
        let vpc = self.subnets.get(&subnet.0, &subnet.1).map(|there| admission::vpc_of(&there).to_owned());
        for address in vnic.status.iter().flat_map(|status| &status.addresses) {
            self.look_at_each(Work::VNic, &self.vnics, &beside_own(subnet, address));
            let hop = vpc.clone().map(|vpc| IndexKey::Hop((subnet.0.clone(), vpc), address.clone()));
            hop.iter().for_each(|hop| self.look_at_each(Work::Vpc, &self.vpcs, hop));
        }
        for address in allowed::asked(vnic).chain(allowed::said(vnic).cloned()) {
            self.look_at_each(Work::VNic, &self.vnics, &about(subnet, &address));
        }
    }

    /// Groups that wait for a VNic. Of one with a port OVN tells which group it has left; one that has no port may have left any.
    fn groups_in_deletion(&self, vnic: &VNic, (namespace, subnet): &Key) {
        if vnic.status.as_ref().is_none_or(|status| status.programmed.is_none()) {
            let waiting = IndexKey::InDeletion(namespace.clone());
            return self.look_at_each(Work::SecurityGroup, &self.groups, &waiting);
        }
        let subnet = self.subnets.get(namespace, subnet);
        let vpc = subnet.and_then(|subnet| self.vpcs.get(namespace, admission::vpc_of(&subnet)));
        let named = vpc.iter().flat_map(|vpc| port::groups(vnic, vpc));
        for group in named.filter_map(|group| self.groups.get(namespace, group)) {
            if group.metadata.deletion_timestamp.is_some() {
                self.look(Work::SecurityGroup, key(&group.metadata));
            }
        }
    }

    /// Those whose rules would cost too much by the members of this one.
    pub(crate) fn groups_held_back_by(&self, peer: &SecurityGroup) {
        let (namespace, name) = key(&peer.metadata);
        let named = self.groups.by(&IndexKey::names::<SecurityGroup>(&namespace, &name));
        for group in named.iter().filter(|group| flows::is_held_back(group)) {
            self.look(Work::SecurityGroup, key(&group.metadata));
        }
    }

    /// Whose port is not all that was asked for.
    pub(super) fn vnics_without_port(&self, index: &IndexKey) {
        let has = |vnic: &VNic| {
            vnic.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, PROGRAMMED))
        };
        for vnic in self.vnics.by(index).iter().filter(|vnic| !has(vnic)) {
            self.look(Work::VNic, key(&vnic.metadata));
        }
    }

    pub(super) fn vnics_without_addresses(&self, index: &IndexKey) {
        for vnic in self.vnics.by(index).iter().filter(|vnic| !addresses::is_assigned(vnic)) {
            self.look(Work::VNic, key(&vnic.metadata));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Namespace;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    fn object<K: DeserializeOwned>(name: &str, spec: Value) -> K {
        let meta = json!({"namespace": "team-a", "name": name, "uid": name});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).expect("an object")
    }

    #[tokio::test]
    async fn labels_of_a_namespace_wake_its_subnets_on_provider_networks() {
        let world = World::new(0);
        world.subnets.put(object("inside", json!({"cidr": "10.20.0.0/24"})));
        world
            .subnets
            .put(object("hosts", json!({"cidr": "203.0.113.0/24", "routed": false, "providerNetwork": "rack"})));
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("team-a".to_owned());
        namespace.wake(&world);
        assert_eq!(world.queue(Work::Subnet).depth(), 1);
        assert_eq!(world.queue(Work::Subnet).next().await, ("team-a".to_owned(), "hosts".to_owned()));
    }

    /// It may have named the group before: the copy knows what it names now.
    #[tokio::test]
    async fn a_vnic_without_a_port_wakes_the_groups_that_are_being_deleted() {
        let world = World::new(0);
        let mut leaving: SecurityGroup = object("leaving", json!({"vpc": {"name": "default"}}));
        leaving.metadata.deletion_timestamp = Some(Time("2026-01-01T00:00:00Z".parse().expect("a time")));
        world.groups.put(leaving);
        world.groups.put(object("staying", json!({"vpc": {"name": "default"}})));
        let mut vnic: VNic = object("nic", json!({"subnet": "blue", "securityGroups": []}));
        vnic.wake(&world);
        assert_eq!(world.queue(Work::SecurityGroup).depth(), 1);
        assert_eq!(world.queue(Work::SecurityGroup).next().await.1, "leaving");
        vnic.status.get_or_insert_default().programmed = Some(Default::default());
        vnic.wake(&world);
        assert_eq!(world.queue(Work::SecurityGroup).depth(), 0, "its port's rows tell");
    }
}
