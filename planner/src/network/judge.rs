//! Whether a VNic may have one address, and if not who has it.

use super::asked::{Observed, fixed, is_held, macs, runs_unassigned, seniority};
use super::provider;
use super::rows::{self, PREFIX};
use super::{cidr, desired};
use crate::machine::OrphanOn;
use crate::machine::is_port_of;
use crate::machine::observed::{name, uid};
use crate::reason::{Blocked, Reason, Waiting};
use api::network::canonical;
use api::{AddressHold, Subnet, VNic};
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// It has the hold.
    Own,
    /// Nobody has it.
    Free,
    Not(Reason),
}

/// `address`: an address, or a MAC address that is asked for.
pub(super) fn address(o: &Observed, subnet: &Subnet, address: &str) -> Verdict {
    if let Some(hold) = hold(o, subnet, address) {
        return match hold.spec.owner.uid == uid(&o.vnic.metadata) {
            // After a restore of etcd a hold may be there before the first report of the orphan is.
            true => orphan(o, address).map_or(Verdict::Own, |one| Verdict::Not(shown(one, address))),
            false => Verdict::Not(has(o, subnet, hold, address)),
        };
    }
    let is_address = address.parse::<IpAddr>().is_ok();
    let unfit = if is_address { unfit(o, subnet, address) } else { port_of_subnet(subnet, address) };
    let subnet = name(&subnet.metadata);
    let taken = unfit
        .or_else(|| orphan(o, address).map(|one| shown(one, address)))
        .or_else(|| before_it(o, address, is_address).map(|rival| taken(address, subnet, name(&rival.metadata))));
    taken.map_or(Verdict::Free, Verdict::Not)
}

/// Of a MAC address that the VNic has, or one made from its UID: nobody else is known to have it.
pub(super) fn mac_is_free(o: &Observed, subnet: &Subnet, mac: &str) -> bool {
    let has_it = o.vnic.status.as_ref().is_some_and(|status| status.mac_address.is_some());
    let own = |hold: &Arc<AddressHold>| hold.spec.owner.uid == uid(&o.vnic.metadata);
    let held = hold(o, subnet, mac);
    let rival = || o.rivals.iter().any(|rival| has_mac(rival, mac));
    let is_free = || orphan(o, mac).is_none() && !rival() && port_of_subnet(subnet, mac).is_none();
    has_it || held.is_some_and(own) || (held.is_none() && is_free())
}

/// A port that the Subnet has itself is at that MAC address.
fn port_of_subnet(subnet: &Subnet, mac: &str) -> Option<Reason> {
    let own = uid(&subnet.metadata);
    let what = [(desired::router_mac(own), "router"), (rows::metadata_port(own).1, "metadata port")];
    let what =
        what.into_iter().find(|(of_port, _)| of_port == mac).map(|(_, port)| format!("MAC address of the {port}"));
    let (address, subnet) = (mac.to_owned(), name(&subnet.metadata).to_owned());
    Some(Blocked::AddressReserved { address, subnet, what: what? }.into())
}

fn hold<'a>(o: &'a Observed, subnet: &Subnet, address: &str) -> Option<&'a Arc<AddressHold>> {
    let hold = provider::hold_name(&subnet.metadata, o.provider.as_deref(), address);
    // Which VLAN it is on is not known without the ProviderNetwork; what it has it keeps.
    let is_unknown = subnet.spec.provider_network.is_some() && o.provider.is_none();
    let own = |there: &AddressHold| {
        let same = there.spec.subnet.uid == uid(&subnet.metadata) && there.spec.held() == canonical(address);
        same && there.spec.owner.uid == uid(&o.vnic.metadata)
    };
    let by_name = o.holds.iter().find(|there| name(&there.metadata) == hold || (is_unknown && own(there)));
    // Of a VLAN, by the name that the hold had before (`provider::hold_names`). One of its own is none: it gets another one.
    let before = |there: &&Arc<AddressHold>| {
        there.spec.held() == canonical(address) && there.spec.owner.uid != uid(&o.vnic.metadata)
    };
    by_name.or_else(|| o.holds.iter().filter(|_| o.provider.is_some()).find(before))
}

/// What the Subnet, and the ProviderNetwork that it is on, say of the address.
fn unfit(o: &Observed, subnet: &Subnet, address: &str) -> Option<Reason> {
    let (of, address) = (name(&subnet.metadata).to_owned(), address.to_owned());
    if cidr::family_of(&subnet.spec, &address).is_none() {
        let all: Vec<String> = cidr::networks(&subnet.spec).iter().map(ToString::to_string).collect();
        return Some(Blocked::AddressOutsideSubnet { address, subnet: of, cidr: all.join(" and ") }.into());
    }
    let of_provider = || provider::reserved(o.provider.as_ref()?, &address);
    let what = cidr::reserved(&subnet.spec, &address).map(str::to_owned).or_else(of_provider)?;
    Some(Blocked::AddressReserved { address, subnet: of, what }.into())
}

