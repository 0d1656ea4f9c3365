//! What `ovn-controller` says of a DPU's ports, and why: the north-bound database in memory binds a port to a chassis and a
//! grant, as ovn-nb(5) has it of `requested-chassis` and `iface-id-ver`.

use super::lock;
use super::north_bound::MemoryNorthBound;
use crate::switch::SwitchPort;
use async_trait::async_trait;
use planner::network::rows::{CHASSIS, Cell, Row, Table};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// An `ovn-controller` as a [`super::MemorySwitch`] reads it.
#[async_trait]
pub trait Chassis: Send + Sync {
    /// `None`: OVN does not know the switch.
    fn name(&self) -> Option<String>;

    /// Looks at the switch's ports. Which it has installed, by device; and which state of the network it has reached.
    fn read(&self, ports: &[SwitchPort]) -> (BTreeSet<String>, u64);

    /// Returns when [`Chassis::read`] may say something else.
    async fn changed(&self);
}

/// It installs each port at once, and reaches a newer state right after.
#[derive(Default)]
pub struct InstallsAll {
    state: Mutex<(Vec<SwitchPort>, u64)>,
    reached: Notify,
}

#[async_trait]
impl Chassis for InstallsAll {
    fn name(&self) -> Option<String> {
        Some("chassis".to_owned())
    }

    fn read(&self, ports: &[SwitchPort]) -> (BTreeSet<String>, u64) {
        let (seen, number) = &mut *lock(&self.state);
        let said = *number;
        if seen != ports {
            ports.clone_into(seen);
            *number += 1;
            self.reached.notify_one();
        }
        (ports.iter().map(|port| port.device.clone()).collect(), said)
    }

    async fn changed(&self) {
        self.reached.notified().await;
    }
}

/// One of the chassis that follow a north-bound database.
pub struct MemoryChassis {
    name: String,
    north_bound: MemoryNorthBound,
    told: Arc<Notify>,
}

impl MemoryChassis {
    pub fn new(name: &str, north_bound: &MemoryNorthBound) -> Self {
        Self { name: name.to_owned(), north_bound: north_bound.clone(), told: north_bound.register(name) }
    }

    fn binds(&self, row: &Row, port: &SwitchPort) -> bool {
        let named = |name: &Cell| matches!(name, Cell::Text(name) if *name == port.logical_port);
        let options = |options: &Cell| {
            let Cell::Pairs(options) = options else { return false };
            options.get(CHASSIS) == Some(&self.name) && options.get("iface-id-ver") == Some(&port.version)
        };
        row.table == Table::LogicalSwitchPort
            && row.columns.get("name").is_some_and(named)
            && row.columns.get("options").is_some_and(options)
    }
}

#[async_trait]
impl Chassis for MemoryChassis {
    fn name(&self) -> Option<String> {
        Some(self.name.clone())
    }

    fn read(&self, ports: &[SwitchPort]) -> (BTreeSet<String>, u64) {
        let rows = self.north_bound.rows();
        let bound = |port: &&SwitchPort| rows.iter().find(|row| self.binds(row, port));
        let mut installed = BTreeSet::new();
        for (port, row) in ports.iter().filter_map(|port| Some((port, bound(&port)?))) {
            installed.insert(port.device.clone());
            self.north_bound.come_up(&row.id.uid);
        }
        (installed, self.north_bound.number_of(&self.name))
    }

    async fn changed(&self) {
        self.told.notified().await;
    }
}
