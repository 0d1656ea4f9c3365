//! `Subnet` and `VNic`: the logical network as its users declare it; `AddressHold`: who has which address of it.

mod address;

pub use address::{AddressHold, AddressHoldSpec, AddressOwner, SubnetReference, canonical};

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
    category = "metal",
    namespaced,
    status = "SubnetStatus",
    derive = "PartialEq",
    doc = "A range of addresses on the flat network.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "Gateway", type_ = "string", json_path = ".spec.gateway"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self.cidr == oldSelf.cidr").message("cidr is immutable: make another Subnet"),
    validation = Rule::new("!has(self.gateway) || !isCIDR(self.cidr) || !isIP(self.gateway) || cidr(self.cidr).containsIP(self.gateway)")
        .message("gateway must be an address inside cidr")
)]
pub struct SubnetSpec {
    /// For example 10.20.0.0/24. Immutable.
    #[schemars(length(max = 49))]
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self) == cidr(self).masked()").message("cidr must be a network such as 10.20.0.0/24, with no host bits set"))]
    pub cidr: String,
    /// The default gateway that guests are told. Left out: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    #[x_kube(validation = Rule::new("isIP(self)").message("gateway must be an IP address such as 10.20.0.1"))]
    pub gateway: Option<String>,
}

/// What the controller says of the Subnet.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubnetStatus {
    /// Deletable, while it is being deleted.
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
    validation = Rule::new("self == oldSelf").message("spec is immutable: make another VNic"),
    validation = Rule::new("!has(self.securityGroups) || self.securityGroups.size() == 0").message("securityGroups is not served yet: leave it out")
)]
pub struct VNicSpec {
    /// The Subnet in this namespace.
    #[schemars(length(min = 1, max = 253))]
    pub subnet: String,
    /// Addresses in the subnet; at least one for now.
    #[schemars(length(min = 1, max = 8), inner(length(max = 45)))]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a))").message("addresses must be IP addresses such as 10.20.0.7, without a prefix length"))]
    pub addresses: Vec<String>,
    /// Lower case with colons. Default: made from the UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 17), regex(pattern = r"^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$"))]
    pub mac_address: Option<String>,
    /// Not served yet and refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
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
    /// AddressesAssigned; while it is being deleted, Deletable.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
