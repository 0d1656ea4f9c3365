//! The way out of a Vpc: which addresses of a ProviderNetwork NatGateways and FloatingIPs have, and what each is in OVN.
//!
//! | file | what |
//! |---|---|
//! | `gateway.rs` | a NatGateway: what it rests on, what its deletion waits for |
//! | `floating.rs` | a FloatingIP: the same |
//! | `nodes.rs` | which chassis carry, and why a node does not |
//! | this one | a ProviderNetwork and its addresses |
//!
//! An address is held as a VNic's is (`addresses.rs`): by an AddressHold of the ProviderNetwork, created before the status says who
//! has it, deleted after its rows.
//!
//! A FloatingIP translates to an address of a VNic, which another VNic may get later. So its status names the VNic before OVN
//! does, and until OVN does no more ([`serves`]); a VNic that is named there keeps its AddressHolds.

mod floating;
mod gateway;
mod nodes;
#[cfg(test)]
mod tests;

pub use super::provider::taken;
pub use floating::{Target, Use, bound, concerned, floating, serves, used_for};
pub use gateway::{first, gateway, rests_on, used_by};
pub use nodes::{Carriers, Node, carriers};

use super::addresses::hold_in;
use super::provider::{networks, vlan};
use super::{cidr, rows};
use crate::machine::observed::{name, uid};
use crate::reason::{Blocked, Reason, Waiting};
use api::network::{AddressOwner, ProviderNetworkSpec, canonical};
use api::{AddressHold, ProviderNetwork, conditions};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What keeps addresses of a ProviderNetwork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    NatGateway,
    FloatingIP,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::NatGateway => "NatGateway",
            Self::FloatingIP => "FloatingIP",
        }
    }

    pub fn of(owner: &AddressOwner) -> Option<Self> {
        [Self::NatGateway, Self::FloatingIP].into_iter().find(|kind| kind.name() == owner.kind)
    }
}

pub fn provider(network: &ProviderNetwork) -> rows::Provider {
    rows::Provider { uid: uid(&network.metadata).to_owned(), vlan: vlan(network) }
}

/// First and last of each of `spec.addresses`.
fn ranges(spec: &ProviderNetworkSpec) -> impl Iterator<Item = (IpAddr, IpAddr)> {
    let networks: Vec<IpNet> = networks(spec).into_iter().map(|(network, _)| network).collect();
    spec.addresses.iter().filter_map(move |range| networks.iter().find_map(|network| cidr::within(range, *network)))
}

/// One that nobody else can have: the data centre's routers and each network's own addresses are not given, whatever the ranges say.
fn is_free_to_give(spec: &ProviderNetworkSpec, address: IpAddr) -> bool {
    let within = networks(spec).into_iter().find(|(network, _)| network.contains(&address));
    within.is_some_and(|(network, gateway)| gateway != Some(address) && !cidr::is_end(network, address))
}

/// Whether an address that was asked for can be had.
pub fn fits(network: &ProviderNetwork, address: &str) -> Result<(), Reason> {
    let spec = &network.spec;
    let known = address.parse::<IpAddr>().ok().filter(|address| is_free_to_give(spec, *address));
    match known.filter(|address| ranges(spec).any(|(first, last)| (first..=last).contains(address))) {
        Some(_) => Ok(()),
        None => {
            let network = name(&network.metadata).to_owned();
            Err(Blocked::ExternalAddressOutside { address: address.to_owned(), network }.into())
        }
    }
}

/// Of which families somebody gets addresses who asks for none: a NatGateway of all, a FloatingIP of the first.
pub fn families(network: &ProviderNetwork, kind: Kind) -> Vec<bool> {
    let mut all: Vec<bool> = networks(&network.spec).iter().map(|(network, _)| network.addr().is_ipv4()).collect();
    all.truncate(if kind == Kind::FloatingIP { 1 } else { all.len() });
    all
}

/// The first one of the family that is not taken. It looks at no more addresses than are taken, and one for each range.
pub fn choose(network: &ProviderNetwork, v4: bool, is_taken: impl Fn(&str) -> bool) -> Result<IpAddr, Reason> {
    let of_family = ranges(&network.spec).filter(|(first, _)| first.is_ipv4() == v4);
    let mut all = of_family.flat_map(|(first, last)| std::iter::successors(Some(first), move |at| next(*at, last)));
    let free = all.find(|address| is_free_to_give(&network.spec, *address) && !is_taken(&address.to_string()));
    free.ok_or_else(|| {
        let (network, family) = (name(&network.metadata).to_owned(), if v4 { "IPv4" } else { "IPv6" }.to_owned());
        Blocked::ProviderNetworkFull { network, family }.into()
    })
}

fn next(address: IpAddr, last: IpAddr) -> Option<IpAddr> {
    let next: IpAddr = match address {
        IpAddr::V4(address) => Ipv4Addr::from(u32::from(address).checked_add(1)?).into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address).checked_add(1)?).into(),
    };
    (next <= last).then_some(next)
}

/// Of a NatGateway or a FloatingIP.
pub fn owner(kind: Kind, meta: &ObjectMeta) -> AddressOwner {
    AddressOwner {
        kind: kind.name().to_owned(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: name(meta).to_owned(),
        uid: uid(meta).to_owned(),
    }
}

pub fn hold(network: &ProviderNetwork, owner: &AddressOwner, address: &str) -> AddressHold {
    hold_in(&network.metadata, Some(network), owner.clone(), &canonical(address))
}

fn is_true(said: Option<&Vec<Condition>>, type_: &str) -> bool {
    said.is_some_and(|said| conditions::is_true(said, type_))
}

fn message(said: Option<&Vec<Condition>>) -> String {
    let said = said.and_then(|said| conditions::get(said, conditions::READY));
    said.map(|said| said.message.clone()).filter(|said| !said.is_empty()).unwrap_or_else(|| "no rows yet".to_owned())
}

/// The chassis of a ProviderNetwork that is in OVN.
pub fn chassis(network: &ProviderNetwork) -> Result<Vec<String>, Reason> {
    let status = network.status.clone().unwrap_or_default();
    let said = Some(&status.conditions);
    if is_true(said, conditions::READY) && network.spec.gateway_nodes.is_empty() {
        let (network, nodes) = (name(&network.metadata).to_owned(), "spec.gatewayNodes names none".to_owned());
        return Err(Blocked::NoGatewayNode { network, nodes }.into());
    }
    if is_true(said, conditions::READY) {
        return Ok(status.chassis);
    }
    let (network, message) = (name(&network.metadata).to_owned(), message(said));
    Err(Waiting::ProviderNetworkNotReady { network, message }.into())
}
