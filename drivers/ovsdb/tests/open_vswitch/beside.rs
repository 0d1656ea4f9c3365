//! What goes by a guest: routes of a Vpc, addresses beside a VNic's own, virtual IPs, and rates; compiled by a real `ovn-northd`.

use crate::lab::{in_namespace, missing_of_ovn};
use crate::northd::{A, B, C, Nic, Ovn, SITE, port, port_of, router_mac, subnet};
use planner::network::rows::{Direction, Group, Hop, Port, Rates, Row, Rule, Vpc, diff};
use ports::NorthBound;

/// Behind an appliance that A is.
const BEHIND: (&str, &str) = ("10.90.0.7", "fd00:90::7");
const NETWORKS: (&str, &str) = ("10.90.0.0/16", "fd00:90::/32");
const SHARED: (&str, &str) = ("10.1.0.200", "fd00:1::200");

fn vpc(hops: &[(&str, &str)]) -> Vec<Row> {
    let hop = |(destination, hop): &(&str, &str)| Hop {
        destination: destination.parse().expect("a network"),
        hop: hop.parse().expect("an address"),
    };
    Vpc { uid: "v".to_owned(), hops: hops.iter().map(hop).collect() }.rows(SITE)
}

fn open() -> Vec<Row> {
    let rule = |direction| Rule { direction, peers: None, ports: Vec::new(), icmp: None };
    Group { uid: "g-1".to_owned(), rules: vec![rule(Direction::Ingress), rule(Direction::Egress)] }.rows(SITE)
}

fn with(nic: &Nic, allowed: &[&str]) -> Vec<Row> {
    let allowed = allowed.iter().map(|text| (*text).to_owned()).collect();
    Port { allowed, ..port_of(nic, &["g-1"]) }.rows(SITE)
}

/// An address that B's and A's guests share; `parents`: of what is nobody's.
fn shared(parents: &[&str]) -> Vec<Row> {
    let nic = Nic { uid: "vip-1", mac: "02:00:00:00:01:c8", v4: SHARED.0, v6: SHARED.1, ..A };
    let parents = parents.iter().map(|nic| format!("mp-{nic}")).collect();
    Port { binding: None, parents, ..port_of(&nic, &["g-1"]) }.rows(SITE)
}

/// Of each family: whether a packet from the one to the other comes out at a port.
fn gets(ovn: &Ovn, from: &Nic, source: (&str, &str), to: (&str, &str), hop: &str, at: &str) -> bool {
    let addresses = |version, source, to| {
        format!(
            "eth.dst == {hop} && {version}.src == {source} && {version}.dst == {to} && ip.ttl == 64 && tcp.dst == 80"
        )
    };
    let v4 = ovn.passes(from, &addresses("ip4", source.0, to.0), at);
    let v6 = ovn.passes(from, &addresses("ip6", source.1, to.1), at);
    assert_eq!(v4, v6, "both families: {} to {to:?} at {at}", from.uid);
    v4
}

fn own(nic: &Nic) -> (&'static str, &'static str) {
    (nic.v4, nic.v6)
}

#[test]
fn what_goes_by_a_guest_goes_by_the_one_that_may_have_it() {
    let name = "what_goes_by_a_guest_goes_by_the_one_that_may_have_it";
    if let Some(reason) = missing_of_ovn() {
        eprintln!("SKIP {name}: {reason}");
        return;
    }
    in_namespace(name, || async {
        let ovn = Ovn::start().await;
        ovn.put("v", vpc(&[])).await;
        for uid in ["s1", "s2"] {
            ovn.put(uid, subnet(uid)).await;
        }
        ovn.put("g-1", open()).await;
        for nic in [&A, &B, &C] {
            ovn.put(nic.uid, port(nic, &["g-1"])).await;
        }
        routes_lead_to_who_may_receive(&ovn).await;
        a_virtual_ip_is_where_it_was_announced(&ovn).await;
        rates_are_meters(&ovn).await;
    });
}

async fn routes_lead_to_who_may_receive(ovn: &Ovn) {
    let there = |from: &Nic, at: &str| gets(ovn, from, own(from), BEHIND, router_mac(from.subnet), at);
    let back = |hop: &str, at: &str| gets(ovn, &A, BEHIND, own(&C), hop, at);
    ovn.sync();
    assert!(!there(&C, A.uid), "no route");
    let wanted = vpc(&[(NETWORKS.0, A.v4), (NETWORKS.1, A.v6)]);
    ovn.put("v", wanted.clone()).await;
    ovn.sync();
    assert!(!there(&C, A.uid), "the port of the hop takes only what is its own");
    assert!(!back(router_mac("s1"), C.uid), "and sends nothing else");
    // `ovn-trace` compares what port security says with whole addresses; a chassis knows networks too (ovn-nb(5), port_security).
    ovn.put(A.uid, with(&A, &[BEHIND.0, BEHIND.1])).await;
    ovn.sync();
    assert!(there(&C, A.uid), "from another Subnet");
    assert!(there(&B, A.uid), "from the same one");
    assert!(back(router_mac("s1"), C.uid), "and back");
    assert!(!gets(ovn, &A, ("10.91.0.7", "fd01:90::7"), own(&C), router_mac("s1"), C.uid), "of no other network");
    let left = diff(&wanted, &ovn.north_bound.rows("v").expect("in step"));
    assert!(left.is_empty(), "ovn-northd writes nothing into our columns: {left:#?}");

    // Two hops share the connections of one destination.
    ovn.put("v", vpc(&[(NETWORKS.0, A.v4), (NETWORKS.0, B.v4), (NETWORKS.1, A.v6), (NETWORKS.1, B.v6)])).await;
    ovn.sync();
    let flows = ovn.south.tool("ovn-sbctl", &["lflow-list", "mp-v"]);
    for hop in [A.v4, B.v4, A.v6, B.v6] {
        let is_of = |line: &str| line.contains("lr_in_ip_routing_ecmp") && line.contains(&format!("= {hop};"));
        assert!(flows.lines().any(is_of), "{hop} is one of several: {flows}");
    }
    ovn.put("v", vpc(&[])).await;
    ovn.put(A.uid, port(&A, &["g-1"])).await;
    ovn.sync();
    assert!(!there(&C, A.uid), "the route was taken out");
}

