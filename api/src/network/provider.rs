//! `ProviderNetwork`: a network of the data centre that Vpcs are let out to. An administrator's.

use super::{Labels, SubnetReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network of the data centre, by which Vpcs are left and reached: written by an administrator.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "ProviderNetwork",
    shortname = "pn",
    category = "metal",
    status = "ProviderNetworkStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A network of the data centre: the addresses of it that NatGateways and FloatingIPs may have, and the Subnet that is on it.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Physical", type_ = "string", json_path = ".spec.physicalNetwork"),
    printcolumn(name = "VLAN", type_ = "integer", json_path = ".spec.vlan"),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "IPv6", type_ = "string", json_path = ".spec.ipv6Cidr", priority = "1"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.used"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self.physicalNetwork == oldSelf.physicalNetwork && has(self.vlan) == has(oldSelf.vlan) && (!has(self.vlan) || self.vlan == oldSelf.vlan)")
        .message("physicalNetwork and vlan are immutable: make another ProviderNetwork"),
    validation = Rule::new("self.cidr == oldSelf.cidr").message("cidr is immutable: make another ProviderNetwork"),
    validation = Rule::new("!has(oldSelf.ipv6Cidr) || (has(self.ipv6Cidr) && self.ipv6Cidr == oldSelf.ipv6Cidr)")
        .message("ipv6Cidr may be added, and is immutable then: make another ProviderNetwork"),
    validation = Rule::new("!has(self.ipv6Cidr) || !isCIDR(self.cidr) || cidr(self.cidr).ip().family() == 4")
        .message("cidr must be IPv4 where there is an ipv6Cidr"),
    validation = Rule::new("!has(self.gateway) || !isIP(self.gateway) || !isCIDR(self.cidr) || cidr(self.cidr).containsIP(self.gateway)")
        .message("gateway must be an address inside cidr"),
    validation = Rule::new("!has(self.ipv6Gateway) || (has(self.ipv6Cidr) && (!isIP(self.ipv6Gateway) || !isCIDR(self.ipv6Cidr) || cidr(self.ipv6Cidr).containsIP(self.ipv6Gateway)))")
        .message("ipv6Gateway must be an address inside ipv6Cidr"),
    validation = Rule::new("!has(self.addresses) || !isCIDR(self.cidr) || self.addresses.all(r, r.split('-').all(a, !isIP(a) || cidr(self.cidr).containsIP(a)) || (has(self.ipv6Cidr) && isCIDR(self.ipv6Cidr) && r.split('-').all(a, !isIP(a) || cidr(self.ipv6Cidr).containsIP(a))))")
        .message("addresses must be inside cidr or ipv6Cidr")
)]
pub struct ProviderNetworkSpec {
    /// By which name nodes map it to a bridge: in external_ids:ovn-bridge-mappings of Open vSwitch, physnet1:br-ex for example.
    /// Immutable.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"))]
    pub physical_network: String,
    /// The VLAN of it. Left out: untagged. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,
    /// The network, for example 203.0.113.0/24. Immutable.
    #[schemars(length(max = 49))]
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self) == cidr(self).masked()").message("cidr must be a network such as 203.0.113.0/24, with no host bits set"))]
    pub cidr: String,
    /// A second network, of IPv6, beside an IPv4 cidr. May be added later, and is immutable then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 49))]
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self) == cidr(self).masked() && cidr(self).ip().family() == 6").message("ipv6Cidr must be an IPv6 network such as 2001:db8:1::/64, with no host bits set"))]
    pub ipv6_cidr: Option<String>,
    /// The data centre's router in cidr, to which NatGateways, and guests of the Subnet that is on the network, send what they have no
    /// other route for. Left out: only hosts of the network itself are reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    #[x_kube(validation = Rule::new("isIP(self)").message("gateway must be an IP address such as 203.0.113.1"))]
    pub gateway: Option<String>,
    /// The same in ipv6Cidr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    #[x_kube(validation = Rule::new("isIP(self)").message("ipv6Gateway must be an IP address such as 2001:db8:1::1"))]
    pub ipv6_gateway: Option<String>,
    /// The addresses that NatGateways and FloatingIPs may have, and nobody else has: 203.0.113.10-203.0.113.99 for example. Left out:
    /// there are none of either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 91)), extend("x-kubernetes-list-type" = "set"))]
    #[x_kube(validation = Rule::new("self.all(r, r.split('-').size() <= 2 && r.split('-').all(a, isIP(a)))").message("addresses must be addresses such as 203.0.113.9, or ranges such as 203.0.113.10-203.0.113.99"))]
    pub addresses: Vec<String>,
    /// The nodes that carry the traffic of NatGateways, by the names of their Dpus: the first one that is alive does. Each must
    /// map the physical network. Left out: no NatGateway is carried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = Rule::new("self.all(n, self.exists_one(m, m == n))").message("gatewayNodes must name each node once"))]
    pub gateway_nodes: Vec<String>,
    /// The namespaces whose NatGateways and FloatingIPs may have its addresses, and whose Subnet may be on it. Left out: all. Taking it
    /// back takes nothing from those that have some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<Labels>,
}

/// What the controller says of the ProviderNetwork.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderNetworkStatus {
    /// The chassis of its gatewayNodes, in their order; one that has told no chassis, or does not map the physical network, is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chassis: Vec<String>,
    /// The Subnet that is on it: the first one that asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<SubnetReference>,
    /// How many of its addresses have an AddressHold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// Ready, GatewayNodesUsed; while it is being deleted, Deletable.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
