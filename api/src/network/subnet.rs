//! What a Subnet says of IPv6, DHCP, and of how much of it is used.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How guests get their IPv6 address.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum Ipv6Mode {
    /// By DHCPv6, as the router's advertisements tell them.
    #[default]
    StatefulDHCP,
    /// From the prefix that the router advertises and their MAC address.
    SLAAC,
}

/// Whether anybody answers at the metadata address.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum Metadata {
    #[default]
    Enabled,
    Disabled,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct Dhcp {
    /// Whether DHCP requests are answered. Where they are not, cloud-init configures the addresses.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// How long a lease lasts. The address stays the VNic's after that too.
    #[serde(default = "lease_seconds")]
    #[schemars(range(min = 60, max = 31_536_000))]
    pub lease_seconds: u32,
    /// IPv4 addresses of time servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(max = 15)))]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a) && ip(a).family() == 4)").message("ntpServers must be IPv4 addresses such as 10.20.0.123"))]
    pub ntp_servers: Vec<String>,
}

impl Default for Dhcp {
    fn default() -> Self {
        Self { enabled: true, lease_seconds: lease_seconds(), ntp_servers: Vec::new() }
    }
}

pub(super) fn yes() -> bool {
    true
}

fn lease_seconds() -> u32 {
    3600
}

/// How many addresses of the family VNics and the Subnet's router have.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// How many there are, the network and the broadcast address apart. Not said of IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// How many have an AddressHold; at most ten seconds old.
    pub used: u64,
}
