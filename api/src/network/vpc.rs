//! `Vpc`: a network of Subnets that reach each other, and see no address of another Vpc.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Of a Subnet that names no Vpc: the controller creates it, and the SecurityGroup of the same name.
pub const DEFAULT: &str = "default";

/// A network of its own for machines and pods: its Subnets reach each other, and nothing else without a NatGateway.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "Vpc",
    shortname = "vpc",
    category = "metal",
    namespaced,
    status = "VpcStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A network of Subnets: they reach each other by a router, and no other Vpc.",
    crates(kube_core = "::kube_core"),
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
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct VpcSpec {
    /// The SecurityGroups, in this namespace, of VNics that name none. Empty: such a VNic gets its address by DHCP and reaches
    /// nobody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub default_security_groups: Vec<String>,
    /// What guests are told of name servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct Dns {
    /// Addresses of name servers; guests are told those of the families that they have. By router advertisements only the first one
    /// of IPv6.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6), inner(length(max = 45)))]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a))").message("servers must be IP addresses such as 10.20.0.53"))]
    pub servers: Vec<String>,
    /// The domain in which names are looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub domain: Option<String>,
}

/// What the controller says of the Vpc.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VpcStatus {
    /// The Subnets that are in it; no two overlap. Changes by compare-and-swap only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["uid"]))]
    pub subnets: Vec<AdmittedSubnet>,
    /// Ready; while it is being deleted, Deletable.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmittedSubnet {
    /// The Subnet's name.
    pub name: String,
    /// The Subnet's UID.
    pub uid: String,
    /// The Subnet's network.
    pub cidr: String,
    /// The Subnet's second network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_cidr: Option<String>,
}
