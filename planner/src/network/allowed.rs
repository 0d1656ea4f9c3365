//! Addresses beside its own that the guest of a VNic may send from and receive at (`spec.allowedAddresses`).
//!
//! Inside the Vpc an address is some VNic's, or nobody's: so one that is in a Subnet must be of a VNic of the same Subnet that no host
//! has, which is a virtual port then (`rows/port.rs`). Once a host has that VNic, nobody else has its address; a VNic with
//! `spec.nodeName` always has one. Outside of every Subnet it may be anything that the Vpc's router is told to send there
//! ([`super::routes`]).
//!
//! *Released last*: another VNic may get the address once its VNic was deleted. So `status.allowedAddresses` names an address before
//! OVN lets the guest have it, and until OVN does no more; a VNic whose address stands there keeps its AddressHolds.

use super::addresses::is_assigned;
use super::admission;
use crate::machine::observed::{name, uid};
use crate::reason::{Blocked, Reason};
use api::network::{AdmittedSubnet, canonical};
use api::{Subnet, VNic, Vpc};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// An address is a network of one.
fn parse(text: &str) -> Option<IpNet> {
    text.parse::<IpAddr>().map(IpNet::from).ok().or_else(|| text.parse().ok())
}

/// The Subnet of the Vpc that has some of these addresses.
fn around(vpc: &Vpc, range: IpNet) -> Option<&AdmittedSubnet> {
    let meets = |subnet: &&AdmittedSubnet| {
        admission::networks_of(subnet).any(|network| network.contains(&range) || range.contains(&network))
    };
    vpc.status.iter().flat_map(|status| &status.subnets).find(meets)
}

/// Those that a VNic asks for, as they are compared: an address as RFC 5952 writes it.
pub fn asked(vnic: &VNic) -> impl Iterator<Item = String> {
    vnic.spec.allowed_addresses.iter().map(|text| canonical(text))
}

/// Those that OVN may let it have.
pub fn said(vnic: &VNic) -> impl Iterator<Item = &String> {
    vnic.status.iter().flat_map(|status| &status.allowed_addresses)
}

/// Whether the VNic has the address, and nobody is about to release it.
pub fn offers(vnic: &VNic, address: &str) -> bool {
    let has = vnic.status.iter().flat_map(|status| &status.addresses).any(|own| own == address);
    has && is_assigned(vnic) && vnic.metadata.deletion_timestamp.is_none()
}

/// The Dpu on whose chassis the VNic's own port is, or may be at any time.
fn bound_to(vnic: &VNic) -> Option<&String> {
    let holder = vnic.status.as_ref().and_then(|status| status.holder.as_ref());
    holder.map(|holder| &holder.dpu_name).or(vnic.spec.node_name.as_ref())
}

/// Whether the guests of other VNics may have the address too.
pub fn shares(vnic: &VNic, address: &str) -> bool {
    offers(vnic, address) && bound_to(vnic).is_none()
}

/// Those that its guest may have, and why not one of the others. `vnics`: those of its Subnet that have, or ask for, an address.
pub(super) fn of(
    vnic: &VNic,
    subnet: &Subnet,
    vpc: &Vpc,
    vnics: impl Fn(&str) -> Vec<Arc<VNic>>,
) -> (Vec<String>, Option<Reason>) {
    let (mut all, mut wrong) = (Vec::new(), None);
    for text in asked(vnic).collect::<BTreeSet<_>>() {
        match judge(&text, vnic, subnet, vpc, &vnics) {
            Ok(()) => all.push(text),
            Err(reason) => {
                wrong.get_or_insert(reason);
            }
        }
    }
    (all, wrong)
}

fn judge(
    text: &str,
    vnic: &VNic,
    subnet: &Subnet,
    vpc: &Vpc,
    vnics: impl Fn(&str) -> Vec<Arc<VNic>>,
) -> Result<(), Reason> {
    let (address, own) = (text.to_owned(), name(&subnet.metadata).to_owned());
    let Some(within) = parse(text).and_then(|range| around(vpc, range)) else { return Ok(()) };
    let here = within.uid == uid(&subnet.metadata);
    match vnics(text).into_iter().find(|other| here && offers(other, text)) {
        None => Err(Blocked::AllowedAddressInSubnet { address, subnet: within.name.clone(), own }.into()),
        Some(other) if other.metadata.uid == vnic.metadata.uid => Ok(()),
        Some(other) => match bound_to(&other) {
            None => Ok(()),
            Some(dpu) => {
                let (vnic, dpu) = (name(&other.metadata).to_owned(), dpu.clone());
                Err(Blocked::AllowedAddressTaken { address, vnic, dpu }.into())
            }
        },
    }
}
