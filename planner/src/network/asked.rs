//! What a VNic asks for and has, and what it is judged by.

use crate::machine::OrphanOn;
use crate::machine::observed::uid;
use crate::reason::Reason;
use api::conditions::{self, ADDRESSES_ASSIGNED};
use api::network::canonical;
use api::{AddressHold, NicAttachment, ProviderNetwork, Subnet, VNic, labels, names};
use jiff::Timestamp;
use std::sync::Arc;

/// How many MAC addresses are tried for a VNic that asks for none.
const ATTEMPTS: u32 = 4;

#[derive(Debug, Clone)]
pub struct Observed {
    pub vnic: Arc<VNic>,
    /// The one that the VNic names.
    pub subnet: Option<Arc<Subnet>>,
    /// The one that the Subnet names.
    pub provider: Option<Arc<ProviderNetwork>>,
    /// Why the Subnet gives no address ([`super::admission::refused`]).
    pub refused: Option<Reason>,
    /// Of this VNic, and of its [`interests`], whoever has them, by whichever name ([`super::provider::hold_names`]); where it asks for no
    /// address also those of other ProviderNetworks of its VLAN.
    pub holds: Vec<Arc<AddressHold>>,
    /// Other VNics of the Subnet that have or ask for one of its [`interests`]; where it asks for no address also those that
    /// [`runs_unassigned`].
    pub rivals: Vec<Arc<VNic>>,
    /// Of this VNic.
    pub attachments: Vec<Arc<NicAttachment>>,
    /// NICs that hosts have and no attachment explains.
    pub orphans: Vec<OrphanOn>,
    /// The Subnet's holds were listed from quorum for this plan.
    pub is_listed: bool,
}

/// The addresses that a VNic asks for, each once, as RFC 5952 writes them.
pub fn asked(vnic: &VNic) -> Vec<String> {
    let mut all = Vec::new();
    for address in vnic.spec.addresses.iter().map(|address| canonical(address)) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

/// The addresses that it asks for, else those that it has.
pub fn fixed(vnic: &VNic) -> Vec<String> {
    let has = || vnic.status.iter().flat_map(|status| &status.addresses).map(|address| canonical(address)).collect();
    Some(asked(vnic)).filter(|asked| !asked.is_empty()).unwrap_or_else(has)
}

/// It has none, and asks for none.
pub fn chooses(vnic: &VNic) -> bool {
    fixed(vnic).is_empty()
}

/// A host may have its addresses, and no hold says so.
pub fn runs_unassigned(vnic: &VNic) -> bool {
    is_held(vnic) && !is_assigned(vnic)
}

/// Every address and MAC address that the VNic may have; an address that is still to be chosen is none.
pub fn interests(vnic: &VNic) -> Vec<String> {
    let mut all = fixed(vnic);
    all.extend(macs(vnic));
    all
}

/// The MAC address that it has or asks for, or else those that it may get, the first one first.
pub(super) fn macs(vnic: &VNic) -> Vec<String> {
    let has = vnic.status.as_ref().and_then(|status| status.mac_address.as_deref());
    match has.or(vnic.spec.mac_address.as_deref()) {
        Some(mac) => vec![canonical(mac)],
        None => (0..ATTEMPTS).map(|attempt| names::mac(uid(&vnic.metadata), attempt)).collect(),
    }
}

/// What must have a hold: the addresses, and a MAC address that was asked for.
pub(super) fn held_by_name(vnic: &VNic) -> Vec<String> {
    let mut all = fixed(vnic);
    all.extend(vnic.spec.mac_address.as_deref().map(canonical));
    all
}

/// Who comes first where nobody has a hold yet: one that a machine holds, then the oldest.
pub fn seniority(vnic: &VNic) -> (bool, Option<Timestamp>, String) {
    let meta = &vnic.metadata;
    (!is_held(vnic), meta.creation_timestamp.as_ref().map(|at| at.0), uid(meta).to_owned())
}

/// An attachment may use it now.
pub(crate) fn is_held(vnic: &VNic) -> bool {
    vnic.status.as_ref().is_some_and(|status| status.holder.is_some())
}

pub fn is_assigned(vnic: &VNic) -> bool {
    vnic.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, ADDRESSES_ASSIGNED))
}

/// The machines that use it have not given it back: a mark without an attachment is about to become one.
pub fn is_marked(vnic: &VNic) -> bool {
    vnic.metadata.annotations.iter().flatten().any(|(key, _)| key.starts_with(labels::IN_USE_BY))
}
