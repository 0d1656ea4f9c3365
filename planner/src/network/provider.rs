//! What a ProviderNetwork is: its networks, its VLAN, who may use it, and the Subnet that is on it.
//!
//! The guests of that Subnet are hosts of the network. There is one: two with the same addresses would give one address twice in one VLAN.
//! `ProviderNetwork.status.subnet` is the arbiter, by compare-and-swap, as `Vpc.status.subnets` is for a Vpc.
//!
//! For the same reason two ProviderNetworks of one VLAN do not overlap: the one that was created later gives nobody an address, whatever the
//! first one gives ([`overlaps`]). What it gave before that was so stays: of two that are created in one second, or by the clocks of two API
//! servers, the one that is known first is not always the one that comes first. So the AddressHold of an address is one for the whole VLAN
//! ([`hold_name`]): whatever anybody knows of the other ProviderNetwork, nobody gets an address that somebody has.

use super::{cidr, rows};
use crate::machine::observed::{name, uid};
use crate::reason::{Blocked, Reason};
use api::network::{ProviderNetworkSpec, SubnetReference, SubnetSpec};
use api::{AddressHold, ProviderNetwork, Subnet, names};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The ProviderNetwork's networks, each with the data centre's router in it.
pub(super) fn networks(spec: &ProviderNetworkSpec) -> Vec<(IpNet, Option<IpAddr>)> {
    let gateway = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok());
    let first = spec.cidr.parse().ok().map(|network| (network, gateway(&spec.gateway)));
    let second = spec.ipv6_cidr.as_deref().and_then(|cidr| cidr.parse().ok());
    first.into_iter().chain(second.map(|network| (network, gateway(&spec.ipv6_gateway)))).collect()
}

pub(super) fn vlan(network: &ProviderNetwork) -> rows::Vlan {
    rows::Vlan { physical_network: network.spec.physical_network.clone(), tag: network.spec.vlan }
}

/// Of the same VLAN, on which two of the same address would meet.
pub fn is_beside(one: &ProviderNetwork, other: &ProviderNetwork) -> bool {
    uid(&one.metadata) != uid(&other.metadata) && vlan(one) == vlan(other)
}

/// What the AddressHold of an address is called, of a Subnet or a ProviderNetwork. `network`: the ProviderNetwork itself, or the one that the
/// Subnet is on.
pub fn hold_name(of: &ObjectMeta, network: Option<&ProviderNetwork>, held: &str) -> String {
    let Some(vlan) = network.map(vlan) else { return names::address_hold(uid(of), held) };
    let tag = vlan.tag.map(|tag| tag.to_string()).unwrap_or_default();
    // No UID has a slash.
    names::address_hold(&format!("{}/{tag}", vlan.physical_network), held)
}

/// What the AddressHold of an address may be called: as [`hold_name`] has it, which is what decides, and on a VLAN also as a version had it
/// for which addresses were of a Subnet or a ProviderNetwork alone. Whoever had a hold by such a name has the address, and gets one by the
/// present name after the upgrade: until then somebody else could. `all`: the ProviderNetworks that there are.
pub fn hold_names<'a>(
    of: &ObjectMeta,
    network: Option<&ProviderNetwork>,
    all: impl IntoIterator<Item = &'a ProviderNetwork>,
    held: &str,
) -> BTreeSet<String> {
    let mut every = BTreeSet::from([hold_name(of, network, held)]);
    if let Some(network) = network {
        let on_vlan = all.into_iter().filter(|other| vlan(other) == vlan(network));
        every.extend(on_vlan.flat_map(held_for).map(|uid| names::address_hold(uid, held)));
        every.insert(names::address_hold(uid(of), held));
    }
    every
}

/// Of which UIDs the holds of its addresses are: itself, and the Subnet that is on it.
pub fn held_for(network: &ProviderNetwork) -> impl Iterator<Item = &str> {
    [uid(&network.metadata)].into_iter().chain(holder(network).map(|subnet| subnet.uid.as_str()))
}

/// How many addresses these holds are of: of one address there may be two, by either name.
pub fn used<'a>(holds: impl IntoIterator<Item = &'a AddressHold>) -> usize {
    holds.into_iter().map(|hold| hold.spec.held()).collect::<BTreeSet<_>>().len()
}

