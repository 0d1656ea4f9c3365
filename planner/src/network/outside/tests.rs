//! Addresses of a ProviderNetwork, and what a NatGateway and a FloatingIP rest on and wait for.

use super::*;
use crate::network::provider::admits;
use api::{Dpu, FloatingIP, NatGateway, Subnet, VNic, Vpc};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn network(spec: Value) -> ProviderNetwork {
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
    let last = choose(&network(json!({"addresses": ["203.0.113.254-203.0.113.255"]})), true, |a| a.ends_with(".254"));
    assert_eq!(last.expect_err("the broadcast address").name(), "ProviderNetworkFull");
}

#[test]
fn a_namespace_has_every_label_that_is_asked_for() {
    let allowed = network(json!({"allowedNamespaces": {"matchLabels": {"outside": "yes"}}}));
    let labels = |value: &str| BTreeMap::from([("outside".to_owned(), value.to_owned()), ("more".into(), "x".into())]);
    assert_eq!(admits(&allowed, [], "team-a", Some(&labels("yes"))), Ok(()));
    for labels in [None, Some(&labels("no"))] {
        assert_eq!(admits(&allowed, [], "team-a", labels).expect_err("not allowed").name(), "ProviderNotAllowed");
    }
    assert_eq!(admits(&network(json!({})), [], "team-a", None), Ok(()), "left out: all");
}

