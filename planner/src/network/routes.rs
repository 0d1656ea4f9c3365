//! The static routes of a Vpc: which of its next hops the router is told of, and why not one of them.
//!
//! A next hop is an address that a VNic has: without one the router would ask a Subnet for an address that nobody answers for, or that
//! the next VNic gets. The router reaches it by the Subnet that it is in. What its guest does not get is not known here: only what is
//! in the VNic's `allowedAddresses` passes its port.

use super::admission::networks_of;
use super::allowed;
use super::cidr::families;
use super::rows::Hop;
use crate::machine::observed::name;
use crate::reason::{Blocked, Reason};
use api::network::{Route, canonical};
use api::{Subnet, VNic, Vpc};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// What the router is told of, and what is wrong with one of the others. `subnet`: that of a name. `vnics`: those of that Subnet that
/// have, or ask for, an address.
pub fn plan(
    vpc: &Vpc,
    subnet: impl Fn(&str) -> Option<Arc<Subnet>>,
    vnics: impl Fn(&str, &str) -> Vec<Arc<VNic>>,
) -> (Vec<Hop>, Option<Reason>) {
    let (mut hops, mut wrong) = (Vec::new(), None);
    for (route, hop) in vpc.spec.routes.iter().flat_map(|route| route.next_hops.iter().map(move |hop| (route, hop))) {
        match judge(vpc, route, hop, &subnet, &vnics) {
            Ok(hop) => hops.push(hop),
            Err(reason) => {
                wrong.get_or_insert(reason);
            }
        }
    }
    hops.dedup();
    (hops, wrong)
}

/// Addresses that its routes rest on.
pub fn hops(vpc: &Vpc) -> impl Iterator<Item = String> {
    vpc.spec.routes.iter().flat_map(|route| &route.next_hops).map(|hop| canonical(hop))
}

fn judge(
    vpc: &Vpc,
    route: &Route,
    hop: &str,
    subnet: impl Fn(&str) -> Option<Arc<Subnet>>,
    vnics: impl Fn(&str, &str) -> Vec<Arc<VNic>>,
) -> Result<Hop, Reason> {
    let (vpc_name, destination, hop) = (name(&vpc.metadata).to_owned(), route.destination.clone(), canonical(hop));
    let admitted = || vpc.status.iter().flat_map(|status| &status.subnets);
    let unreachable = || {
        let (destination, hop, vpc) = (destination.clone(), hop.clone(), vpc_name.clone());
        Reason::from(Blocked::NextHopUnreachable { destination, hop, vpc })
    };
    let (Ok(network), Ok(address)) = (destination.parse::<IpNet>(), hop.parse::<IpAddr>()) else {
        // The API server refuses it.
        return Err(unreachable());
    };
    if let Some(subnet) = admitted().find(|subnet| networks_of(subnet).any(|own| own.contains(&network))) {
        return Err(Blocked::RouteInSubnet { destination, vpc: vpc_name, subnet: subnet.name.clone() }.into());
    }
    let within = admitted().find(|subnet| networks_of(subnet).any(|own| own.contains(&address)));
    let is_routed = |subnet: &Arc<Subnet>| {
        families(&subnet.spec).iter().any(|family| family.network.contains(&address) && family.gateway.is_some())
    };
    let subnet = within.and_then(|within| subnet(&within.name)).filter(is_routed).ok_or_else(unreachable)?;
    let subnet = name(&subnet.metadata).to_owned();
    match vnics(&subnet, &hop).iter().any(|vnic| allowed::offers(vnic, &hop)) {
        true => Ok(Hop { destination: network, hop: address }),
        false => Err(Blocked::NextHopMissing { destination, hop, subnet }.into()),
    }
}
