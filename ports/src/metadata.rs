//! What answers the guests of this node who ask at the metadata address.

use crate::PortError;
use async_trait::async_trait;
use planner::metadata::{Instance, Interface};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One Subnet's metadata port on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataPort {
    /// The network device that is made for it, at most 15 bytes. It is the switch's to plug.
    pub device: String,
    /// The port's own MAC address.
    pub mac: String,
    pub mtu: u16,
    /// Who is answered. Nobody else is, not even by ARP.
    pub guests: Vec<MetadataGuest>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataGuest {
    /// The NIC by which it asks.
    pub nic: Interface,
    /// What it is told.
    pub instance: Arc<Instance>,
}

#[async_trait]
pub trait Metadata: Send + Sync {
    /// Answers on exactly these ports from now on; the devices are there when it returns, and those of other ports are gone. A port that
    /// stays keeps its device and the connections of the guests that stay. Those that could not be made are told by their devices; the
    /// others answer, and the next call tries again.
    async fn answer(&self, ports: Vec<MetadataPort>) -> BTreeMap<String, PortError>;
}
