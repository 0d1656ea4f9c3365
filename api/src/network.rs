//! `Vpc`, `Subnet`, `SecurityGroup` and `VNic`: the logical network as its users declare it; `AddressHold`: who has which address of
//! it.

mod address;
mod group;
mod vpc;

pub use address::{AddressHold, AddressHoldSpec, AddressOwner, SubnetReference, canonical};
pub use group::{
    EgressRule, Icmp, IngressRule, IpFamily, Peer, PortRange, Protocol, SecurityGroup, SecurityGroupSpec,
    SecurityGroupStatus,
};
pub use vpc::{AdmittedSubnet, DEFAULT, Vpc, VpcSpec, VpcStatus};

use crate::Named;
use crate::attachment::Grant;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    printcolumn(name = "Gateway", type_ = "string", json_path = ".spec.gateway"),
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
    validation = Rule::new("!has(self.gateway) || !isCIDR(self.cidr) || !isIP(self.gateway) || cidr(self.cidr).containsIP(self.gateway)")
        .message("gateway must be an address inside cidr"),
    validation = Rule::new("!has(self.reserved) || !isCIDR(self.cidr) || self.reserved.all(r, r.split('-').all(a, !isIP(a) || cidr(self.cidr).containsIP(a)))")
        .message("reserved must be addresses inside cidr")
)]
pub struct SubnetSpec {
    /// The Vpc in this namespace. Left out: the Vpc `default`, which the controller creates. Immutable.
    #[serde(default = "default_vpc")]
    pub vpc: Named,
    /// For example 10.20.0.0/24. Immutable.
    #[schemars(length(max = 49))]
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self) == cidr(self).masked()").message("cidr must be a network such as 10.20.0.0/24, with no host bits set"))]
    pub cidr: String,
    /// The address of the Vpc's router, which guests are told as their default gateway. Left out: the Subnet has no router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    #[x_kube(validation = Rule::new("isIP(self)").message("gateway must be an IP address such as 10.20.0.1"))]
    pub gateway: Option<String>,
    /// Addresses that are given only to VNics that ask for them, for example 10.20.0.100-10.20.0.199.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 91)), extend("x-kubernetes-list-type" = "set"))]
    #[x_kube(validation = Rule::new("self.all(r, r.split('-').size() <= 2 && r.split('-').all(a, isIP(a)))").message("reserved must be addresses such as 10.20.0.9, or ranges such as 10.20.0.100-10.20.0.199"))]
    pub reserved: Vec<String>,
}

pub fn default_vpc() -> Named {
    Named { name: DEFAULT.to_owned() }
}

/// What the controller says of the Subnet.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubnetStatus {
    /// Ready; while it is being deleted, Deletable.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// One virtual NIC. An interface with a subnet gets one of its own; one made by hand can move between machines.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
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
    printcolumn(
        name = "Assigned",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="AddressesAssigned")].status"#
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
        .message("subnet, addresses and macAddress are immutable: make another VNic")
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
    /// AddressesAssigned, Programmed; while it is being deleted, Deletable.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Programmed {
    /// The grant by which the port can be bound. Left out: nobody can bind the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}
