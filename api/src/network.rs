//! `Vpc`, `Subnet`, `SecurityGroup` and `VNic`: the logical network as its users declare it; `ProviderNetwork`, `NatGateway` and
//! `FloatingIP`: the way out of it; `AddressHold`: who has which address.

mod address;
mod gateway;
mod group;
mod provider;
mod qos;
mod subnet;
mod vpc;

pub use address::{AddressHold, AddressHoldSpec, AddressOwner, SubnetReference, canonical};
pub use gateway::{FloatingIP, FloatingIPSpec, FloatingIPStatus, NatGateway, NatGatewaySpec, NatGatewayStatus};
pub use group::{
    EgressRule, Icmp, IngressRule, IpFamily, Peer, PortRange, Protocol, SecurityGroup, SecurityGroupSpec,
    SecurityGroupStatus,
};
pub use provider::{ProviderNetwork, ProviderNetworkSpec, ProviderNetworkStatus};
pub use qos::Qos;
pub use subnet::{Dhcp, Ipv6Mode, Metadata, Usage};
pub use vpc::{AdmittedSubnet, DEFAULT, Dns, Route, Vpc, VpcSpec, VpcStatus};

use crate::Named;
use crate::attachment::Grant;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A range of addresses that interfaces get theirs from.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "Subnet",
    shortname = "sn",
    category = "metal",
    namespaced,
    status = "SubnetStatus",
    derive = "PartialEq",
    doc = "A range of addresses of a Vpc.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Vpc", type_ = "string", json_path = ".spec.vpc.name"),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "IPv6", type_ = "string", json_path = ".spec.ipv6Cidr", priority = "1"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.ipv4.used"),
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
    validation = Rule::new("self.cidr == oldSelf.cidr").message("cidr is immutable: make another Subnet"),
    validation = Rule::new("self.vpc == oldSelf.vpc").message("vpc is immutable: make another Subnet"),
    validation = Rule::new("self.metadata == oldSelf.metadata").message("metadata is immutable: make another Subnet"),
    validation = Rule::new("!has(oldSelf.ipv6Cidr) || (has(self.ipv6Cidr) && self.ipv6Cidr == oldSelf.ipv6Cidr)")
        .message("ipv6Cidr may be added, and is immutable then: make another Subnet"),
    validation = Rule::new("has(self.gateway) == has(oldSelf.gateway) && (!has(self.gateway) || self.gateway == oldSelf.gateway)")
        .message("gateway is immutable: make another Subnet"),
    validation = Rule::new("has(self.mtu) == has(oldSelf.mtu) && (!has(self.mtu) || self.mtu == oldSelf.mtu)")
        .message("mtu is immutable: make another Subnet"),
    validation = Rule::new("!has(oldSelf.ipv6Mode) || (has(self.ipv6Mode) && self.ipv6Mode == oldSelf.ipv6Mode)")
        .message("ipv6Mode is immutable: make another Subnet"),
    validation = Rule::new("!has(self.ipv6Cidr) || !isCIDR(self.cidr) || cidr(self.cidr).ip().family() == 4")
        .message("cidr must be IPv4 where there is an ipv6Cidr"),
    validation = Rule::new("!has(self.gateway) || !isIP(self.gateway) || (isCIDR(self.cidr) && cidr(self.cidr).containsIP(self.gateway)) || (has(self.ipv6Cidr) && isCIDR(self.ipv6Cidr) && cidr(self.ipv6Cidr).containsIP(self.gateway))")
        .message("gateway must be an address inside cidr or ipv6Cidr"),
    validation = Rule::new("!has(self.gateway) || self.routed")
        .message("gateway must be left out where routed is false: there is no router"),
    validation = Rule::new("has(self.providerNetwork) == has(oldSelf.providerNetwork) && (!has(self.providerNetwork) || self.providerNetwork == oldSelf.providerNetwork)")
        .message("providerNetwork is immutable: make another Subnet"),
    validation = Rule::new("!has(self.providerNetwork) || !self.routed")
        .message("routed must be false with providerNetwork: the data centre's router is the way out, and the ProviderNetwork says which it is"),
    validation = Rule::new("!has(self.ipv6Mode) || has(self.ipv6Cidr) || !isCIDR(self.cidr) || cidr(self.cidr).ip().family() == 6")
        .message("ipv6Mode must be left out where neither cidr nor ipv6Cidr is IPv6"),
    validation = Rule::new("!has(self.ipv6Mode) || self.ipv6Mode != 'SLAAC' || ((self.routed || has(self.providerNetwork)) && (has(self.ipv6Cidr) ? (!isCIDR(self.ipv6Cidr) || cidr(self.ipv6Cidr).prefixLength() == 64) : (!isCIDR(self.cidr) || cidr(self.cidr).prefixLength() == 64)))")
        .message("ipv6Mode SLAAC needs a router, which advertises, and an IPv6 network with the length /64"),
    validation = Rule::new("!has(self.reserved) || !isCIDR(self.cidr) || self.reserved.all(r, r.split('-').all(a, !isIP(a) || cidr(self.cidr).containsIP(a))) || (has(self.ipv6Cidr) && isCIDR(self.ipv6Cidr) && self.reserved.all(r, r.split('-').all(a, !isIP(a) || cidr(self.cidr).containsIP(a)) || r.split('-').all(a, !isIP(a) || cidr(self.ipv6Cidr).containsIP(a))))")
        .message("reserved must be addresses inside cidr or ipv6Cidr")
)]
pub struct SubnetSpec {
    /// The Vpc in this namespace. Left out: the Vpc `default`, which the controller creates. Immutable.
    #[serde(default = "default_vpc")]
    pub vpc: Named,
    /// For example 10.20.0.0/24. Immutable.
    #[schemars(length(max = 49))]
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self) == cidr(self).masked()").message("cidr must be a network such as 10.20.0.0/24, with no host bits set"))]
    #[x_kube(validation = Rule::new("!isCIDR(self) || (cidr(self).ip().isGlobalUnicast() && (cidr(self).ip().family() == 4 ? cidr(self).prefixLength() <= 30 : (cidr(self).prefixLength() >= 48 && cidr(self).prefixLength() <= 120)))").message("cidr must be of guests: up to /30 (IPv6: from /48 to /120), and neither link-local, loopback nor multicast"))]
    pub cidr: String,
    /// A second network, of IPv6, beside an IPv4 cidr; for example fd00:20::/64. May be added later, and is immutable then. A VNic
    /// that has its addresses keeps those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 49))]
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self) == cidr(self).masked() && cidr(self).ip().family() == 6 && cidr(self).ip().isGlobalUnicast() && cidr(self).prefixLength() >= 48 && cidr(self).prefixLength() <= 120").message("ipv6Cidr must be an IPv6 network such as fd00:20::/64, from /48 to /120, with no host bits set"))]
    pub ipv6_cidr: Option<String>,
    /// The address of the Vpc's router, which guests are told as their default gateway. Left out, and in the other family: the first
    /// address of the network. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    #[x_kube(validation = Rule::new("isIP(self)").message("gateway must be an IP address such as 10.20.0.1"))]
    pub gateway: Option<String>,
    /// Whether the Subnet is at the router of its Vpc. False: its VNics reach each other and, but for providerNetwork, nobody else.
    #[serde(default = "subnet::yes")]
    pub routed: bool,
    /// The ProviderNetwork on whose VLAN the Subnet is: its VNics are hosts of that network of the data centre, with addresses of it, as
    /// far as their SecurityGroups allow. cidr and ipv6Cidr are those of the ProviderNetwork, whose routers are the way out, and
    /// routed is false. A ProviderNetwork has one Subnet. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub provider_network: Option<String>,
    /// How guests get their IPv6 address. Left out: StatefulDHCP. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_mode: Option<Ipv6Mode>,
    /// What DHCP tells beside the addresses. Left out: it is enabled, with leases of an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<Dhcp>,
    /// The MTU of the guests. Left out: 1442, what an underlay of 1500 bytes leaves beside the headers of Geneve over IPv4;
    /// 1500 with providerNetwork, where there are no such headers. Over IPv6 (ovn-encap-ip) the headers take 20 bytes more:
    /// write 1422, or give the underlay 1520. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1280, max = 9000))]
    pub mtu: Option<u16>,
    /// Addresses that are given only to VNics that ask for them, for example 10.20.0.100-10.20.0.199.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 91)), extend("x-kubernetes-list-type" = "set"))]
    #[x_kube(validation = Rule::new("self.all(r, r.split('-').size() <= 2 && r.split('-').all(a, isIP(a)))").message("reserved must be addresses such as 10.20.0.9, or ranges such as 10.20.0.100-10.20.0.199"))]
    pub reserved: Vec<String>,
    /// Whether guests whose machine has cloudInit.source: Metadata are answered at the metadata address of this Subnet. Disabled: OVN has
    /// no port there, and DHCP tells no route to it. Immutable.
    #[serde(default)]
    pub metadata: Metadata,
}

