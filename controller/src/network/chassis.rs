//! Whether VNics can be on a Dpu's chassis: it is no other Dpu's, and has the physical networks of their Subnets.
//!
//! Who has been told that they cannot is looked at again when a chassis or a Dpu tells anything new; both are rare.

use crate::Controller;
use crate::index::IndexKey;
use crate::work::Work;
use api::{Dpu, Subnet};
use planner::machine::observed::name;
use planner::network::chassis;
use planner::reason::{Blocked, Reason};
use runtime::queue::Key;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub struct Told(Mutex<BTreeSet<(Work, Key)>>);

impl Told {
    fn add(&self, work: Work, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((work, key.clone()));
    }

    pub(crate) fn take(&self) -> BTreeSet<(Work, Key)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Which other Dpu has its chassis.
pub(crate) fn taken(c: &Controller, dpu: &Dpu, (work, by): (Work, &Key)) -> Option<Reason> {
    let all = c.world.dpus.by(&IndexKey::Chassis(chassis::reported(dpu)?.to_owned()));
    let reason = chassis::taken(dpu, &all)?;
    c.world.told_of_chassis.add(work, by);
    Some(reason)
}

/// Whether it is known that the chassis does not map the Subnet's physical network to a bridge.
pub(crate) fn lacks(c: &Controller, dpu: &Dpu, subnet: &Subnet, by: (Work, &Key)) -> Option<Reason> {
    let network = c.world.provider_networks.get("", subnet.spec.provider_network.as_ref()?)?;
    let physical_network = network.spec.physical_network.clone();
    is_unmapped(c, dpu, &physical_network, by).then(|| {
        let (subnet, dpu) = (name(&subnet.metadata).to_owned(), name(&dpu.metadata).to_owned());
        Blocked::PhysicalNetworkUnmapped { physical_network, subnet, dpu }.into()
    })
}

/// The same, of any physical network.
pub(crate) fn is_unmapped(c: &Controller, dpu: &Dpu, physical_network: &str, (work, by): (Work, &Key)) -> bool {
    let maps = chassis::reported(dpu).and_then(|chassis| c.network.maps(chassis, physical_network));
    if maps != Some(true) {
        c.world.told_of_chassis.add(work, by);
    }
    maps == Some(false)
}
