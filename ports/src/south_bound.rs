//! What the chassis tell in OVN's south-bound database (ovn-sb(5)). Only read: `ovn-northd` and `ovn-controller` write it.

use crate::PortError;
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};

/// A chassis by what it says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chassis {
    /// The highest `nb_cfg` of which the chassis has installed everything. `None`: it never said.
    pub installed: Option<u64>,
    /// The physical networks that it maps to bridges (`ovn-bridge-mappings`).
    pub physical_networks: BTreeSet<String>,
}

#[async_trait]
pub trait SouthBound: Send + Sync {
    /// By name, which is the chassis' `system-id`. An error means that the copy is old.
    fn chassis(&self) -> Result<BTreeMap<String, Chassis>, PortError>;

    /// Waits until a chassis, or whether there is a connection, has changed since the last look. For one caller.
    async fn changes(&self) -> Result<(), PortError>;
}
