//! `SecurityGroup`: what its members may receive and send. What no rule of a VNic's groups allows is dropped; answers to what is
//! allowed pass.

use super::Programmed;
use crate::Named;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What may reach the VNics of a Vpc that name this group, and what they may reach. Nothing passes without a rule.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "SecurityGroup",
    shortname = "sg",
    category = "metal",
    namespaced,
    status = "SecurityGroupStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "What the VNics in it may receive and send.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Vpc", type_ = "string", json_path = ".spec.vpc.name"),
    printcolumn(name = "Members", type_ = "integer", json_path = ".status.members"),
    printcolumn(name = "Chassis", type_ = "string", json_path = ".status.chassis"),
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
    validation = Rule::new("self.vpc == oldSelf.vpc").message("vpc is immutable: make another SecurityGroup")
)]
pub struct SecurityGroupSpec {
    /// The Vpc, in this namespace, whose VNics may be in the group. Immutable.
    pub vpc: Named,
    /// What members may receive. Empty or left out: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub ingress: Vec<IngressRule>,
    /// What members may send. Left out: everything; empty: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    pub egress: Option<Vec<EgressRule>>,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!has(self.icmp) || !has(self.ports)").message("write either ports or icmp, or two rules")
)]
pub struct IngressRule {
    /// From whom. Left out: from anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub from: Option<Vec<Peer>>,
    /// To which ports of the member. Left out: every protocol and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub ports: Option<Vec<PortRange>>,
    /// ICMP, in place of ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<Icmp>,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!has(self.icmp) || !has(self.ports)").message("write either ports or icmp, or two rules")
)]
pub struct EgressRule {
    /// To whom. Left out: to anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub to: Option<Vec<Peer>>,
    /// To which ports of the peer. Left out: every protocol and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub ports: Option<Vec<PortRange>>,
    /// ICMP, in place of ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<Icmp>,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("has(self.cidr) != has(self.securityGroup)").message("exactly one of cidr and securityGroup must be set"),
    validation = Rule::new("!has(self.except) || has(self.cidr)").message("except needs a cidr to be taken from")
)]
pub struct Peer {
    /// A network of either family, for example 10.20.0.0/16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 49))]
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self) == cidr(self).masked()").message("cidr must be a network such as 10.20.0.0/24, with no host bits set"))]
    pub cidr: Option<String>,
    /// Networks inside cidr that are not meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 49)))]
    #[x_kube(validation = Rule::new("self.all(e, isCIDR(e) && cidr(e) == cidr(e).masked())").message("except must be networks such as 10.20.1.0/24, with no host bits set"))]
    pub except: Vec<String>,
    /// The members of a SecurityGroup in this namespace, and of the same Vpc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_group: Option<Named>,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!has(self.endPort) || (has(self.port) && self.endPort >= self.port)").message("endPort needs port, and must not be less")
)]
pub struct PortRange {
    /// The protocol.
    pub protocol: Protocol,
    /// The port, or the first of a range. Left out: every port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// The last port of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub end_port: Option<u16>,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum IpFamily {
    #[default]
    IPv4,
    IPv6,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Icmp {
    /// ICMP is of IPv4, ICMPv6 of IPv6.
    pub family: IpFamily,
    /// The type of the message (RFC 792; RFC 4443). Left out: every type.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    pub kind: Option<u8>,
}

/// What the controller says of the SecurityGroup.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroupStatus {
    /// How many VNics are in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<u32>,
    /// How many ACLs its rules are in OVN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acls: Option<u32>,
    /// What one member costs its chassis: at most so many flows, for each rule its peers times what its ports are as masks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows_per_member: Option<u64>,
    /// On how many chassis its rules are in force, and how many have a member: 3/3. Left out: they are being installed, or it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chassis: Option<String>,
    /// What OVN's north-bound database has of the SecurityGroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programmed: Option<Programmed>,
    /// Programmed, InForce, Ready; while it is being deleted, Deletable.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
