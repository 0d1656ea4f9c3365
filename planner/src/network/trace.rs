//! Whether a packet would pass from one place to another, and which rule of which object decides: from the objects alone, as they
//! are declared. Nothing is sent. What is asked for is the first packet of a connection; answers to it pass by themselves.

mod beside;
mod rules;

use super::rows::{Direction, Family};
use super::{admission, desired};
use crate::machine::observed::{name, uid};
use api::conditions;
use api::machine::AttachPhase;
use api::{FloatingIP, NatGateway, NicAttachment, SecurityGroup, Subnet, VNic, Vpc};
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The objects of one namespace.
#[derive(Debug, Clone, Default)]
pub struct Network {
    pub vpcs: Vec<Vpc>,
    pub subnets: Vec<Subnet>,
    pub groups: Vec<Arc<SecurityGroup>>,
    pub vnics: Vec<VNic>,
    pub gateways: Vec<NatGateway>,
    pub floating: Vec<FloatingIP>,
    /// Of those VNics; `None`: they may not be read, and a port that is granted counts as in force.
    pub attachments: Option<Vec<NicAttachment>>,
}

/// One end of the way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End<'a> {
    VNic(&'a VNic),
    /// In the Vpc of the other end: a VNic that has it, a router, or nobody.
    Address(IpAddr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// An echo request.
    Icmp,
    Tcp(u16),
    Udp(u16),
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Icmp => f.write_str("ICMP echo"),
            Self::Tcp(port) => write!(f, "TCP port {port}"),
            Self::Udp(port) => write!(f, "UDP port {port}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    pub from: String,
    pub to: String,
    pub packet: String,
    /// On every path.
    pub allowed: bool,
    pub paths: Vec<Path>,
    /// What is declared and may not be in force yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Between two addresses of one family.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Path {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub allowed: bool,
    pub steps: Vec<Step>,
}

/// What one object says of the packet.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub allowed: bool,
    pub by: String,
    pub message: String,
    /// The UIDs of the SecurityGroups whose rules say so.
    #[serde(skip)]
    groups: Vec<String>,
}

fn step(allowed: bool, by: String, message: impl Into<String>) -> Step {
    Step { allowed, by, message: message.into(), groups: Vec::new() }
}

/// A VNic with what it rests on.
#[derive(Clone, Copy)]
struct Nic<'a> {
    vnic: &'a VNic,
    subnet: &'a Subnet,
    vpc: &'a Vpc,
}