async fn a_virtual_ip_is_where_it_was_announced(ovn: &Ovn) {
    let beside = |from: &Nic, mac: &str, at: &str| gets(ovn, from, own(from), SHARED, mac, at);
    let sends = |nic: &Nic| gets(ovn, nic, SHARED, own(&C), router_mac("s1"), C.uid);
    ovn.put("vip-1", shared(&[])).await;
    ovn.sync();
    assert!(!sends(&A) && !beside(&B, A.mac, A.uid), "it is another VNic's");
    for nic in [&A, &B] {
        ovn.put(nic.uid, with(nic, &[SHARED.0, SHARED.1])).await;
    }
    let wanted = shared(&[A.uid, B.uid]);
    ovn.put("vip-1", wanted.clone()).await;
    ovn.sync();
    assert!(sends(&A) && sends(&B), "both may send from it");
    assert!(beside(&B, A.mac, A.uid) && beside(&A, B.mac, B.uid), "and receive at it");
    let routed = |at: &str| gets(ovn, &C, own(&C), SHARED, router_mac("s2"), at);
    let chassis = ovn.add_chassis("chassis-1");
    for (owner, other) in [(&A, &B), (&B, &A)] {
        ovn.announce(&["mp-vip-1", "mp-vip-1.virtual-1"], owner.uid, &chassis);
        ovn.sync();
        assert!(routed(owner.uid) && !routed(other.uid), "the router sends it to {}", owner.uid);
    }
    let left = diff(&wanted, &ovn.north_bound.rows("vip-1").expect("in step"));
    assert!(left.is_empty(), "ovn-northd writes nothing into our columns: {left:#?}");
    // A host takes the VNic: the others may not have its address any more.
    for nic in [&A, &B] {
        ovn.put(nic.uid, port(nic, &["g-1"])).await;
    }
    let host = Nic { uid: "vip-1", mac: "02:00:00:00:01:c8", v4: SHARED.0, v6: SHARED.1, ..A };
    ovn.put("vip-1", port(&host, &["g-1"])).await;
    ovn.sync();
    assert!(!sends(&A) && routed("vip-1") && !routed(A.uid), "it is a port like any");
    ovn.put("vip-1", Vec::new()).await;
}

/// `ovn-trace` passes a meter by, so the flows are read: what a chassis makes of them is OVN's.
async fn rates_are_meters(ovn: &Ovn) {
    let limited = |rates| Port { rates, ..port_of(&A, &["g-1"]) }.rows(SITE);
    let flows = || ovn.south.tool("ovn-sbctl", &["lflow-list", "mp-s1"]);
    let metered = |flows: &str, port: &str, rate: &str| {
        let is_it = |line: &str| line.contains("qos_meter") && line.contains(port) && line.contains(rate);
        flows.lines().any(is_it)
    };
    let rates = Rates { ingress: Some(100_000), egress: Some(50_000) };
    ovn.put(A.uid, limited(rates)).await;
    ovn.sync();
    let flows_now = flows();
    assert!(metered(&flows_now, "outport == \"mp-a-1\"", "set_meter(100000, 10000)"), "{flows_now}");
    assert!(metered(&flows_now, "inport == \"mp-a-1\"", "set_meter(50000, 5000)"), "{flows_now}");
    assert!(gets(ovn, &A, own(&A), own(&B), B.mac, B.uid), "what is metered passes");
    let left = diff(&limited(rates), &ovn.north_bound.rows(A.uid).expect("in step"));
    assert!(left.is_empty(), "ovn-northd writes nothing into our columns: {left:#?}");
    ovn.put(A.uid, limited(Rates { egress: None, ..rates })).await;
    ovn.put(B.uid, limited_beside(&B)).await;
    ovn.sync();
    assert!(!flows().contains("set_meter(50000"), "{}", flows());
    ovn.put(A.uid, Vec::new()).await;
    ovn.sync();
    let flows_now = flows();
    assert!(!flows_now.contains("mp-a-1") && flows_now.contains("set_meter(70000, 7000)"), "{flows_now}");
}

fn limited_beside(nic: &Nic) -> Vec<Row> {
    Port { rates: Rates { ingress: Some(70_000), egress: None }, ..port_of(nic, &["g-1"]) }.rows(SITE)
}