/// What is said of the hold of a NatGateway or a FloatingIP to whoever asks for the address too.
pub fn taken(hold: &AddressHold) -> Reason {
    let owner = &hold.spec.owner;
    let by = format!("{} '{}' of namespace '{}'", owner.kind, owner.name, owner.namespace);
    let (address, network) = (hold.spec.held().to_owned(), hold.spec.subnet.name.clone());
    Blocked::ExternalAddressTaken { address, network, by }.into()
}

/// Another one has some of its addresses, and was there first. `all`: whichever there are.
pub fn overlaps<'a>(
    network: &ProviderNetwork,
    all: impl IntoIterator<Item = &'a ProviderNetwork>,
) -> Result<(), Reason> {
    let age = |network: &ProviderNetwork| {
        let created = network.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, uid(&network.metadata).to_owned())
    };
    let own = networks(&network.spec);
    let beside = all.into_iter().filter(|other| is_beside(network, other) && age(other) < age(network));
    let mut both = beside.flat_map(|other| networks(&other.spec).into_iter().map(move |(cidr, _)| (other, cidr)));
    let meets = |theirs: IpNet| own.iter().any(|(own, _)| own.contains(&theirs) || theirs.contains(own));
    match both.find(|(_, cidr)| meets(*cidr)) {
        None => Ok(()),
        Some((other, cidr)) => {
            let (network, other) = (name(&network.metadata).to_owned(), name(&other.metadata).to_owned());
            Err(Blocked::ProviderNetworkOverlaps { network, other, cidr: cidr.to_string() }.into())
        }
    }
}

/// Why a namespace may not have addresses of the ProviderNetwork, where it has none yet. `labels`: the namespace's.
pub fn admits<'a>(
    network: &ProviderNetwork,
    all: impl IntoIterator<Item = &'a ProviderNetwork>,
    namespace: &str,
    labels: Option<&BTreeMap<String, String>>,
) -> Result<(), Reason> {
    overlaps(network, all)?;
    let asked = network.spec.allowed_namespaces.iter().flat_map(|allowed| &allowed.match_labels);
    let has = |(key, value): (&String, &String)| labels.and_then(|labels| labels.get(key)) == Some(value);
    let (network, namespace) = (name(&network.metadata).to_owned(), namespace.to_owned());
    if asked.into_iter().all(has) {
        return Ok(());
    }
    Err(Blocked::ProviderNotAllowed { network, namespace }.into())
}

/// The Subnet that is on the network.
pub fn holder(network: &ProviderNetwork) -> Option<&SubnetReference> {
    network.status.as_ref()?.subnet.as_ref()
}

/// What the ProviderNetwork has to say of the Subnet; `None`: it says so already. `labels`: of the Subnet's namespace.
pub fn admit<'a>(
    network: &ProviderNetwork,
    all: impl IntoIterator<Item = &'a ProviderNetwork>,
    subnet: &Subnet,
    labels: Option<&BTreeMap<String, String>>,
) -> Result<Option<SubnetReference>, Reason> {
    let meta = &subnet.metadata;
    let wanted = SubnetReference {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: name(meta).to_owned(),
        uid: uid(meta).to_owned(),
    };
    let of = || name(&network.metadata).to_owned();
    let has: Vec<String> = networks(&network.spec).iter().map(|(network, _)| network.to_string()).collect();
    if let Some(other) = cidr::networks(&subnet.spec).iter().map(ToString::to_string).find(|own| !has.contains(own)) {
        return Err(Blocked::CidrNotOfProviderNetwork { cidr: other, network: of(), has: has.join(" and ") }.into());
    }
    match holder(network) {
        Some(there) if there.uid == wanted.uid => return Ok(None),
        Some(there) => {
            let subnet = format!("'{}' of namespace '{}'", there.name, there.namespace);
            return Err(Blocked::ProviderNetworkTaken { network: of(), subnet }.into());
        }
        None => {}
    }
    if network.metadata.deletion_timestamp.is_some() {
        return Err(Blocked::ProviderNetworkBeingDeleted { network: of() }.into());
    }
    admits(network, all, &wanted.namespace, labels)?;
    Ok(Some(wanted))
}

/// What of the network no VNic of its Subnet has: addresses, and ranges of NatGateways and FloatingIPs.
fn closed(spec: &ProviderNetworkSpec) -> impl Iterator<Item = &String> {
    spec.gateway.iter().chain(&spec.ipv6_gateway).chain(&spec.addresses)
}

