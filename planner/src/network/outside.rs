//! The way out of a Vpc: which addresses of a ProviderNetwork NatGateways and FloatingIPs have, and what each is in OVN.
//!
//! An address is held as a VNic's is (`addresses.rs`): by an AddressHold of the ProviderNetwork, created before the status says who
//! has it, deleted after its rows.
//!
//! A FloatingIP translates to an address of a VNic, which another VNic may get later. So its status names the VNic before OVN
//! does, and until OVN does no more ([`serves`]); a VNic that is named there keeps its AddressHolds.

use super::addresses::{self, hold_in};
use super::cidr;
use super::rows::{self, WayOut};
use crate::machine::observed::{name, uid};
use crate::reason::{Blocked, Reason, Waiting};
use api::network::{AddressOwner, ProviderNetworkSpec, canonical};
use api::{AddressHold, FloatingIP, NatGateway, ProviderNetwork, VNic, Vpc, conditions, names};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use std::collections::BTreeMap;
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

/// The ProviderNetwork's networks, each with the data centre's router in it.
fn networks(spec: &ProviderNetworkSpec) -> Vec<(IpNet, Option<IpAddr>)> {
    let gateway = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok());
    let first = spec.cidr.parse().ok().map(|network| (network, gateway(&spec.gateway)));
    let second = spec.ipv6_cidr.as_deref().and_then(|cidr| cidr.parse().ok());
    first.into_iter().chain(second.map(|network| (network, gateway(&spec.ipv6_gateway)))).collect()
}

pub fn provider(network: &ProviderNetwork) -> rows::Provider {
    rows::Provider {
        uid: uid(&network.metadata).to_owned(),
        physical_network: network.spec.physical_network.clone(),
        vlan: network.spec.vlan,
    }
}

/// Why a namespace may not have addresses of the ProviderNetwork. `labels`: the namespace's.
pub fn admits(
    network: &ProviderNetwork,
    namespace: &str,
    labels: Option<&BTreeMap<String, String>>,
) -> Result<(), Reason> {
    let asked = network.spec.allowed_namespaces.iter().flat_map(|allowed| &allowed.match_labels);
    let has = |(key, value): (&String, &String)| labels.and_then(|labels| labels.get(key)) == Some(value);
    let (network, namespace) = (name(&network.metadata).to_owned(), namespace.to_owned());
    if asked.into_iter().all(has) {
        return Ok(());
    }
    Err(Blocked::ProviderNotAllowed { network, namespace }.into())
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
    hold_in(&network.metadata, owner.clone(), &canonical(address))
}

/// What is said of somebody else's hold.
pub fn taken(hold: &AddressHold) -> Reason {
    let owner = &hold.spec.owner;
    let by = format!("{} '{}' of namespace '{}'", owner.kind, owner.name, owner.namespace);
    let (address, network) = (hold.spec.held().to_owned(), hold.spec.subnet.name.clone());
    Blocked::ExternalAddressTaken { address, network, by }.into()
}

/// Which of the NatGateways of one Vpc is in force: the oldest.
pub fn first<'a>(gateways: impl IntoIterator<Item = &'a NatGateway>) -> Option<&'a NatGateway> {
    let age = |gateway: &&NatGateway| {
        let meta = &gateway.metadata;
        (meta.creation_timestamp.as_ref().map(|at| at.0), uid(meta).to_owned())
    };
    gateways.into_iter().min_by_key(age)
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
    if is_true(said, conditions::READY) {
        return Ok(status.chassis);
    }
    let (network, message) = (name(&network.metadata).to_owned(), message(said));
    Err(Waiting::ProviderNetworkNotReady { network, message }.into())
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

/// Whether a VNic may be translated to: it has its addresses, and keeps them.
pub fn serves(vnic: &VNic) -> bool {
    vnic.metadata.deletion_timestamp.is_none() && addresses::is_assigned(vnic)
}

