//! By a guest: routes of the Vpc, and an address that guests share.

use super::{Network, Nic, Packet, Place, Step, addresses, step, to_router};
use crate::machine::observed::name;
use crate::network::allowed;
use crate::network::rows::Direction;
use api::VNic;
use api::network::{Route, canonical};
use ipnet::IpNet;
use std::net::IpAddr;

/// OVN lets its guest have it, beside its own.
fn may_have(vnic: &VNic, address: IpAddr) -> bool {
    let has = |text: &String| match text.parse::<IpNet>() {
        Ok(network) => network.contains(&address),
        Err(_) => text.parse::<IpAddr>() == Ok(address),
    };
    allowed::said(vnic).any(has)
}

impl Network {
    /// The VNics that may have announced an address of a VNic that no host has; else that VNic.
    pub(super) fn who_answers<'a>(&'a self, nic: &Nic<'a>, address: IpAddr) -> Vec<Nic<'a>> {
        let is_held = nic.vnic.status.as_ref().is_some_and(|status| status.holder.is_some());
        let beside = self.nics(nic.vpc).filter(|other| {
            other.subnet.metadata.uid == nic.subnet.metadata.uid && !is_held && may_have(other.vnic, address)
        });
        let beside: Vec<_> = beside.filter(|other| other.vnic.metadata.uid != nic.vnic.metadata.uid).collect();
        if beside.is_empty() { vec![*nic] } else { beside }
    }

    /// The route of the Vpc by which an address is reached: the longest prefix.
    fn route<'a>(nic: &Nic<'a>, address: IpAddr) -> Option<&'a Route> {
        let length = |route: &&Route| {
            let network = route.destination.parse::<IpNet>().ok()?;
            network.contains(&address).then_some(network.prefix_len())
        };
        nic.vpc.spec.routes.iter().filter(|route| length(route).is_some()).max_by_key(length)
    }

    /// By each next hop: a connection takes any of them.
    pub(super) fn to_outside(&self, nic: &Nic<'_>, source: IpAddr, destination: IpAddr, packet: Packet) -> Vec<Step> {
        let Some(route) = Self::route(nic, destination) else { return vec![self.way_out(nic, source, destination)] };
        let mut steps: Vec<Step> = to_router(nic, source).filter(|step| !step.allowed).into_iter().collect();
        for (step, hop) in self.hops(nic, route, destination) {
            steps.push(step);
            if let Some(hop) = hop {
                steps.push(self.rules(&hop, Direction::Ingress, source, packet));
                steps.push(self.port(&hop));
            }
        }
        steps
    }

    /// The other way round: what a next hop passes on.
    pub(super) fn in_from_outside(
        &self,
        to: &Place<'_>,
        destination: IpAddr,
        source: IpAddr,
        packet: Packet,
    ) -> Vec<Step> {
        let by = match to {
            Place::Nic(nic) => Self::route(nic, source).map(|route| (nic, route)),
            _ => None,
        };
        let Some((nic, route)) = by else { return vec![self.way_in(to, destination, source)] };
        let mut steps = Vec::new();
        for (step, hop) in self.hops(nic, route, source) {
            steps.push(step);
            if let Some(hop) = hop {
                steps.push(self.port(&hop));
                steps.push(self.rules(&hop, Direction::Egress, destination, packet));
            }
        }
        steps
    }

    /// What is at each next hop, and whether its guest may have the address that is behind it.
    fn hops<'a>(&'a self, nic: &Nic<'a>, route: &Route, behind: IpAddr) -> Vec<(Step, Option<Nic<'a>>)> {
        let (by, destination) = (format!("Vpc '{}'", name(&nic.vpc.metadata)), &route.destination);
        let hops = route.next_hops.iter().map(|hop| {
            let hop = canonical(hop);
            let has = |other: &Nic<'_>| addresses(other.vnic).iter().any(|own| own.to_string() == hop);
            let Some(there) = self.nics(nic.vpc).find(has) else {
                let message = format!("spec.routes: {destination} is reached by {hop}, which no VNic has");
                return (step(false, by.clone(), message), None);
            };
            let vnic = name(&there.vnic.metadata);
            if !may_have(there.vnic, behind) {
                let message =
                    format!("{behind} is not among the allowedAddresses that OVN has of it: its port drops the packet");
                return (step(false, format!("VNic '{vnic}'"), message), None);
            }
            let message = format!("spec.routes: {destination} is reached by {hop}, VNic '{vnic}'");
            (step(true, by.clone(), message), Some(there))
        });
        hops.collect()
    }
}
