//! `NatGateway`, a Vpc's way out, and `FloatingIP`, the way in to one VNic.

use super::Programmed;
use crate::Named;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The way out of a Vpc: its VNics leave by addresses of a ProviderNetwork.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "NatGateway",
    plural = "natgateways",
    shortname = "ngw",
    category = "metal",
    namespaced,
    status = "NatGatewayStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "The way out of a Vpc: its VNics reach a ProviderNetwork, and what is behind it, by one address.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Vpc", type_ = "string", json_path = ".spec.vpc.name"),
    printcolumn(name = "Network", type_ = "string", json_path = ".spec.providerNetwork"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.addresses[0]"),
    printcolumn(name = "InForce", type_ = "string", json_path = r#".status.conditions[?(@.type=="InForce")].status"#),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
        priority = "1"
    ),
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
    validation = Rule::new("self == oldSelf").message("vpc, providerNetwork and addresses are immutable: make another NatGateway")
)]
pub struct NatGatewaySpec {
    /// The Vpc in this namespace. A Vpc has one NatGateway. Immutable.
    pub vpc: Named,
    /// The ProviderNetwork that the Vpc reaches. Immutable.
    #[schemars(length(min = 1, max = 253))]
    pub provider_network: String,
    /// The addresses that the Vpc is seen by outside, at most one of each family. Left out: the controller chooses one of each family
    /// that the ProviderNetwork has. Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 2), inner(length(max = 45)))]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a))").message("addresses must be IP addresses such as 203.0.113.10"))]
    #[x_kube(validation = Rule::new("self.size() < 2 || !self.all(a, isIP(a)) || ip(self[0]).family() != ip(self[1]).family()").message("addresses must be at most one of each family"))]
    pub addresses: Vec<String>,
}

/// What the controller says of the NatGateway.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NatGatewayStatus {
    /// The addresses that it has, each with an AddressHold. Set once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// What OVN's north-bound database has of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programmed: Option<Programmed>,
    /// Programmed, InForce, Ready; while it is being deleted, Deletable.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// An address of a ProviderNetwork by which one VNic is reached, and by which it leaves.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "FloatingIP",
    plural = "floatingips",
    shortname = "fip",
    category = "metal",
    namespaced,
    status = "FloatingIPStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "An address of a ProviderNetwork by which one VNic is reached, and seen.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Network", type_ = "string", json_path = ".spec.providerNetwork"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(name = "VNic", type_ = "string", json_path = ".spec.vnic"),
    printcolumn(name = "InForce", type_ = "string", json_path = r#".status.conditions[?(@.type=="InForce")].status"#),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
        priority = "1"
    ),
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
    validation = Rule::new("self.providerNetwork == oldSelf.providerNetwork && has(self.address) == has(oldSelf.address) && (!has(self.address) || self.address == oldSelf.address)")
        .message("providerNetwork and address are immutable: make another FloatingIP")
)]
pub struct FloatingIPSpec {
    /// The ProviderNetwork that the address is of: the one of the NatGateway of the VNic's Vpc. Immutable.
    #[schemars(length(min = 1, max = 253))]
    pub provider_network: String,
    /// The address, of either family. Left out: the controller chooses one, IPv4 if the ProviderNetwork has that. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    #[x_kube(validation = Rule::new("isIP(self)").message("address must be an IP address such as 203.0.113.20"))]
    pub address: Option<String>,
    /// The VNic, in this namespace, that is reached by it. May change. Left out: nobody is, and the address is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub vnic: Option<String>,
}

/// What the controller says of the FloatingIP.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FloatingIPStatus {
    /// The address, which has an AddressHold. Set once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The UID of the VNic that OVN may be translating the address to. The addresses of that VNic stay held for as long as it stands here.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "vnicUID")]
    pub vnic_uid: Option<String>,
    /// What OVN's north-bound database has of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programmed: Option<Programmed>,
    /// Programmed, InForce, Ready.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
