//! Subnets, VNics, and who has which address.

use super::{namespace_of, owners};
use crate::cache::key;
use crate::index::IndexKey;
use crate::network::{about, subnet_of};
use crate::work::Work;
use crate::world::{Kind, World};
use api::network::canonical;
use api::{AddressHold, Dpu, Subnet, VNic};
use planner::network::addresses;

impl Kind for Subnet {
    fn wake(&self, world: &World) {
        let (namespace, name) = key(&self.metadata);
        let named = IndexKey::names::<Self>(&namespace, &name);
        world.look_at_each(Work::Machine, &world.machines, &named);
        for vnic in world.vnics.by(&named) {
            world.machines_that_name::<VNic>(&namespace, vnic.metadata.name.as_deref().unwrap_or_default());
        }
        world.vnics_without_addresses(&named);
        world.look(Work::Subnet, (namespace, name));
    }
}

impl Kind for VNic {
    fn index(&self) -> Vec<IndexKey> {
        let subnet = subnet_of(self);
        let mut all = owners(&self.metadata);
        all.push(IndexKey::names::<Subnet>(&subnet.0, &subnet.1));
        all.extend(addresses::interests(self).iter().map(|address| about(&subnet, address)));
        all
    }

    fn wake(&self, world: &World) {
        let (meta, subnet) = (&self.metadata, subnet_of(self));
        world.look(Work::VNic, key(meta));
        world.machines_that_name::<Self>(namespace_of(meta), meta.name.as_deref().unwrap_or_default());
        world.dpus_with_orphans();
        world.of_maker(meta);
        world.of_users(meta);
        // Whoever waits for an address that this one has without a hold.
        addresses::interests(self).iter().for_each(|address| world.vnics_without_addresses(&about(&subnet, address)));
        world.look(Work::Subnet, subnet);
    }
}

impl Kind for AddressHold {
    /// By its owner's name too, which another VNic may have by now.
    fn index(&self) -> Vec<IndexKey> {
        let owner = &self.spec.owner;
        let named = IndexKey::names::<VNic>(&owner.namespace, &owner.name);
        vec![IndexKey::owner(&owner.uid), named, IndexKey::owner(&self.spec.subnet.uid)]
    }

    fn wake(&self, world: &World) {
        let (owner, subnet) = (&self.spec.owner, &self.spec.subnet);
        let subnet = (subnet.namespace.clone(), subnet.name.clone());
        world.look(Work::VNic, (owner.namespace.clone(), owner.name.clone()));
        world.vnics_without_addresses(&about(&subnet, self.spec.held()));
        world.look(Work::Subnet, subnet);
    }
}

impl World {
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

    fn vnics_without_addresses(&self, index: &IndexKey) {
        for vnic in self.vnics.by(index).iter().filter(|vnic| !addresses::is_assigned(vnic)) {
            self.look(Work::VNic, key(&vnic.metadata));
        }
    }
}