pub fn default_vpc() -> Named {
    Named { name: DEFAULT.to_owned() }
}

/// What the controller says of the Subnet.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubnetStatus {
    /// The MTU of the guests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// The router's addresses, one of each family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// How much of the IPv4 network is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Usage>,
    /// How much of the IPv6 network is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Usage>,
    /// What OVN's north-bound database has of the Subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programmed: Option<Programmed>,
    /// Programmed, InForce, Ready; while it is being deleted, Deletable.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// One virtual NIC. An interface with a subnet gets one of its own; one made by hand can move between machines.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "VNic",
    plural = "vnics",
    shortname = "vnic",
    category = "metal",
    namespaced,
    status = "VNicStatus",
    derive = "PartialEq",
    doc = "A virtual NIC: a subnet, a MAC address and addresses.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Subnet", type_ = "string", json_path = ".spec.subnet"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.addresses[0]"),
    printcolumn(name = "MAC", type_ = "string", json_path = ".status.macAddress"),
    printcolumn(name = "Dpu", type_ = "string", json_path = ".status.holder.dpuName"),
    printcolumn(name = "InForce", type_ = "string", json_path = r#".status.conditions[?(@.type=="InForce")].status"#),
    printcolumn(
        name = "Assigned",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="AddressesAssigned")].status"#,
        priority = "1"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="AddressesAssigned")].reason"#,
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self.subnet == oldSelf.subnet && has(self.addresses) == has(oldSelf.addresses) && (!has(self.addresses) || self.addresses == oldSelf.addresses) && has(self.macAddress) == has(oldSelf.macAddress) && (!has(self.macAddress) || self.macAddress == oldSelf.macAddress)")
        .message("subnet, addresses and macAddress are immutable: make another VNic"),
    validation = Rule::new("has(self.nodeName) == has(oldSelf.nodeName) && (!has(self.nodeName) || self.nodeName == oldSelf.nodeName)")
        .message("nodeName is immutable: make another VNic")
)]
pub struct VNicSpec {
    /// The Subnet in this namespace.
    #[schemars(length(min = 1, max = 253))]
    pub subnet: String,
    /// Addresses in the subnet. Left out: the controller chooses one of each family that the subnet has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8), inner(length(max = 45)))]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a))").message("addresses must be IP addresses such as 10.20.0.7, without a prefix length"))]
    pub addresses: Vec<String>,
    /// Lower case with colons. Default: made from the UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 17), regex(pattern = r"^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$"))]
    pub mac_address: Option<String>,
    /// SecurityGroups in this namespace, of the Subnet's Vpc. May change while the guest runs. Left out: those of the Vpc
    /// (defaultSecurityGroups).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub security_groups: Option<Vec<String>>,
    /// Addresses beside its own that the guest may send from and receive at, of either family: one of a VNic of this Subnet that no
    /// machine and no pod has (a virtual IP, by VRRP for example), or an address or a network outside every Subnet of the Vpc (what is
    /// behind an appliance, 10.90.0.0/16 for example). May change while the guest runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 49)), extend("x-kubernetes-list-type" = "set"))]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a) || (isCIDR(a) && cidr(a) == cidr(a).masked()))").message("allowedAddresses must be addresses such as 10.20.0.200, or networks such as 10.90.0.0/16 with no host bits set"))]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a) ? ip(a).isGlobalUnicast() : (!isCIDR(a) || (cidr(a).ip().isGlobalUnicast() && (cidr(a).ip().family() == 4 ? (cidr(a).prefixLength() >= 8 && !cidr(a).containsIP('169.254.169.254')) : cidr(a).prefixLength() >= 16))))").message("allowedAddresses must be of hosts: neither link-local (169.254.0.0/16, fe80::/10), loopback nor multicast, and no network larger than a /8 (IPv6: a /16)"))]
    pub allowed_addresses: Vec<String>,
    /// The highest rates of the VNic. Left out: no limit. May change while the guest runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<Qos>,
    /// For something on this node that is neither a machine's nor a pod's: a port of the node's bridge with the external IDs
    /// `iface-id` mp-UID and `iface-id-ver` UID.0, of this VNic's UID. A pod on this node may name the VNic, and has it then. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub node_name: Option<String>,
}

/// What is observed of the VNic, and who may use it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VNicStatus {
    /// The addresses that this VNic has, each with an AddressHold. Set once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// The MAC address in use: that of the spec, or one made from the UID. Set once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// The attachment that may use this VNic now; changes by compare-and-swap only, as a VolumeHold does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<crate::hold::Holder>,
    /// The grant that the holder has; its epoch only grows.
    #[serde(default)]
    pub grant: Grant,
    /// What OVN's north-bound database has of the VNic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programmed: Option<Programmed>,
    /// Those of spec.allowedAddresses that OVN lets the guest send from and receive at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_addresses: Vec<String>,
    /// AddressesAssigned, Programmed, InForce; MetadataServed, which is only ever false; while it is being deleted, Deletable.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Objects that have all of these labels.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Labels {
    /// The labels. Empty: every object.
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Programmed {
    /// The generation of the object whose rows are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The number (nb_cfg) that was asked for after the rows were committed: a chassis that has reached it has installed them. Of a
    /// SecurityGroup and a Subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nb_cfg: Option<u64>,
    /// Of a VNic: the grant by which the port can be bound. Left out: nobody can bind the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}