fn ready(conditions: &[&str]) -> Value {
    let said = |type_: &&str| {
        json!({"type": type_, "status": "True", "reason": "Programmed", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!(conditions.iter().map(said).collect::<Vec<_>>())
}

fn object<K: serde::de::DeserializeOwned>(name: &str, spec: Value, status: Value) -> K {
    let meta = json!({"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z"});
    let (version, kind) = ("metalplane.io/v1alpha1", "X");
    let object = json!({"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec, "status": status});
    serde_json::from_value(object).expect("an object")
}

fn vnic(name: &str) -> VNic {
    let status = json!({"addresses": ["fd00::7", "10.20.0.7"], "conditions": ready(&["AddressesAssigned"]),
        "holder": {"attachmentNamespace": "d", "attachmentName": "a", "attachmentUID": "a", "dpuName": "node-1",
            "dpuUID": "uid-node-1"}});
    object(name, json!({"subnet": "blue"}), status)
}

fn gateway_named(name: &str, network: &str, conditions: &[&str]) -> NatGateway {
    let spec = json!({"vpc": {"name": "v"}, "providerNetwork": network});
    object(name, spec, json!({"conditions": ready(conditions)}))
}

fn fip(vnic: Option<&str>, translated: Option<&str>) -> FloatingIP {
    let (spec, status) = (json!({"providerNetwork": "outside", "vnic": vnic}), json!({"vnicUID": translated}));
    object("f", spec, status)
}

fn deleted(meta: &mut ObjectMeta) {
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
    meta.deletion_timestamp = Some(now);
}

#[test]
fn a_floating_address_is_translated_where_its_vnic_is_if_the_network_is_there() {
    let (nic, vpc): (_, Vpc) = (vnic("n"), object("v", json!({}), json!({})));
    let subnet: Subnet = object("blue", json!({"cidr": "10.20.0.0/24", "vpc": {"name": "v"}}), json!({}));
    let mut outside = network(json!({}));
    outside.status =
        serde_json::from_value(json!({"chassis": ["node-1"], "conditions": ready(&["Ready"])})).expect("a status");
    let plan = |gateway: Option<&NatGateway>, there: (bool, bool), chassis: Option<&str>| {
        let bound = chassis.map(|chassis| (chassis.to_owned(), "mp-n".to_owned()));
        let (subnet, vpc) = (there.0.then_some(&subnet), there.1.then_some(&vpc));
        let target = Target { vnic: &nic, subnet, vpc, gateway, network: &outside, bound };
        floating(&fip(Some("n"), None), "203.0.113.20", &target)
    };
    let gateway = gateway_named("g", "outside", &["Programmed"]);
    let all = (true, true);
    let rows = plan(Some(&gateway), all, Some("node-1")).expect("all is there");
    assert_eq!(
        (rows.inner.to_string().as_str(), rows.here.map(|(port, _)| port)),
        ("10.20.0.7", Some("mp-n".to_owned()))
    );
    for elsewhere in [None, Some("dpu-1")] {
        assert_eq!(plan(Some(&gateway), all, elsewhere).expect("all is there").here, None);
    }
    let why = |gateway: Option<&NatGateway>, there| plan(gateway, there, None).expect_err("not yet").name();
    assert_eq!(why(Some(&gateway), (false, false)), "SubnetMissing");
    assert_eq!(why(Some(&gateway), (true, false)), "VpcMissing");
    assert_eq!(why(None, all), "NatGatewayMissing");
    assert_eq!(why(Some(&gateway_named("g", "outside", &[])), all), "NatGatewayNotReady");
    assert_eq!(why(Some(&gateway_named("g", "another", &["Programmed"])), all), "NatGatewayMissing");
}

#[test]
fn the_chassis_of_a_floating_address_are_those_that_may_translate_it() {
    let nic = vnic("n");
    let dpu: Dpu = object(
        "node-1",
        json!({"hardwareRef": {"name": "s"}, "powerDomain": "Standby"}),
        json!({"network": {"chassis": "chassis-1"}}),
    );
    let there = bound(&nic, Some(&dpu), &[]);
    assert_eq!(there, Some(("chassis-1".to_owned(), "mp-uid-n".to_owned())));
    let mut another = dpu.clone();
    another.metadata.uid = Some("another".to_owned());
    assert_eq!((bound(&nic, None, &[]), bound(&nic, Some(&another), &[])), (None, None));
    let mut outside = network(json!({}));
    let target = |outside: &ProviderNetwork| {
        concerned(&Target {
            vnic: &nic,
            subnet: None,
            vpc: None,
            gateway: None,
            network: outside,
            bound: there.clone(),
        })
    };
    assert_eq!(target(&outside).expect_err("not in OVN").name(), "ProviderNetworkNotReady");
    outside.status =
        serde_json::from_value(json!({"chassis": ["node-2"], "conditions": ready(&["Ready"])})).expect("a status");
    assert_eq!(target(&outside).expect("known").into_iter().collect::<Vec<_>>(), ["chassis-1", "node-2"]);
}

#[test]
fn a_floating_address_is_taken_back_before_it_goes_to_another_vnic() {
    let (n, m) = (vnic("n"), vnic("m"));
    assert_eq!(used_for(&fip(None, None), None), Use::Keep);
    assert_eq!(used_for(&fip(Some("n"), None), Some(&n)), Use::Translate);
    assert_eq!(used_for(&fip(Some("n"), Some("uid-n")), Some(&n)), Use::Translate);
    for (named, there) in [(None, None), (Some("m"), Some(&m)), (Some("m"), None)] {
        assert_eq!(used_for(&fip(named, Some("uid-n")), there), Use::TakeBack, "{named:?}");
    }
    let (mut leaves, mut empty) = (n.clone(), n);
    deleted(&mut leaves.metadata);
    empty.status = None;
    for leaving in [&leaves, &empty] {
        assert_eq!(used_for(&fip(Some("n"), Some("uid-n")), Some(leaving)), Use::TakeBack);
    }
    let waits = |vnic: Option<&VNic>| match used_for(&fip(Some("n"), None), vnic) {
        Use::Wait(reason) => reason.name(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (waits(None), waits(Some(&leaves)), waits(Some(&empty))),
        ("VNicMissing", "VNicBeingDeleted", "VNicNotReady")
    );
}

#[test]
fn a_gateway_rests_on_its_vpc_alone() {
    let vpc =
        |conditions: &[&str]| Some(Arc::new(object::<Vpc>("v", json!({}), json!({"conditions": ready(conditions)}))));
    let (outside, own) = (Some(Arc::new(network(json!({})))), gateway_named("g", "outside", &[]));
    let all =
        |names: &[&str]| names.iter().map(|name| Arc::new(gateway_named(name, "outside", &[]))).collect::<Vec<_>>();
    let why = |vpc, of_vpc: &[&str], network| {
        rests_on(&own, vpc, &all(of_vpc), network).map(drop).map_err(|reason| reason.name())
    };
    let programmed = || vpc(&["Programmed"]);
    assert_eq!(why(programmed(), &["g"], outside.clone()), Ok(()));
    assert_eq!(why(programmed(), &["g", "h"], outside.clone()), Ok(()), "of equal age the first by UID");
    assert_eq!(why(programmed(), &["a", "g"], outside.clone()), Err("VpcHasNatGateway"));
    assert_eq!(why(None, &["g"], outside.clone()), Err("VpcMissing"));
    assert_eq!(why(programmed(), &["g"], None), Err("ProviderNetworkMissing"));
    assert_eq!(why(vpc(&["Ready"]), &["g"], outside), Err("VpcNotReady"), "its rows are not there");
}

#[test]
fn a_gateway_waits_for_what_is_translated_by_it() {
    let own = gateway_named("g", "outside", &["Programmed"]);
    let of_vpc =
        |names: &[&str]| names.iter().map(|name| Arc::new(gateway_named(name, "outside", &[]))).collect::<Vec<_>>();
    let used = |of: &[&str], floating: &[FloatingIP], vpc: Option<&str>| {
        used_by(&own, &of_vpc(of), floating, |_| vpc.map(str::to_owned)).map(|reason| reason.told())
    };
    let translated = [fip(Some("n"), None), fip(Some("n"), Some("uid-n"))];
    let said = used(&["g"], &translated, Some("v")).expect("in use");
    assert!(said.contains("FloatingIP 'f'"), "{said}");
    assert!(used(&["g"], &translated, None).is_some(), "of a VNic that is not known");
    assert_eq!(used(&["g"], &translated, Some("w")), None, "another Vpc's");
    assert_eq!(used(&["g"], &translated[..1], Some("v")), None, "OVN translates nothing");
    assert_eq!(used(&["a", "g"], &translated, Some("v")), None, "the older one is in force");
    let mut elsewhere = translated[1].clone();
    elsewhere.spec.provider_network = "another".to_owned();
    assert_eq!(used(&["g"], &[elsewhere], Some("v")), None);
}
