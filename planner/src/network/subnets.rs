//! What keeps a Subnet: it is deleted when no VNic has an address of it any more. And what it has itself: the addresses of its
//! router have AddressHolds too, so that no VNic has one.
//!
//! The finalizer is put on by the first VNic that gets an address (`addresses.rs`). A VNic that has none yet does not keep the
//! Subnet: it gets none while that is being deleted.

use super::pool::Pool;
use super::provider::without_closed;
use super::{addresses, cidr, desired, user_of};
use crate::machine::observed::{has_finalizer, name, uid};
use crate::reason::{Blocked, Reason, Waiting};
use api::conditions::{self, ConditionStatus, DELETABLE};
use api::network::{AddressOwner, SubnetStatus, Usage};
use api::{AddressHold, NicAttachment, ProviderNetwork, Subnet, VNic, labels};
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Observed {
    pub subnet: Arc<Subnet>,
    /// That name it.
    pub vnics: Vec<Arc<VNic>>,
    /// Of the Subnet's UID.
    pub holds: Vec<Arc<AddressHold>>,
    /// Of those VNics.
    pub attachments: Vec<Arc<NicAttachment>>,
}

#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The Subnet's finalizer goes, once a list from quorum shows that no VNic keeps it.
    pub release: bool,
    /// None: they are so already.
    pub conditions: Option<Vec<Condition>>,
    /// What its deletion waits for.
    pub reason: Option<Reason>,
}

/// The VNic has, or is about to have, addresses of the Subnet that it names.
pub fn keeps(vnic: &VNic) -> bool {
    has_finalizer(&vnic.metadata, labels::FINALIZER_IN_USE) || addresses::is_held(vnic)
}

pub fn plan(o: &Observed, now: Timestamp) -> Plan {
    let meta = &o.subnet.metadata;
    if meta.deletion_timestamp.is_none() || !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        return Plan::default();
    }
    let mut users: Vec<String> = o.vnics.iter().filter(|vnic| keeps(vnic)).map(|vnic| user(vnic, o)).collect();
    let gone = |hold: &&Arc<AddressHold>| {
        !is_own(hold) && !o.vnics.iter().any(|vnic| uid(&vnic.metadata) == hold.spec.owner.uid)
    };
    users.extend(o.holds.iter().filter(gone).map(|hold| format!("AddressHold '{}'", name(&hold.metadata))));
    let Some(first) = users.first() else { return Plan { release: true, ..Plan::default() } };
    let by = match users.len() - 1 {
        0 => first.clone(),
        more => format!("{first} and {more} more"),
    };
    let reason: Reason = Waiting::SubnetInUse { subnet: name(meta).to_owned(), by }.into();
    let before = o.subnet.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let mut said = before.clone();
    let (status, message) = (ConditionStatus::False, reason.told());
    conditions::set(&mut said, DELETABLE, status, reason.name(), &message, meta.generation, now);
    Plan { release: false, conditions: (said != before).then_some(said), reason: Some(reason) }
}

/// The Subnet's own hold, not a VNic's.
pub fn is_own(hold: &AddressHold) -> bool {
    hold.spec.owner.uid == hold.spec.subnet.uid
}

/// The holds that its router needs; a Subnet on a ProviderNetwork has no router.
pub fn own_holds(subnet: &Subnet) -> Vec<AddressHold> {
    let owner = AddressOwner {
        kind: "Subnet".to_owned(),
        namespace: subnet.metadata.namespace.clone().unwrap_or_default(),
        name: name(&subnet.metadata).to_owned(),
        uid: uid(&subnet.metadata).to_owned(),
    };
    let gateways = cidr::families(&subnet.spec).into_iter().filter_map(|family| family.gateway);
    gateways.map(|gateway| addresses::hold_in(&subnet.metadata, None, owner.clone(), &gateway.to_string())).collect()
}

/// Why it cannot have one of them: a VNic has it since before.
pub fn taken(hold: &AddressHold) -> Reason {
    let (address, subnet) = (hold.spec.held().to_owned(), hold.spec.subnet.name.clone());
    Blocked::GatewayTaken { address, subnet, vnic: hold.spec.owner.name.clone() }.into()
}

/// The routers that lead out of it. Those of a ProviderNetwork its status says.
pub fn gateways(subnet: &Subnet) -> Result<Vec<IpAddr>, Reason> {
    if subnet.spec.provider_network.is_none() {
        return Ok(cidr::families(&subnet.spec).into_iter().filter_map(|family| family.gateway).collect());
    }
    match subnet.status.as_ref().filter(|status| status.mtu.is_some()) {
        Some(status) => Ok(status.gateways.iter().filter_map(|gateway| gateway.parse().ok()).collect()),
        None => {
            let message = "the controller has not said which its routers are".to_owned();
            Err(Waiting::SubnetNotReady { subnet: name(&subnet.metadata).to_owned(), message }.into())
        }
    }
}

/// Its status with what is so now. `provider`: that it is on.
pub fn measured(subnet: &Subnet, provider: Option<&ProviderNetwork>, pool: &Pool) -> SubnetStatus {
    let families = desired::families(subnet, provider);
    let usage = |v4: bool| {
        let network = families.iter().map(|family| family.network).find(|network| network.network().is_ipv4() == v4);
        network.map(|network| Usage { total: cidr::total(network), used: pool.used(v4) })
    };
    SubnetStatus {
        mtu: Some(desired::mtu(subnet)),
        gateways: families.iter().filter_map(|family| family.gateway).map(|gateway| gateway.to_string()).collect(),
        ipv4: usage(true),
        ipv6: usage(false),
        ..subnet.status.clone().unwrap_or_default()
    }
}

/// How many addresses of each family a VNic that asks for none can still get, as far as the caches tell.
pub fn free(subnet: &Subnet, provider: Option<&ProviderNetwork>, pool: &Pool) -> Vec<(&'static str, u128)> {
    let on_vlan = provider.map(|provider| without_closed(&subnet.spec, &provider.spec));
    let spec = on_vlan.as_ref().unwrap_or(&subnet.spec);
    let family = |network: IpNet| if network.network().is_ipv4() { "IPv4" } else { "IPv6" };
    let networks = cidr::families(&subnet.spec).into_iter().map(|family| family.network);
    networks.map(|network| (family(network), pool.free(spec, network))).collect()
}

fn user(vnic: &VNic, o: &Observed) -> String {
    let own = format!("VNic '{}'", name(&vnic.metadata));
    user_of(vnic, &o.attachments).map_or(own.clone(), |machine| format!("{own} of {machine}"))
}