/// The Subnet's, for whoever chooses an address of it.
pub(super) fn without_closed(subnet: &SubnetSpec, network: &ProviderNetworkSpec) -> SubnetSpec {
    let mut spec = subnet.clone();
    spec.reserved.extend(closed(network).cloned());
    spec
}

/// What an address is that a VNic asks for and cannot have.
pub(super) fn reserved(network: &ProviderNetwork, address: &str) -> Option<String> {
    let address = address.parse::<IpAddr>().ok()?;
    let within = |range: &String| {
        let networks = networks(&network.spec);
        let range = networks.iter().find_map(|(network, _)| cidr::within(range, *network));
        range.is_some_and(|(first, last)| (first..=last).contains(&address))
    };
    let of = name(&network.metadata);
    if network.spec.gateway.iter().chain(&network.spec.ipv6_gateway).any(within) {
        return Some(format!("router of ProviderNetwork '{of}', and an address"));
    }
    let external = || format!("address for NatGateways and FloatingIPs of ProviderNetwork '{of}', and an address");
    network.spec.addresses.iter().any(within).then(external)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::network::{AddressHoldSpec, ProviderNetworkStatus};
    use serde_json::json;

    fn network() -> ProviderNetwork {
        let spec = json!({"physicalNetwork": "physnet1", "vlan": 100, "cidr": "203.0.113.0/24", "ipv6Cidr": "2001:db8:1::/64",
            "gateway": "203.0.113.1", "addresses": ["203.0.113.10-203.0.113.19"]});
        ProviderNetwork::new("dc", serde_json::from_value(spec).expect("a spec"))
    }

    fn subnet(uid: &str, cidr: &str) -> Subnet {
        let spec = json!({"cidr": cidr, "routed": false, "providerNetwork": "dc"});
        let mut subnet = Subnet::new("hosts", serde_json::from_value(spec).expect("a spec"));
        (subnet.metadata.uid, subnet.metadata.namespace) = (Some(uid.to_owned()), Some("team".to_owned()));
        subnet
    }

    #[test]
    fn a_provider_network_has_one_subnet_with_its_addresses() {
        let mut network = network();
        let refused =
            |network: &ProviderNetwork, subnet: &Subnet| admit(network, [], subnet, None).expect_err("no").name();
        assert_eq!(refused(&network, &subnet("one", "203.0.113.0/25")), "CidrNotOfProviderNetwork");
        let mut both = subnet("one", "203.0.113.0/24");
        both.spec.ipv6_cidr = Some("2001:db8:2::/64".to_owned());
        assert_eq!(refused(&network, &both), "CidrNotOfProviderNetwork");
        both.spec.ipv6_cidr = Some("2001:db8:1::/64".to_owned());
        let there = admit(&network, [], &both, None).expect("nobody has it").expect("to be said");
        network.status = Some(ProviderNetworkStatus { subnet: Some(there), ..ProviderNetworkStatus::default() });
        assert_eq!(admit(&network, [], &both, None), Ok(None));
        assert_eq!(refused(&network, &subnet("two", "203.0.113.0/24")), "ProviderNetworkTaken");
        network.spec.allowed_namespaces =
            Some(serde_json::from_value(json!({"matchLabels": {"a": "b"}})).expect("labels"));
        assert_eq!(admit(&network, [], &both, None), Ok(None), "it stays");
        network.status = None;
        assert_eq!(refused(&network, &both), "ProviderNotAllowed");
    }

    #[test]
    fn of_two_with_the_same_addresses_in_one_vlan_the_first_gives_them() {
        let made = |name: &str, at: &str, spec: serde_json::Value| -> ProviderNetwork {
            serde_json::from_value(
                json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "ProviderNetwork", "spec": spec,
                "metadata": {"name": name, "uid": name, "creationTimestamp": at}}),
            )
            .expect("a ProviderNetwork")
        };
        let spec = |vlan: u16, cidr: &str| json!({"physicalNetwork": "physnet1", "vlan": vlan, "cidr": cidr});
        let first = made("first", "2026-01-01T00:00:00Z", spec(100, "203.0.113.0/24"));
        for (cidr, vlan, meets) in [
            ("203.0.113.128/25", 100, true),
            ("203.0.0.0/16", 100, true),
            ("203.0.113.0/24", 100, true),
            ("203.0.114.0/24", 100, false),
            ("203.0.113.0/24", 101, false),
        ] {
            let second = made("second", "2026-01-01T00:00:01Z", spec(vlan, cidr));
            let refused = overlaps(&second, [&first, &second]).err();
            assert_eq!(
                refused.map(|reason| reason.name()),
                meets.then_some("ProviderNetworkOverlaps"),
                "{cidr} {vlan}"
            );
            assert_eq!(overlaps(&first, [&first, &second]), Ok(()), "it was there first");
            assert_eq!(admits(&second, [&first], "team", None).is_err(), meets);
        }
        // Made in the same second.
        let twin = made("twin", "2026-01-01T00:00:00Z", spec(100, "203.0.113.0/24"));
        assert!(overlaps(&twin, [&first]).is_err() && overlaps(&first, [&twin]).is_ok());
    }

    #[test]
    fn an_address_of_a_vlan_has_one_hold() {
        let (one, mut other) = (network(), network());
        other.metadata.name = Some("other".to_owned());
        let subnet = subnet("one", "203.0.113.0/24");
        let names = [
            hold_name(&one.metadata, Some(&one), "203.0.113.7"),
            hold_name(&other.metadata, Some(&other), "203.0.113.7"),
            hold_name(&subnet.metadata, Some(&one), "203.0.113.7"),
        ];
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
        let v6 = |text: &str| hold_name(&one.metadata, Some(&one), text);
        assert_eq!(v6("2001:db8:1::7"), v6("2001:DB8:1:0::7"));
        assert_ne!(hold_name(&subnet.metadata, None, "203.0.113.7"), names[0], "a Subnet of a Vpc alone");
        other.spec.vlan = None;
        assert_ne!(hold_name(&other.metadata, Some(&other), "203.0.113.7"), names[0], "another VLAN");
    }

    #[test]
    fn an_address_may_have_a_hold_by_the_name_that_it_had_before() {
        let (mut one, mut other, mut third) = (network(), network(), network());
        for (network, uid) in [(&mut one, "one"), (&mut other, "other"), (&mut third, "third")] {
            network.metadata.uid = Some(uid.to_owned());
        }
        third.spec.vlan = Some(101);
        let there = SubnetReference { uid: "hosts".to_owned(), ..SubnetReference::default() };
        other.status = Some(ProviderNetworkStatus { subnet: Some(there), ..ProviderNetworkStatus::default() });
        let own = subnet("own", "203.0.113.0/24");
        let all = [one.clone(), other, third];
        let names = hold_names(&own.metadata, Some(&one), &all, "203.0.113.7");
        let mut wanted = BTreeSet::from([hold_name(&own.metadata, Some(&one), "203.0.113.7")]);
        wanted.extend(["own", "one", "other", "hosts"].map(|uid| names::address_hold(uid, "203.0.113.7")));
        assert_eq!(names, wanted, "none of another VLAN");
        let alone = hold_names(&own.metadata, None, &all, "203.0.113.7");
        assert_eq!(alone, BTreeSet::from([names::address_hold("own", "203.0.113.7")]), "a Subnet of a Vpc alone");
    }

    #[test]
    fn an_address_with_two_holds_is_one() {
        let hold = |name: &str, address: &str| {
            let spec = AddressHoldSpec { address: Some(address.to_owned()), ..AddressHoldSpec::default() };
            AddressHold::new(name, spec)
        };
        let all = [hold("before", "203.0.113.7"), hold("now", "203.0.113.7"), hold("other", "203.0.113.8")];
        assert_eq!((used(&all), used(&[])), (2, 0));
    }

    #[test]
    fn what_the_data_centre_and_the_gateways_have_no_vnic_has() {
        let network = network();
        let said = |address: &str| reserved(&network, address).is_some();
        assert!(said("203.0.113.1") && said("203.0.113.10") && said("203.0.113.19"));
        assert!(!said("203.0.113.20") && !said("2001:db8:1::7"));
        let spec = without_closed(&subnet("one", "203.0.113.0/24").spec, &network.spec);
        assert_eq!(spec.reserved, ["203.0.113.1", "203.0.113.10-203.0.113.19"]);
    }
}
