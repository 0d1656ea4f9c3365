//! `Vpc`: a network of Subnets that reach each other, and see no address of another Vpc.

use super::Programmed;
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
    /// Where the Vpc's router sends what is for networks outside its Subnets. May change while guests run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["destination"])
    )]
    pub routes: Vec<Route>,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!isCIDR(self.destination) || self.nextHops.all(h, !isIP(h) || ip(h).family() == cidr(self.destination).ip().family())")
        .message("nextHops must be of the family of destination")
)]
pub struct Route {
    /// The network, for example 10.90.0.0/16. The way out to everything else is a NatGateway.
    #[schemars(length(max = 49))]
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self) == cidr(self).masked()").message("destination must be a network such as 10.90.0.0/16, with no host bits set"))]
    #[x_kube(validation = Rule::new("!isCIDR(self) || (cidr(self).ip().isGlobalUnicast() && (cidr(self).ip().family() == 4 ? !cidr(self).containsIP('169.254.169.254') : cidr(self).prefixLength() >= 16))").message("destination must be of hosts: neither link-local (169.254.0.0/16, fe80::/10), loopback nor multicast; for a default route make a NatGateway"))]
    pub destination: String,
    /// Addresses of VNics in Subnets of the Vpc that are routed. Of several each connection takes one (ECMP); whether its guest is
    /// alive is not asked. The guest receives what is in its VNic's allowedAddresses alone: those must have the destination.
    #[schemars(length(min = 1, max = 8), inner(length(max = 45)), extend("x-kubernetes-list-type" = "set"))]
    #[x_kube(validation = Rule::new("self.all(h, isIP(h))").message("nextHops must be IP addresses such as 10.20.0.9"))]
    pub next_hops: Vec<String>,
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
    /// What OVN's north-bound database has of the Vpc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programmed: Option<Programmed>,
    /// Programmed, InForce, Ready; while it is being deleted, Deletable.
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
