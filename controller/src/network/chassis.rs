//! Whether VNics can be on a Dpu's chassis: it is no other Dpu's, and has the physical networks of their Subnets.
//!
//! Who has been told that they cannot is looked at again when a chassis or a Dpu tells anything new; both are rare. So is who has been told
//! that a host has its address: that the host has it no more is told by the Dpu alone.

use crate::Controller;
use crate::index::IndexKey;
use crate::work::Work;
use api::{Dpu, ProviderNetwork, Subnet};
use planner::network::chassis;
use planner::reason::Reason;
use ports::south_bound::Chassis;
use runtime::queue::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Default)]
pub struct Told(Mutex<BTreeSet<(Work, Key)>>);

impl Told {
    pub(super) fn add(&self, work: Work, key: &Key) {
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

/// Whether the chassis maps a physical network to a bridge, if that is known. `all`: [`known`].
pub(crate) fn maps(
    c: &Controller,
    all: &BTreeMap<String, Chassis>,
    (dpu, physical_network): (&Dpu, &str),
    (work, by): (Work, &Key),
) -> Option<bool> {
    let there = chassis::reported(dpu).and_then(|chassis| all.get(chassis));
    let maps = there.map(|chassis| chassis.physical_networks.contains(physical_network));
    if maps != Some(true) {
        c.world.told_of_chassis.add(work, by);
    }
    maps
}

/// All chassis that the south-bound database has, of which nothing is known while that is away.
pub(crate) fn known(c: &Controller) -> BTreeMap<String, Chassis> {
    c.network.chassis().unwrap_or_default()
}

/// Physical networks that VNics need, and the chassis as they were when it was asked: read once for all that one plan asks.
pub(crate) struct Needed<'a> {
    physical_networks: Vec<(&'a Subnet, Arc<ProviderNetwork>)>,
    chassis: BTreeMap<String, Chassis>,
}

impl<'a> Needed<'a> {
    /// By VNics of these Subnets.
    pub(crate) fn by(c: &Controller, subnets: impl Iterator<Item = &'a Subnet>) -> Self {
        let network = |named: &String| c.world.provider_networks.get("", named);
        let on = |subnet: &'a Subnet| Some((subnet, network(subnet.spec.provider_network.as_ref()?)?));
        let physical_networks: Vec<_> = subnets.filter_map(on).collect();
        let chassis = if physical_networks.is_empty() { BTreeMap::new() } else { known(c) };
        Self { physical_networks, chassis }
    }

    /// Which of them the Dpu's chassis is known not to have.
    pub(crate) fn lacked(&self, c: &Controller, dpu: &Dpu, by: (Work, &Key)) -> Option<Reason> {
        self.physical_networks.iter().find_map(|(subnet, network)| {
            let maps = maps(c, &self.chassis, (dpu, &network.spec.physical_network), by);
            chassis::lacks(dpu, subnet, network, maps)
        })
    }
}
