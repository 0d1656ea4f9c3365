//! Which next hops a Vpc's router is told of.

use crate::network::routes::{hops, plan};
use api::conditions::{self, ADDRESSES_ASSIGNED, ConditionStatus};
use api::{Subnet, VNic, Vpc};
use serde_json::{Value, json};
use std::sync::Arc;

fn of_uid<K: serde::de::DeserializeOwned>(name: &str, spec: Value, status: Value) -> K {
    let meta = json!({"name": name, "namespace": "team-a", "uid": format!("uid-{name}")});
    serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": status})).expect("an object")
}

fn vpc(routes: &[(&str, &[&str])]) -> Vpc {
    let routes: Vec<Value> =
        routes.iter().map(|(destination, hops)| json!({"destination": destination, "nextHops": hops})).collect();
    let subnets = json!([{"name": "blue", "uid": "uid-blue", "cidr": "10.20.0.0/24", "ipv6Cidr": "fd00:20::/64"},
        {"name": "alone", "uid": "uid-alone", "cidr": "10.21.0.0/24"}]);
    of_uid("v", json!({"routes": routes}), json!({"subnets": subnets}))
}

fn subnet(name: &str) -> Option<Arc<Subnet>> {
    let spec = match name {
        "blue" => json!({"cidr": "10.20.0.0/24", "ipv6Cidr": "fd00:20::/64"}),
        _ => json!({"cidr": "10.21.0.0/24", "routed": false}),
    };
    Some(Arc::new(of_uid(name, spec, json!({}))))
}

/// Three VNics in blue, one in the Subnet without a router.
fn vnics(subnet: &str, address: &str) -> Vec<Arc<VNic>> {
    let there = [("blue", "10.20.0.9"), ("blue", "10.20.0.10"), ("blue", "fd00:20::9"), ("alone", "10.21.0.9")];
    if !there.contains(&(subnet, address)) {
        return Vec::new();
    }
    let mut said = Vec::new();
    let now = jiff::Timestamp::UNIX_EPOCH;
    conditions::set(&mut said, ADDRESSES_ASSIGNED, ConditionStatus::True, "Assigned", "", Some(1), now);
    let status = json!({"addresses": [address], "conditions": said});
    vec![Arc::new(of_uid("n", json!({"subnet": subnet}), status))]
}

fn told(routes: &[(&str, &[&str])]) -> (Vec<String>, Option<&'static str>) {
    let (hops, wrong) = plan(&vpc(routes), subnet, vnics);
    let hops = hops.iter().map(|hop| format!("{} via {}", hop.destination, hop.hop)).collect();
    (hops, wrong.map(|reason| reason.name()))
}

#[test]
fn the_router_is_told_of_every_hop_that_a_vnic_has() {
    let both: &[(&str, &[&str])] = &[("10.90.0.0/16", &["10.20.0.9", "10.20.0.10"]), ("fd00:90::/32", &["FD00:20::9"])];
    let wanted = ["10.90.0.0/16 via 10.20.0.9", "10.90.0.0/16 via 10.20.0.10", "fd00:90::/32 via fd00:20::9"];
    assert_eq!(told(both), (wanted.map(str::to_owned).into(), None));
    assert_eq!(hops(&vpc(both)).collect::<Vec<_>>(), ["10.20.0.9", "10.20.0.10", "fd00:20::9"]);
    assert_eq!(told(&[]), (vec![], None));
}

#[test]
fn a_route_that_leads_nowhere_is_told_and_the_others_stay() {
    let good: (&str, &[&str]) = ("10.91.0.0/16", &["10.20.0.9"]);
    let cases: [(&str, &str, &str); 6] = [
        ("10.90.0.0/16", "10.20.0.77", "NextHopMissing"),
        ("10.90.0.0/16", "10.20.0.1", "NextHopMissing"),
        ("10.90.0.0/16", "192.0.2.1", "NextHopUnreachable"),
        ("10.90.0.0/16", "10.21.0.9", "NextHopUnreachable"),
        ("10.20.0.128/25", "10.20.0.9", "RouteInSubnet"),
        ("fd00:20::/64", "fd00:20::9", "RouteInSubnet"),
    ];
    for (destination, hop, reason) in cases {
        let hops: &[&str] = &[hop];
        let all = [(destination, hops), good];
        assert_eq!(
            told(&all),
            (vec!["10.91.0.0/16 via 10.20.0.9".to_owned()], Some(reason)),
            "{destination} via {hop}"
        );
        let (_, wrong) = plan(&vpc(&all), subnet, vnics);
        let wrong = wrong.expect("wrong").told();
        assert!(wrong.contains(destination), "{wrong}");
    }
    // What is around a Subnet is for what is in none.
    assert_eq!(told(&[("10.0.0.0/8", &["10.20.0.9"])]).1, None);
}