/// What a FloatingIP rests on.
pub struct Target<'a> {
    pub vnic: &'a VNic,
    pub vpc: &'a Vpc,
    /// Those of the Vpc.
    pub gateway: Option<&'a NatGateway>,
    pub network: &'a ProviderNetwork,
    /// Where the VNic's port is bound, and what the port is called.
    pub bound: Option<(String, String)>,
}

/// `address`: the one that it has the hold of.
pub fn floating(floating: &FloatingIP, address: &str, to: &Target<'_>) -> Result<rows::Floating, Reason> {
    let gateway = to.gateway.filter(|gateway| gateway.spec.provider_network == floating.spec.provider_network);
    let Some(gateway) = gateway else {
        let (vpc, network) = (name(&to.vpc.metadata).to_owned(), floating.spec.provider_network.clone());
        return Err(Blocked::NatGatewayMissing { vpc, network }.into());
    };
    let said = gateway.status.as_ref().map(|status| &status.conditions);
    if !is_true(said, conditions::PROGRAMMED) {
        let gateway = name(&gateway.metadata).to_owned();
        return Err(Waiting::NatGatewayNotReady { gateway, message: message(said) }.into());
    }
    let vnic_name = name(&to.vnic.metadata).to_owned();
    let outer: Option<IpAddr> = address.parse().ok();
    let inner = to.vnic.status.iter().flat_map(|status| &status.addresses);
    let inner = inner
        .filter_map(|own| own.parse::<IpAddr>().ok())
        .find(|own| Some(own.is_ipv4()) == outer.map(|outer| outer.is_ipv4()));
    let (Some(outer), Some(inner)) = (outer, inner) else {
        return Err(Blocked::AddressFamilyMissing { vnic: vnic_name, address: address.to_owned() }.into());
    };
    let carries = chassis(to.network)?;
    let here = to.bound.clone().filter(|(chassis, _)| carries.contains(chassis));
    let own = uid(&floating.metadata);
    Ok(rows::Floating {
        uid: own.to_owned(),
        vpc_uid: uid(&to.vpc.metadata).to_owned(),
        outer,
        inner,
        here: here.map(|(_, port)| (port, names::mac(own, 0))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn network(spec: serde_json::Value) -> ProviderNetwork {
        let mut all = json!({"physicalNetwork": "physnet1", "cidr": "203.0.113.0/24", "gateway": "203.0.113.1",
            "addresses": ["203.0.113.0-203.0.113.3", "203.0.113.20"], "gatewayNodes": ["node-1"]});
        for (key, value) in spec.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        ProviderNetwork::new("outside", serde_json::from_value(all).expect("a spec"))
    }

    #[test]
    fn what_is_chosen_is_given_to_nobody_else() {
        let outside = network(json!({}));
        let mut taken = Vec::new();
        while let Ok(address) = choose(&outside, true, |address| taken.iter().any(|taken| taken == address)) {
            taken.push(address.to_string());
        }
        assert_eq!(
            taken,
            ["203.0.113.2", "203.0.113.3", "203.0.113.20"],
            "neither the network nor the data centre's router"
        );
        let full = choose(&outside, true, |address| taken.iter().any(|taken| taken == address)).expect_err("full");
        assert_eq!(full.name(), "ProviderNetworkFull");
        assert_eq!(choose(&outside, false, |_| false).expect_err("no IPv6").name(), "ProviderNetworkFull");
    }

    #[test]
    fn what_is_asked_for_is_in_the_ranges() {
        let six = json!({"ipv6Cidr": "2001:db8:1::/64", "ipv6Gateway": "2001:db8:1::1",
            "addresses": ["203.0.113.20", "2001:db8:1::-2001:db8:1::ff"]});
        let outside = network(six);
        for good in ["203.0.113.20", "2001:db8:1::2"] {
            assert_eq!(fits(&outside, good), Ok(()), "{good}");
        }
        for bad in ["203.0.113.21", "198.51.100.1", "2001:db8:1::1", "2001:db8:1::", "2001:db8:1::100", "x"] {
            assert_eq!(fits(&outside, bad).expect_err(bad).name(), "ExternalAddressOutside");
        }
        assert_eq!(families(&outside, Kind::NatGateway), [true, false]);
        assert_eq!(families(&outside, Kind::FloatingIP), [true]);
        let last =
            choose(&network(json!({"addresses": ["203.0.113.254-203.0.113.255"]})), true, |a| a.ends_with(".254"));
        assert_eq!(last.expect_err("the broadcast address").name(), "ProviderNetworkFull");
    }

    #[test]
    fn a_namespace_has_every_label_that_is_asked_for() {
        let allowed = network(json!({"allowedNamespaces": {"matchLabels": {"outside": "yes"}}}));
        let labels =
            |value: &str| BTreeMap::from([("outside".to_owned(), value.to_owned()), ("more".into(), "x".into())]);
        assert_eq!(admits(&allowed, "team-a", Some(&labels("yes"))), Ok(()));
        for labels in [None, Some(&labels("no"))] {
            assert_eq!(admits(&allowed, "team-a", labels).expect_err("not allowed").name(), "ProviderNotAllowed");
        }
        assert_eq!(admits(&network(json!({})), "team-a", None), Ok(()), "left out: all");
    }

    fn ready(conditions: &[&str]) -> serde_json::Value {
        let said = |type_: &&str| {
            json!({"type": type_, "status": "True", "reason": "Programmed", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        json!(conditions.iter().map(said).collect::<Vec<_>>())
    }

    #[test]
    fn a_floating_address_is_translated_where_its_vnic_is_if_the_network_is_there() {
        let object = |spec: serde_json::Value, uid: &str, status: serde_json::Value| {
            json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "X", "metadata": {"name": uid, "uid": uid}, "spec": spec,
                "status": status})
        };
        let vnic: VNic = serde_json::from_value(object(
            json!({"subnet": "blue"}),
            "n",
            json!({"addresses": ["fd00::7", "10.20.0.7"], "conditions": ready(&["AddressesAssigned"])}),
        ))
        .expect("a VNic");
        let mut gateway: NatGateway = serde_json::from_value(object(
            json!({"vpc": {"name": "v"}, "providerNetwork": "outside"}),
            "g",
            json!({"conditions": ready(&["Programmed"])}),
        ))
        .expect("a NatGateway");
        let vpc: Vpc = serde_json::from_value(object(json!({}), "v", json!({}))).expect("a Vpc");
        let mut outside = network(json!({}));
        outside.status =
            serde_json::from_value(json!({"chassis": ["node-1"], "conditions": ready(&["Ready"])})).expect("a status");
        let fip = FloatingIP::new("f", serde_json::from_value(json!({"providerNetwork": "outside"})).expect("a spec"));
        let plan = |gateway: Option<&NatGateway>, chassis: Option<&str>, address: &str| {
            let bound = chassis.map(|chassis| (chassis.to_owned(), "mp-n".to_owned()));
            let target = Target { vnic: &vnic, vpc: &vpc, gateway, network: &outside, bound };
            floating(&fip, address, &target)
        };
        let rows = plan(Some(&gateway), Some("node-1"), "203.0.113.20").expect("all is there");
        assert_eq!(
            (rows.inner.to_string().as_str(), rows.here.map(|(port, _)| port)),
            ("10.20.0.7", Some("mp-n".to_owned()))
        );
        for elsewhere in [None, Some("dpu-1")] {
            assert_eq!(plan(Some(&gateway), elsewhere, "203.0.113.20").expect("all is there").here, None);
        }
        assert_eq!(plan(None, None, "203.0.113.20").expect_err("no gateway").name(), "NatGatewayMissing");
        assert!(serves(&vnic));
        gateway.status = None;
        assert_eq!(plan(Some(&gateway), None, "203.0.113.20").expect_err("no rows").name(), "NatGatewayNotReady");
        gateway.spec.provider_network = "another".to_owned();
        assert_eq!(plan(Some(&gateway), None, "203.0.113.20").expect_err("elsewhere").name(), "NatGatewayMissing");
    }
}
