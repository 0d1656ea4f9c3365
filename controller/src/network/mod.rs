//! Subnets and VNics: who has which address (`planner::network`).
//!
//! Each VNic gets its AddressHolds and gives them back; a Subnet that is being deleted goes after the last of them. What an event
//! wakes is found by index (`crate::kinds`): nothing here looks at a whole Subnet.

mod orphaned;
pub(crate) mod subnets;
mod upgrade;
pub(crate) mod vnics;

pub(crate) use upgrade::before_all;

use crate::index::IndexKey;
use api::VNic;
use runtime::queue::Key;

/// The Subnet that a VNic names.
pub(crate) fn subnet_of(vnic: &VNic) -> Key {
    (vnic.metadata.namespace.clone().unwrap_or_default(), vnic.spec.subnet.clone())
}

/// What VNics that have or ask for an address, or a MAC address, are found by.
pub(crate) fn about(subnet: &Key, address: &str) -> IndexKey {
    IndexKey::Address(subnet.clone(), address.to_owned())
}
