//! `AddressHold`: one object per Subnet and address, so that no address is ever given twice.
//!
//! The name is made from the Subnet's UID and the address, and etcd has one object per name: of two controllers, or two VNics
//! that are created at once, one gets the address, and the other is told who has it. The steps: `docs/design/fencing.md`.

use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Written by the controller only: created before a VNic gets the address, deleted after the last NicAttachment of that VNic.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "AddressHold",
    shortname = "ah",
    category = "metal",
    derive = "PartialEq",
    derive = "Default",
    doc = "Who has one address, or one MAC address, of a Subnet, or one address of a ProviderNetwork.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Namespace", type_ = "string", json_path = ".spec.subnet.namespace", priority = "1"),
    printcolumn(name = "Subnet", type_ = "string", json_path = ".spec.subnet.name"),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "MAC", type_ = "string", json_path = ".spec.macAddress", priority = "1"),
    printcolumn(name = "Owner", type_ = "string", json_path = ".spec.owner.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self == oldSelf").message("spec is immutable: the controller deletes the hold and creates another"),
    validation = Rule::new("has(self.address) != has(self.macAddress)").message("exactly one of address and macAddress must be set")
)]
pub struct AddressHoldSpec {
    /// The Subnet, or the ProviderNetwork (which has no namespace), that the address is of.
    pub subnet: SubnetReference,
    /// An IP address, as RFC 5952 writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    pub address: Option<String>,
    /// A MAC address that was asked for, lower case with colons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 17))]
    pub mac_address: Option<String>,
    /// Who has it.
    pub owner: AddressOwner,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubnetReference {
    /// The Subnet's namespace.
    pub namespace: String,
    /// The Subnet's name.
    pub name: String,
    /// The Subnet's UID.
    pub uid: String,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressOwner {
    /// VNic; Subnet for the address of its router; NatGateway or FloatingIP for an address of a ProviderNetwork.
    pub kind: String,
    /// The owner's namespace.
    pub namespace: String,
    /// The owner's name.
    pub name: String,
    /// The owner's UID.
    pub uid: String,
}

impl AddressHoldSpec {
    /// The address or the MAC address.
    pub fn held(&self) -> &str {
        self.address.as_deref().or(self.mac_address.as_deref()).unwrap_or_default()
    }
}

/// One text per address: RFC 5952 for an IP address, lower case for a MAC address.
pub fn canonical(address: &str) -> String {
    match address.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => address.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn an_address_has_one_text() {
        for text in ["fd00:20::7", "FD00:0020:0:0:0:0:0:7", "fd00:20:0::0:7"] {
            assert_eq!(canonical(text), "fd00:20::7");
        }
        assert_eq!(canonical("10.20.0.7"), "10.20.0.7");
        assert_eq!(canonical("02:AB:cd:00:00:01"), "02:ab:cd:00:00:01");
    }
}
