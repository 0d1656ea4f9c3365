//! ProviderNetworks, NatGateways and FloatingIPs. The last two name a ProviderNetwork, and are found by it in every namespace (no
//! namespace in the key) and in their own.

use super::{namespace_of, own_uid};
use crate::cache::key;
use crate::index::IndexKey;
use crate::work::Work;
use crate::world::{Kind, World};
use api::{Dpu, FloatingIP, NatGateway, ProviderNetwork, Subnet, VNic, Vpc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::network::provider;

fn of_network(meta: &ObjectMeta, network: &str) -> Vec<IndexKey> {
    let namespace = namespace_of(meta);
    let mut all: Vec<IndexKey> = own_uid(meta).into_iter().collect();
    all.push(IndexKey::namespace(namespace));
    all.extend(["", namespace].map(|namespace| IndexKey::names::<ProviderNetwork>(namespace, network)));
    all
}

impl Kind for ProviderNetwork {
    /// By the Subnet that is on it, too: that may no longer exist.
    fn index(&self) -> Vec<IndexKey> {
        let nodes = self.spec.gateway_nodes.iter().map(|node| IndexKey::names::<Dpu>("", node));
        let subnet = provider::holder(self).map(|subnet| IndexKey::names::<Subnet>(&subnet.namespace, &subnet.name));
        own_uid(&self.metadata).into_iter().chain(nodes).chain(subnet).collect()
    }

    fn wake(&self, world: &World) {
        let own = key(&self.metadata);
        let named = IndexKey::names::<Self>("", &own.1);
        world.look_at_each(Work::NatGateway, &world.nat_gateways, &named);
        world.look_at_each(Work::FloatingIP, &world.floating_ips, &named);
        for subnet in world.subnets.by(&named) {
            let subnet = key(&subnet.metadata);
            world.vnics_without_addresses(&IndexKey::names::<Subnet>(&subnet.0, &subnet.1));
            world.look(Work::Subnet, subnet);
        }
        if let Some(subnet) = provider::holder(self) {
            world.look(Work::Subnet, (subnet.namespace.clone(), subnet.name.clone()));
        }
        // One of the same VLAN may give addresses once this one gives none.
        let all = world.provider_networks.all();
        let beside = all.iter().filter(|other| provider::is_beside(self, other));
        beside.for_each(|other| world.look(Work::ProviderNetwork, key(&other.metadata)));
        world.look(Work::ProviderNetwork, own);
    }
}

impl Kind for NatGateway {
    fn index(&self) -> Vec<IndexKey> {
        let mut all = of_network(&self.metadata, &self.spec.provider_network);
        all.push(IndexKey::names::<Vpc>(namespace_of(&self.metadata), &self.spec.vpc.name));
        all
    }

    fn wake(&self, world: &World) {
        let own = key(&self.metadata);
        // The next one of its Vpc, and the Vpc, may wait for its end.
        world.look_at_each(Work::NatGateway, &world.nat_gateways, &IndexKey::names::<Vpc>(&own.0, &self.spec.vpc.name));
        world.look(Work::Vpc, (own.0.clone(), self.spec.vpc.name.clone()));
        let network = &self.spec.provider_network;
        world.look_at_each(Work::FloatingIP, &world.floating_ips, &IndexKey::names::<ProviderNetwork>(&own.0, network));
        world.look(Work::ProviderNetwork, (String::new(), network.clone()));
        world.look(Work::NatGateway, own);
    }
}

impl Kind for FloatingIP {
    /// By the VNic that it names, and by the UID of the one that it may be translated to.
    fn index(&self) -> Vec<IndexKey> {
        let mut all = of_network(&self.metadata, &self.spec.provider_network);
        let namespace = namespace_of(&self.metadata);
        all.extend(self.spec.vnic.iter().map(|vnic| IndexKey::names::<VNic>(namespace, vnic)));
        let translated = self.status.as_ref().and_then(|status| status.vnic_uid.as_deref());
        all.extend(translated.map(IndexKey::owner));
        all
    }

    fn wake(&self, world: &World) {
        let own = key(&self.metadata);
        let network = &self.spec.provider_network;
        for gateway in world.nat_gateways.by(&IndexKey::names::<ProviderNetwork>(&own.0, network)) {
            if gateway.metadata.deletion_timestamp.is_some() {
                world.look(Work::NatGateway, key(&gateway.metadata));
            }
        }
        world.look(Work::ProviderNetwork, (String::new(), network.clone()));
        world.look(Work::FloatingIP, own);
    }
}

impl World {
    /// NatGateways and FloatingIPs that are found by this and have no address yet.
    pub(super) fn outside_without_address(&self, index: &IndexKey) {
        for one in self.nat_gateways.by(index) {
            if one.status.as_ref().is_none_or(|status| status.addresses.is_empty()) {
                self.look(Work::NatGateway, key(&one.metadata));
            }
        }
        for one in self.floating_ips.by(index) {
            if one.status.as_ref().is_none_or(|status| status.address.is_none()) {
                self.look(Work::FloatingIP, key(&one.metadata));
            }
        }
    }

    /// FloatingIPs of a VNic.
    pub(super) fn floating_ips_of(&self, vnic: &VNic) {
        let (namespace, vnic_name) = key(&vnic.metadata);
        self.look_at_each(Work::FloatingIP, &self.floating_ips, &IndexKey::names::<VNic>(&namespace, &vnic_name));
        let uid = vnic.metadata.uid.as_deref().unwrap_or_default();
        self.look_at_each(Work::FloatingIP, &self.floating_ips, &IndexKey::owner(uid));
    }
}
