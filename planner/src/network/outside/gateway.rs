//! A NatGateway: the port of a Vpc's router on a ProviderNetwork's switch.

use super::chassis;
use crate::machine::observed::{name, uid};
use crate::network::provider::networks;
use crate::network::ready;
use crate::network::rows::{self, WayOut};
use crate::reason::{Blocked, Reason, Waiting};
use api::{FloatingIP, NatGateway, ProviderNetwork, Vpc, names};
use std::net::IpAddr;
use std::sync::Arc;

/// Which of the NatGateways of one Vpc is in force: the oldest.
pub fn first<'a>(gateways: impl IntoIterator<Item = &'a NatGateway>) -> Option<&'a NatGateway> {
    let age = |gateway: &&NatGateway| {
        let meta = &gateway.metadata;
        (meta.creation_timestamp.as_ref().map(|at| at.0), uid(meta).to_owned())
    };
    gateways.into_iter().min_by_key(age)
}

/// The Vpc and the ProviderNetwork that it names, or why it is nothing in OVN. `of_vpc`: the NatGateways of that Vpc, itself among them.
pub fn rests_on(
    gateway: &NatGateway,
    vpc: Option<Arc<Vpc>>,
    of_vpc: &[Arc<NatGateway>],
    network: Option<Arc<ProviderNetwork>>,
) -> Result<(Arc<Vpc>, Arc<ProviderNetwork>), Reason> {
    let spec = &gateway.spec;
    let vpc = vpc.ok_or_else(|| Blocked::VpcMissing { vpc: spec.vpc.name.clone() })?;
    let first = first(of_vpc.iter().map(AsRef::as_ref)).filter(|first| first.metadata.uid != gateway.metadata.uid);
    if let Some(first) = first {
        let gateway = name(&first.metadata).to_owned();
        return Err(Blocked::VpcHasNatGateway { vpc: spec.vpc.name.clone(), gateway }.into());
    }
    let missing = || Blocked::ProviderNetworkMissing { network: spec.provider_network.clone() };
    let network = network.ok_or_else(missing)?;
    ready::is_programmed(&vpc)?;
    Ok((vpc, network))
}

/// What the deletion of a NatGateway waits for: a FloatingIP that OVN may be translating by it. `floating`: those of its namespace, read
/// from quorum. `vpc_of`: the Vpc of a VNic with this UID; one that is not known may be of any.
pub fn used_by(
    gateway: &NatGateway,
    of_vpc: &[Arc<NatGateway>],
    floating: &[FloatingIP],
    vpc_of: impl Fn(&str) -> Option<String>,
) -> Option<Reason> {
    // By one that is not the Vpc's nothing was ever translated.
    first(of_vpc.iter().map(AsRef::as_ref)).filter(|first| first.metadata.uid == gateway.metadata.uid)?;
    let is_reached = |floating: &&FloatingIP| {
        let vnic = floating.status.as_ref().and_then(|status| status.vnic_uid.as_deref());
        let same_vpc = |vnic: &str| vpc_of(vnic).is_none_or(|vpc| vpc == gateway.spec.vpc.name);
        floating.spec.provider_network == gateway.spec.provider_network && vnic.is_some_and(same_vpc)
    };
    let one = floating.iter().find(is_reached)?;
    let (gateway, by) = (name(&gateway.metadata).to_owned(), format!("FloatingIP '{}'", name(&one.metadata)));
    Some(Waiting::NatGatewayInUse { gateway, by }.into())
}

/// `addresses`: those that it has the holds of.
pub fn gateway(
    gateway: &NatGateway,
    vpc: &Vpc,
    network: &ProviderNetwork,
    addresses: &[String],
) -> Result<rows::Gateway, Reason> {
    let networks = networks(&network.spec);
    let way_out = |address: &String| {
        let address: IpAddr = address.parse().ok()?;
        let (network, gateway) = networks.iter().find(|(network, _)| network.contains(&address))?;
        Some(WayOut { address, network: *network, gateway: *gateway })
    };
    Ok(rows::Gateway {
        uid: uid(&gateway.metadata).to_owned(),
        vpc_uid: uid(&vpc.metadata).to_owned(),
        network_uid: uid(&network.metadata).to_owned(),
        mac: names::mac(uid(&gateway.metadata), 0),
        families: addresses.iter().filter_map(way_out).collect(),
        chassis: chassis(network)?,
    })
}
