//! The port of one VNic: which rows OVN has of it, and by which grant it can be bound.
//!
//! Written from `VNic.status` alone, so that two ports with one address would need two holds. The VNic's holder stays the hold; the
//! port is its image, written after the hold and before the grant: an agent that plugs by an earlier grant binds nothing.

pub use super::groups::named as groups;
pub use crate::vnic::logical_port;

use super::rows::{Binding, Found, Port, Rates, version_of};
use super::{addresses, allowed, chassis, desired, groups as group};
use crate::machine::observed::{name, uid};
use crate::reason::{Reason, Waiting};
use api::network::{Ipv6Mode, Programmed, Qos};
use api::{Dpu, NicAttachment, SecurityGroup, Subnet, VNic, Vpc, conditions};
use std::collections::BTreeSet;
use std::sync::Arc;

pub struct Observed<'a> {
    pub vnic: &'a VNic,
    /// The one that the VNic names, and the Vpc of it.
    pub subnet: Option<&'a Subnet>,
    pub vpc: Option<&'a Vpc>,
    /// Of the VNic.
    pub attachments: &'a [Arc<NicAttachment>],
    /// That of the VNic's holder, or of its node.
    pub dpu: Option<&'a Dpu>,
    /// The other VNics whose guests may have one of its addresses ([`allowed::said`]).
    pub parents: Vec<Parent>,
    /// Another Dpu has the Dpu's chassis ([`chassis::taken`]).
    pub taken: Option<Reason>,
    /// The chassis lacks what the Subnet is on ([`chassis::lacks`]).
    pub lacked: Option<Reason>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parent {
    /// What its port is called.
    pub port: String,
    pub vnic: String,
    /// Of those of the virtual port.
    pub address: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// `None`: what is there stays.
    pub port: Option<Port>,
    /// By which grant the port can be bound.
    pub epoch: Option<u64>,
    /// Why it is not all that was asked for.
    pub reason: Option<Reason>,
}

/// What its port is called: one of before there was OVN keeps its name.
pub fn name_of(vnic: &VNic, attachments: &[Arc<NicAttachment>]) -> String {
    let named = attachments.iter().map(|attachment| attachment.spec.logical_port.clone()).next();
    named.unwrap_or_else(|| logical_port(uid(&vnic.metadata)))
}

/// `security_group`: by name, in the VNic's namespace. `vnics`: those of its Subnet that have, or ask for, an address.
pub fn plan(
    o: &Observed<'_>,
    security_group: impl Fn(&str) -> Option<Arc<SecurityGroup>>,
    vnics: impl Fn(&str) -> Vec<Arc<VNic>>,
) -> Plan {
    let nothing = |reason: Option<Reason>| Plan { port: None, epoch: None, reason };
    if !addresses::is_assigned(o.vnic) {
        // The condition AddressesAssigned says why.
        return nothing(None);
    }
    let ready = o.subnet.filter(|subnet| super::ready::is_ready(subnet.status.as_ref().map(|s| &*s.conditions)));
    let (Some(subnet), Some(vpc)) = (ready, o.vpc) else {
        let said = o.subnet.and_then(|subnet| conditions::get(&subnet.status.as_ref()?.conditions, conditions::READY));
        let message = said.map(|said| said.message.clone()).unwrap_or_default();
        return nothing(Some(Waiting::SubnetNotReady { subnet: o.vnic.spec.subnet.clone(), message }.into()));
    };
    // One that is bound stays where it is when another node comes by its chassis' name.
    let taken = o.taken.clone().filter(|_| is_programmed(o.vnic).is_err());
    if let Some(reason) = taken.or_else(|| o.lacked.clone()) {
        return nothing(Some(reason));
    }
    let status = o.vnic.status.clone().unwrap_or_default();
    let (groups, missing) = group::of(o.vnic, vpc, security_group);
    let (binding, unbound) = unshared(o, binding(o));
    let (own, dhcp) = (uid(&o.vnic.metadata), desired::dhcp(subnet));
    let (allowed, refused) = allowed::of(o.vnic, subnet, vpc, vnics);
    let parents: BTreeSet<String> = o.parents.iter().map(|parent| parent.port.clone()).collect();
    let port = Port {
        uid: own.to_owned(),
        name: name_of(o.vnic, o.attachments),
        subnet_uid: uid(&subnet.metadata).to_owned(),
        mac: status.mac_address.unwrap_or_default(),
        addresses: status.addresses.iter().filter_map(|address| address.parse().ok()).collect(),
        dhcp: (dhcp, dhcp && subnet.spec.ipv6_mode != Some(Ipv6Mode::SLAAC)),
        groups,
        binding,
        allowed,
        parents: parents.into_iter().collect(),
        rates: rates(o.vnic.spec.qos.unwrap_or_default()),
    };
    let epoch = port.binding.as_ref().map(|binding| binding.epoch);
    Plan { port: Some(port), epoch, reason: missing.or(unbound).or(refused) }
}