/// What is at an address.
enum Place<'a> {
    Nic(Nic<'a>),
    Router(&'a Subnet),
    Nobody(&'a Subnet),
    Outside,
}

/// An error: the question has no answer.
pub fn trace(network: &Network, from: End<'_>, to: End<'_>, packet: Packet) -> Result<Trace, String> {
    if from == to {
        return Err("FROM and TO are the same: what a host sends to itself does not reach the network".to_owned());
    }
    let paths = match (from, to) {
        (End::VNic(from), End::VNic(to)) => {
            let (from, to) = (network.nic(from)?, network.nic(to)?);
            let (sources, destinations) = (addresses(from.vnic), addresses(to.vnic));
            let first = |v4: bool| {
                let of = |all: &[IpAddr]| all.iter().copied().find(|address| address.is_ipv4() == v4);
                Some((of(&sources)?, of(&destinations)?))
            };
            let pairs: Vec<_> = [true, false].into_iter().filter_map(first).collect();
            if pairs.is_empty() {
                let of = |nic: &Nic<'_>| format!("VNic '{}'", name(&nic.vnic.metadata));
                return Err(format!("{} and {} have no addresses of one family yet", of(&from), of(&to)));
            }
            let path =
                |(source, destination)| network.path(Place::Nic(from), source, Place::Nic(to), destination, packet);
            pairs.into_iter().map(path).collect()
        }
        (End::VNic(from), End::Address(destination)) => {
            let from = network.nic(from)?;
            let source = of_family(from.vnic, destination)?;
            vec![network.path(Place::Nic(from), source, network.at(from.vpc, destination), destination, packet)]
        }
        (End::Address(source), End::VNic(to)) => {
            let to = network.nic(to)?;
            let destination = of_family(to.vnic, source)?;
            vec![network.path(network.at(to.vpc, source), source, Place::Nic(to), destination, packet)]
        }
        (End::Address(_), End::Address(_)) => {
            return Err("one of FROM and TO must be a VNic or a machine: two addresses tell no Vpc".to_owned());
        }
    };
    let said = |end: End<'_>| match end {
        End::VNic(vnic) => format!("VNic '{}'", name(&vnic.metadata)),
        End::Address(address) => address.to_string(),
    };
    let allowed = paths.iter().all(|path: &Path| path.allowed);
    let notes = network.notes(&paths);
    Ok(Trace { from: said(from), to: said(to), packet: packet.to_string(), allowed, paths, notes })
}

fn addresses(vnic: &VNic) -> Vec<IpAddr> {
    let said = vnic.status.iter().flat_map(|status| &status.addresses);
    said.filter_map(|address| address.parse().ok()).collect()
}

fn of_family(vnic: &VNic, other: IpAddr) -> Result<IpAddr, String> {
    let same = addresses(vnic).into_iter().find(|address| address.is_ipv4() == other.is_ipv4());
    let family = if other.is_ipv4() { "IPv4" } else { "IPv6" };
    same.ok_or_else(|| format!("VNic '{}' has no {family} address, and {other} is one", name(&vnic.metadata)))
}

impl Network {
    fn nic<'a>(&'a self, vnic: &'a VNic) -> Result<Nic<'a>, String> {
        let subnet = self.subnets.iter().find(|subnet| subnet.metadata.name.as_ref() == Some(&vnic.spec.subnet));
        let vnic_name = name(&vnic.metadata);
        let subnet = subnet.ok_or_else(|| format!("VNic '{vnic_name}': there is no Subnet '{}'", vnic.spec.subnet))?;
        let vpc_name = admission::vpc_of(subnet);
        let vpc = self.vpcs.iter().find(|vpc| name(&vpc.metadata) == vpc_name);
        let vpc = vpc.ok_or_else(|| format!("Subnet '{}': there is no Vpc '{vpc_name}'", vnic.spec.subnet))?;
        Ok(Nic { vnic, subnet, vpc })
    }

    fn nics<'a>(&'a self, vpc: &'a Vpc) -> impl Iterator<Item = Nic<'a>> {
        let all = self.vnics.iter().filter_map(|vnic| self.nic(vnic).ok());
        all.filter(|nic| nic.vpc.metadata.uid == vpc.metadata.uid)
    }

    fn at<'a>(&'a self, vpc: &'a Vpc, address: IpAddr) -> Place<'a> {
        if let Some(nic) = self.nics(vpc).find(|nic| addresses(nic.vnic).contains(&address)) {
            return Place::Nic(nic);
        }
        let of_vpc = self.subnets.iter().filter(|subnet| admission::vpc_of(subnet) == name(&vpc.metadata));
        for subnet in of_vpc {
            let Some(family) = family(subnet, vpc, address) else { continue };
            return if family.gateway == Some(address) { Place::Router(subnet) } else { Place::Nobody(subnet) };
        }
        Place::Outside
    }

    fn path(&self, from: Place<'_>, source: IpAddr, to: Place<'_>, destination: IpAddr, packet: Packet) -> Path {
        let mut steps = Vec::new();
        match &from {
            Place::Nic(nic) => steps.push(self.port(nic)),
            Place::Nobody(subnet) if is_on(&to, subnet) => steps.extend(of_data_centre(subnet, source)),
            Place::Router(subnet) | Place::Nobody(subnet) => {
                let message = format!("{source} is no VNic's: nobody sends by it");
                steps.push(step(false, format!("Subnet '{}'", name(&subnet.metadata)), message));
            }
            Place::Outside if vlan_of(&to).is_some() => {
                steps.extend(vlan_of(&to).into_iter().flat_map(|subnet| of_data_centre(subnet, source)))
            }
            Place::Outside => steps.extend(self.in_from_outside(&to, destination, source, packet)),
        }
        if let Place::Nic(nic) = &from {
            steps.push(self.rules(nic, Direction::Egress, destination, packet));
        }
        match (&from, &to) {
            (Place::Nic(a), Place::Nic(b)) => steps.extend(routed(a, source, b, destination)),
            (Place::Nic(a), Place::Router(subnet)) => {
                let by = format!("Subnet '{}'", name(&subnet.metadata));
                let ping = packet == Packet::Icmp;
                let message = if ping { "the router answers" } else { "the router answers ICMP echo only" };
                steps.extend(to_router(a, source).filter(|step| !step.allowed));
                steps.push(step(ping, by, message));
            }
            (Place::Nic(_), Place::Nobody(subnet)) if is_on(&from, subnet) => {
                steps.extend(of_data_centre(subnet, destination))
            }
            (Place::Nic(nic), Place::Outside) if nic.subnet.spec.provider_network.is_some() => {
                steps.extend(of_data_centre(nic.subnet, destination));
            }
            (Place::Nic(_), Place::Nobody(subnet)) => {
                let message = format!("no VNic has {destination}");
                steps.push(step(false, format!("Subnet '{}'", name(&subnet.metadata)), message));
            }
            (Place::Nic(nic), Place::Outside) => steps.extend(self.to_outside(nic, source, destination, packet)),
            _ => {}
        }
        if let Place::Nic(nic) = &to {
            for nic in self.who_answers(nic, destination) {
                steps.push(self.rules(&nic, Direction::Ingress, source, packet));
                steps.push(self.port(&nic));
            }
        }
        let allowed = steps.iter().all(|step| step.allowed);
        Path { source, destination, allowed, steps }
    }

    /// Whether a host has the VNic.
    fn port(&self, nic: &Nic<'_>) -> Step {
        let (meta, status) = (&nic.vnic.metadata, nic.vnic.status.clone().unwrap_or_default());
        let by = format!("VNic '{}'", name(meta));
        let Some(holder) = &status.holder else {
            return match &nic.vnic.spec.node_name {
                Some(node) => {
                    step(true, by, format!("of node '{node}': whether something is plugged there, no object tells"))
                }
                None => step(false, by, "no host has it: no machine with it has been given a server"),
            };
        };
        if let Err(reason) = super::port::is_programmed(nic.vnic) {
            return step(false, by, reason.told());
        }
        let of_it = |attachment: &&NicAttachment| attachment.spec.vnic_uid == uid(meta);
        let attached = |all: &Vec<NicAttachment>| {
            let phase = all.iter().find(of_it).and_then(|found| Some(found.status.as_ref()?.phase));
            phase == Some(AttachPhase::Attached)
        };
        let attached = self.attachments.as_ref().is_none_or(attached);
        let dpu = &holder.dpu_name;
        let message = if attached { "bound, and in force, on" } else { "its port is not in force yet on" };
        step(attached, by, format!("{message} Dpu '{dpu}'"))
    }

    /// By a FloatingIP of the VNic, else by the NatGateway of its Vpc. What becomes of the packet behind that, no object tells.
    fn way_out(&self, nic: &Nic<'_>, source: IpAddr, destination: IpAddr) -> Step {
        if let Some(step) = to_router(nic, source).filter(|step| !step.allowed) {
            return step;
        }
        if let Some((floating, address)) = self.floating_of(nic, source) {
            let message = format!(
                "leaves as {address}, if ProviderNetwork '{}' leads to {destination}",
                floating.spec.provider_network
            );
            return step(true, format!("FloatingIP '{}'", name(&floating.metadata)), message);
        }
        let vpc = name(&nic.vpc.metadata);
        let of_vpc = self.gateways.iter().filter(|gateway| gateway.spec.vpc.name == vpc);
        let Some(gateway) = super::outside::first(of_vpc) else {
            let message = format!("{destination} is in no Subnet of Vpc '{vpc}', and Vpc '{vpc}' has no NatGateway");
            return step(false, format!("Vpc '{vpc}'"), message);
        };
        let by = format!("NatGateway '{}'", name(&gateway.metadata));
        let status = gateway.status.clone().unwrap_or_default();
        let addresses = status.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
        match addresses.into_iter().find(|address| address.is_ipv4() == destination.is_ipv4()) {
            Some(address) if conditions::is_true(&status.conditions, conditions::PROGRAMMED) => {
                let network = &gateway.spec.provider_network;
                step(true, by, format!("leaves as {address}, if ProviderNetwork '{network}' leads to {destination}"))
            }
            Some(_) => step(false, by, "OVN does not have it yet"),
            None => step(false, by, "it has no address of this family"),
        }
    }

    /// Whoever calls from outside calls the outer address of a FloatingIP.
    fn way_in(&self, to: &Place<'_>, destination: IpAddr, source: IpAddr) -> Step {
        let Place::Nic(nic) = to else { return step(false, source.to_string(), "nobody is called") };
        if let Some((floating, address)) = self.floating_of(nic, destination) {
            return step(
                true,
                format!("FloatingIP '{}'", name(&floating.metadata)),
                format!("{address} is translated to {destination}"),
            );
        }
        let (vpc, vnic) = (name(&nic.vpc.metadata), name(&nic.vnic.metadata));
        let message = format!(
            "{source} is in no Subnet of Vpc '{vpc}', and VNic '{vnic}' has no FloatingIP of this family in OVN"
        );
        step(false, format!("Vpc '{vpc}'"), message)
    }

    /// The one that OVN translates to this address of the VNic, with its own address.
    fn floating_of(&self, nic: &Nic<'_>, address: IpAddr) -> Option<(&FloatingIP, IpAddr)> {
        self.floating.iter().find_map(|floating| {
            let status = floating.status.as_ref()?;
            let is_it = status.vnic_uid == nic.vnic.metadata.uid
                && conditions::is_true(&status.conditions, conditions::PROGRAMMED);
            let outer: IpAddr = status.address.as_ref()?.parse().ok()?;
            (is_it && outer.is_ipv4() == address.is_ipv4()).then_some((floating, outer))
        })
    }
}

/// The network of a Subnet that an address is in.
fn family(subnet: &Subnet, vpc: &Vpc, address: IpAddr) -> Option<Family> {
    let families = desired::subnet(subnet, vpc, None)?.families;
    families.into_iter().find(|family| family.network.contains(&address))
}

/// Whether the NIC's Subnet has a router for this family.
fn to_router(nic: &Nic<'_>, address: IpAddr) -> Option<Step> {
    let subnet = name(&nic.subnet.metadata);
    let has = family(nic.subnet, nic.vpc, address).is_some_and(|family| family.gateway.is_some());
    let message = if has { "it has a router" } else { "it is not routed, so there is no way into other Subnets" };
    Some(step(has, format!("Subnet '{subnet}'"), message))
}

/// The Subnet of a NIC, if that is on a VLAN of the data centre.
fn vlan_of<'a>(place: &Place<'a>) -> Option<&'a Subnet> {
    match place {
        Place::Nic(nic) => Some(nic.subnet).filter(|subnet| subnet.spec.provider_network.is_some()),
        _ => None,
    }
}

