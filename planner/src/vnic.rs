//! By which name and MAC address the network knows a VNic.

use crate::meta::{name, uid};
use crate::network::rows::RowId;
use api::{VNic, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The name of a new VNic's port.
pub fn logical_port(vnic_uid: &str) -> String {
    RowId::of(vnic_uid).name()
}

/// Whether the VNic's port has this name. An attachment of before there was OVN named it by namespace and name, and keeps that.
pub fn is_port_of(port: &str, vnic: &ObjectMeta) -> bool {
    let before = format!("{}.{}", vnic.namespace.as_deref().unwrap_or_default(), name(vnic));
    port == logical_port(uid(vnic)) || port == before
}

/// The MAC address that the VNic has, or will have.
pub fn mac(vnic: &VNic) -> String {
    let status = vnic.status.as_ref().and_then(|status| status.mac_address.clone());
    status.or_else(|| vnic.spec.mac_address.clone()).unwrap_or_else(|| names::mac(uid(&vnic.metadata), 0))
}
