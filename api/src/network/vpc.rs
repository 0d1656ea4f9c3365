//! `Vpc`: a network of Subnets that reach each other, and see no address of another Vpc.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Of a Subnet that names no Vpc: the controller creates it, and the SecurityGroup of the same name.
pub const DEFAULT: &str = "default";

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
}