fn is_on(place: &Place<'_>, subnet: &Subnet) -> bool {
    vlan_of(place).is_some_and(|own| own.metadata.uid == subnet.metadata.uid)
}

/// What is not a VNic's is the data centre's, on the VLAN or behind its routers.
fn of_data_centre(subnet: &Subnet, address: IpAddr) -> Option<Step> {
    let network = subnet.spec.provider_network.as_ref()?;
    Some(step(
        true,
        format!("ProviderNetwork '{network}'"),
        format!("{address} is no VNic's: the data centre's, if anybody's"),
    ))
}

/// From one Subnet to another.
fn routed(from: &Nic<'_>, source: IpAddr, to: &Nic<'_>, destination: IpAddr) -> Vec<Step> {
    if from.vpc.metadata.uid != to.vpc.metadata.uid {
        let (a, b) = (name(&from.vpc.metadata), name(&to.vpc.metadata));
        let message = format!("VNic '{}' is in another Vpc, '{b}': no Vpc reaches another", name(&to.vnic.metadata));
        return vec![step(false, format!("Vpc '{a}'"), message)];
    }
    if from.subnet.metadata.uid == to.subnet.metadata.uid {
        return Vec::new();
    }
    to_router(from, source).into_iter().chain(to_router(to, destination)).collect()
}