/// Whose hold it is.
fn has(o: &Observed, subnet: &Subnet, hold: &AddressHold, address: &str) -> Reason {
    let owner = &hold.spec.owner;
    // Of the same VLAN.
    let is_other = hold.spec.subnet.uid != uid(&subnet.metadata);
    if owner.kind != "VNic" && is_other {
        return provider::taken(hold);
    }
    if is_other {
        return taken(address, &hold.spec.subnet.name, &owner.name);
    }
    if owner.kind != "VNic" {
        let (subnet, what) = (hold.spec.subnet.name.clone(), "gateway".to_owned());
        return Blocked::AddressReserved { address: address.to_owned(), subnet, what }.into();
    }
    let there = o.rivals.iter().find(|rival| uid(&rival.metadata) == owner.uid);
    let stays = there.filter(|rival| rival.metadata.deletion_timestamp.is_none());
    match stays {
        Some(rival) => taken(address, &hold.spec.subnet.name, name(&rival.metadata)),
        None => {
            let (subnet, vnic) = (hold.spec.subnet.name.clone(), owner.name.clone());
            Waiting::AddressReleasing { address: address.to_owned(), subnet, vnic }.into()
        }
    }
}

fn taken(address: &str, subnet: &str, vnic: &str) -> Reason {
    let (subnet, vnic) = (subnet.to_owned(), vnic.to_owned());
    match address.parse::<IpAddr>() {
        Ok(_) => Blocked::AddressTaken { address: address.to_owned(), subnet, vnic }.into(),
        Err(_) => Blocked::MacTaken { mac: address.to_owned(), subnet, vnic }.into(),
    }
}

/// Another VNic that has it without a hold: one that a machine holds since before there were holds, or one whose MAC address was
/// made from its UID.
fn before_it<'a>(o: &'a Observed, address: &str, is_address: bool) -> Option<&'a Arc<VNic>> {
    let first = |rival: &VNic| is_held(rival) && seniority(rival) < seniority(&o.vnic);
    let asks = |rival: &VNic| fixed(rival).iter().any(|other| other == address);
    o.rivals.iter().find(|rival| match is_address {
        true => asks(rival) && first(rival),
        // One that asks for it too gets it by a hold.
        false => has_mac(rival, address) && (rival.spec.mac_address.is_none() || first(rival)),
    })
}

fn has_mac(vnic: &VNic, mac: &str) -> bool {
    let has = vnic.status.as_ref().and_then(|status| status.mac_address.as_deref());
    has.is_some() && macs(vnic).iter().any(|own| own == mac)
}

/// Addresses that somebody may have although nobody has a hold of them.
pub(super) fn without_hold(o: &Observed) -> impl Iterator<Item = String> {
    let rivals = o.rivals.iter().filter(|rival| runs_unassigned(rival)).flat_map(|rival| fixed(rival));
    let shown = orphans(o).flat_map(|one| &one.orphan.addresses);
    rivals.chain(shown.map(|address| canonical(address)))
}

/// A NIC that a host has and no attachment explains, but not this VNic's own: what becomes of that one is said when it is granted.
fn orphan<'a>(o: &'a Observed, address: &str) -> Option<&'a OrphanOn> {
    let of_it = |one: &&OrphanOn| {
        one.orphan.addresses.iter().chain(&one.orphan.mac_address).any(|has| canonical(has) == address)
    };
    orphans(o).find(of_it)
}

/// Those that may be in its Subnet.
fn orphans(o: &Observed) -> impl Iterator<Item = &OrphanOn> {
    let namespace = format!("{}.", o.vnic.metadata.namespace.as_deref().unwrap_or_default());
    o.orphans.iter().filter(move |one| {
        // A port of before there was OVN is named after its VNic's namespace, in which the Subnet is; of others nothing tells it.
        let here = match one.orphan.logical_port.as_deref() {
            Some(port) if is_port_of(port, &o.vnic.metadata) => false,
            Some(port) => port.starts_with(&namespace) || port.starts_with(PREFIX),
            None => true,
        };
        here && !one.is_down()
    })
}

fn shown(there: &OrphanOn, address: &str) -> Reason {
    let (address, dpu, uid) = (address.to_owned(), there.dpu.name().to_owned(), there.orphan.uid.clone());
    Waiting::AddressShownElsewhere { address, dpu, uid }.into()
}