fn rates(qos: Qos) -> Rates {
    let kbps = |mbps: Option<u32>| mbps.map(|mbps| i64::from(mbps) * 1_000);
    Rates { ingress: kbps(qos.ingress_mbps), egress: kbps(qos.egress_mbps) }
}

/// In the version of a VNic that is bound by its `nodeName`. Grants begin with 1.
const OF_NODE: u64 = 0;

fn binding(o: &Observed<'_>) -> (Option<Binding>, Option<Reason>) {
    let Some(status) = &o.vnic.status else { return (None, None) };
    let of = |dpu: &Dpu| chassis::reported(dpu).map(str::to_owned);
    let (chassis, attachment_uid, epoch, dpu_name) = match (&status.holder, &o.vnic.spec.node_name) {
        (Some(holder), _) => {
            let same = o.dpu.filter(|dpu| uid(&dpu.metadata) == holder.dpu_uid);
            (same.and_then(of), holder.attachment_uid.clone(), status.grant.epoch, &holder.dpu_name)
        }
        // Whoever is root there plugs it; no grant has this epoch.
        (None, Some(node)) => {
            let there = o.dpu.filter(|dpu| name(&dpu.metadata) == node);
            (there.and_then(of), uid(&o.vnic.metadata).to_owned(), OF_NODE, node)
        }
        (None, None) => return (None, None),
    };
    match chassis {
        Some(chassis) => (Some(Binding { chassis, attachment_uid, epoch }), None),
        None => (None, Some(Waiting::ChassisUnknown { dpu: dpu_name.clone() }.into())),
    }
}

/// An address is at one port that is bound: it is bound after OVN lets no other guest have the address. One that is bound already stays so.
fn unshared(
    o: &Observed<'_>,
    (binding, unbound): (Option<Binding>, Option<Reason>),
) -> (Option<Binding>, Option<Reason>) {
    let parent = o.parents.first().filter(|_| binding.is_some() && is_programmed(o.vnic).is_err());
    let Some(Parent { vnic: by, address, .. }) = parent.cloned() else { return (binding, unbound) };
    let vnic = name(&o.vnic.metadata).to_owned();
    (None, Some(Waiting::AddressStillShared { address, vnic, by }.into()))
}

/// The VNic as OVN has it, whose word it is under which grant the port may be bound: its status says so later, with what else there is to
/// say. `rows`: those of the VNic that are committed. One transaction writes them all, so that where its version is, all of them were.
pub fn as_written(vnic: &Arc<VNic>, rows: &[Found]) -> Arc<VNic> {
    let Some(status) = vnic.status.as_ref().filter(|_| is_programmed(vnic).is_err()) else { return vnic.clone() };
    let Some(holder) = &status.holder else { return vnic.clone() };
    let (chassis, attachment_uid, epoch) = (String::new(), holder.attachment_uid.clone(), status.grant.epoch);
    let binding = Binding { chassis, attachment_uid, epoch };
    if version_of(uid(&vnic.metadata), rows) != Some(binding.version().as_str()) {
        return vnic.clone();
    }
    let mut written = VNic::clone(vnic);
    let programmed = status.programmed.clone().unwrap_or_default();
    written.status.get_or_insert_default().programmed = Some(Programmed { epoch: Some(epoch), ..programmed });
    Arc::new(written)
}

/// Whether OVN has the port of whoever holds the VNic now, else why not.
pub fn is_programmed(vnic: &VNic) -> Result<(), Reason> {
    let status = vnic.status.clone().unwrap_or_default();
    if status.programmed.is_some_and(|programmed| programmed.epoch == Some(status.grant.epoch)) {
        return Ok(());
    }
    let said = conditions::get(&status.conditions, conditions::PROGRAMMED).filter(|said| said.status == "False");
    let why = said.map(|said| said.reason.clone());
    let why = why.unwrap_or_else(|| "the controller is writing the port of the VNic to OVN".to_owned());
    Err(Waiting::VNicNotReady { vnic: name(&vnic.metadata).to_owned(), why }.into())
}
