//! A NatGateway's and a FloatingIP's rows compiled by a real `ovn-northd`: who leaves as whom, and who is let in.

use crate::lab::{in_namespace, missing_of_ovn};
use crate::northd::{A, Nic, Ovn, RED, SITE, port, router_mac, subnet};
use planner::network::rows::{
    Dhcp, Direction, Family, Floating, Gateway, Group, Provider, Row, Rule, Subnet, Vlan, Vpc, WayOut, diff,
};
use ports::NorthBound;

/// The data centre's router, which each Vpc's router has learned.
const HOP: (&str, &str) = ("203.0.113.1", "2001:db8:1::1");
const HOP_MAC: &str = "02:00:00:00:09:01";
const FLOATING: (&str, &str) = ("203.0.113.20", "2001:db8:1::20");

fn outer(vpc: &str) -> (&'static str, &'static str) {
    if vpc == "v" { ("203.0.113.10", "2001:db8:1::10") } else { ("203.0.113.11", "2001:db8:1::11") }
}

fn gateway(vpc: &str) -> Vec<Row> {
    let family = |address: &str, network: &str, gateway: &str| WayOut {
        address: address.parse().expect("an address"),
        network: network.parse().expect("a network"),
        gateway: Some(gateway.parse().expect("an address")),
    };
    let address = outer(vpc);
    let gateway = Gateway {
        uid: format!("out-{vpc}"),
        vpc_uid: vpc.to_owned(),
        network_uid: "p".to_owned(),
        mac: gateway_mac(vpc).to_owned(),
        families: vec![family(address.0, "203.0.113.0/24", HOP.0), family(address.1, "2001:db8:1::/64", HOP.1)],
        chassis: vec!["node-1".to_owned(), "node-2".to_owned()],
    };
    gateway.rows(SITE)
}

fn gateway_mac(vpc: &str) -> &'static str {
    if vpc == "v" { "02:00:00:00:09:0a" } else { "02:00:00:00:09:0b" }
}

fn floating(uid: &str, address: &str, to: &str, here: bool) -> Vec<Row> {
    let floating = Floating {
        uid: uid.to_owned(),
        vpc_uid: "v".to_owned(),
        outer: address.parse().expect("an address"),
        inner: to.parse().expect("an address"),
        here: here.then(|| ("mp-a-1".to_owned(), "02:00:00:00:09:14".to_owned())),
    };
    floating.rows(SITE)
}

fn open(uid: &str) -> Vec<Row> {
    let rule = |direction| Rule { direction, peers: None, ports: Vec::new(), icmp: None };
    Group { uid: uid.to_owned(), rules: vec![rule(Direction::Ingress), rule(Direction::Egress)] }.rows(SITE)
}

/// What a chassis learns by ARP.
fn learn(ovn: &Ovn, vpc: &str) {
    let datapath = ovn.south.tool(
        "ovn-sbctl",
        &["--bare", "--columns=_uuid", "find", "Datapath_Binding", &format!("external_ids:name=mp-{vpc}")],
    );
    for hop in [HOP.0, HOP.1] {
        let ip = format!("ip=\"{hop}\"");
        let set = [
            format!("logical_port=mp-out-{vpc}.port"),
            ip,
            format!("mac=\"{HOP_MAC}\""),
            format!("datapath={datapath}"),
        ];
        let set: Vec<&str> = ["create", "MAC_Binding"].into_iter().chain(set.iter().map(String::as_str)).collect();
        ovn.south.tool("ovn-sbctl", &set);
    }
}

/// As whom a packet to a host of the internet leaves.
fn leaves_as(ovn: &Ovn, from: &Nic, v4: bool) -> Vec<String> {
    let addresses = match v4 {
        true => format!("ip4.src == {} && ip4.dst == 198.51.100.7", from.v4),
        false => format!("ip6.src == {} && ip6.dst == 2001:db8:9::7", from.v6),
    };
    let packet = format!(
        "inport == \"mp-{}\" && eth.src == {} && eth.dst == {} && {addresses} && ip.ttl == 64 && tcp.dst == 443",
        from.uid,
        from.mac,
        router_mac(from.subnet)
    );
    let trace = ovn.trace(&format!("mp-{}", from.subnet), &packet);
    if !trace.contains("output to \"mp-p.localnet\"") {
        return Vec::new();
    }
    // `ct_snat(…);`, and in the common zone of OVN 23.03 `ct_snat_in_czone(…);`.
    let translated = |line: &str| {
        let action = line.trim().strip_suffix(");")?;
        Some(action.strip_prefix("ct_snat(").or_else(|| action.strip_prefix("ct_snat_in_czone("))?.to_owned())
    };
    trace.lines().filter_map(translated).collect()
}

fn comes_in(ovn: &Ovn, hop: &str, to: &str, v4: bool) -> String {
    let addresses = match v4 {
        true => format!("ip4.src == 198.51.100.7 && ip4.dst == {to}"),
        false => format!("ip6.src == 2001:db8:9::7 && ip6.dst == {to}"),
    };
    let packet = format!(
        "inport == \"mp-p.localnet\" && eth.src == {HOP_MAC} && eth.dst == {hop} && {addresses} && ip.ttl == 64 && tcp.dst == 443"
    );
    ovn.trace("mp-p", &packet)
}

#[test]
fn a_vpc_is_let_out_and_a_vnic_is_reached() {
    let name = "a_vpc_is_let_out_and_a_vnic_is_reached";
    if let Some(reason) = missing_of_ovn() {
        eprintln!("SKIP {name}: {reason}");
        return;
    }
    in_namespace(name, || async {
        let ovn = Ovn::start().await;
        let provider =
            Provider { uid: "p".to_owned(), vlan: Vlan { physical_network: "physnet1".to_owned(), tag: Some(100) } }
                .rows(SITE);
        ovn.put("p", provider.clone()).await;
        // Blue and red have equal addresses.
        for (vpc, switch, group) in [("v", "s1", "g-1"), ("w", "s3", "g-2")] {
            ovn.put(vpc, Vpc { uid: vpc.to_owned(), hops: Vec::new() }.rows(SITE)).await;
            ovn.put(switch, subnet(switch)).await;
            ovn.put(group, open(group)).await;
        }
        ovn.put(A.uid, port(&A, &["g-1"])).await;
        let red = Nic { v4: A.v4, v6: A.v6, ..RED };
        ovn.put(red.uid, port(&red, &["g-2"])).await;
        ovn.sync();
        assert_eq!(leaves_as(&ovn, &A, true), [""; 0], "without a gateway nothing leaves");

        for vpc in ["v", "w"] {
            ovn.put(&format!("out-{vpc}"), gateway(vpc)).await;
        }
        ovn.sync();
        ["v", "w"].into_iter().for_each(|vpc| learn(&ovn, vpc));
        for (nic, vpc) in [(&A, "v"), (&red, "w")] {
            assert_eq!(leaves_as(&ovn, nic, true), [outer(vpc).0], "{vpc}");
            assert_eq!(leaves_as(&ovn, nic, false), [outer(vpc).1], "{vpc}");
        }
        let trace = comes_in(&ovn, gateway_mac("v"), FLOATING.0, true);
        assert!(!trace.contains("output to \"mp-a-1\""), "nobody has the address: {trace}");

        for here in [false, true] {
            let hop = if here { "02:00:00:00:09:14" } else { gateway_mac("v") };
            ovn.put("f-4", floating("f-4", FLOATING.0, A.v4, here)).await;
            ovn.put("f-6", floating("f-6", FLOATING.1, A.v6, here)).await;
            ovn.sync();
            for (v4, outer) in [(true, FLOATING.0), (false, FLOATING.1)] {
                assert_eq!(leaves_as(&ovn, &A, v4), [outer], "seen by the address that is its own");
                let trace = comes_in(&ovn, hop, outer, v4);
                assert!(trace.contains("output to \"mp-a-1\"") && !trace.contains("mp-r-1"), "{outer}: {trace}");
            }
            assert_eq!(leaves_as(&ovn, &red, true), [outer("w").0], "the other Vpc");
        }
        // Who is in no group is reached by no address.
        ovn.put(A.uid, port(&A, &[])).await;
        ovn.sync();
        let trace = comes_in(&ovn, "02:00:00:00:09:14", FLOATING.0, true);
        assert!(!trace.contains("output to \"mp-a-1\""), "the Subnet's deny is behind it: {trace}");

        for (uid, wanted) in
            [("p", provider), ("out-v", gateway("v")), ("f-4", floating("f-4", FLOATING.0, A.v4, true))]
        {
            let left = diff(&wanted, &ovn.north_bound.rows(uid).expect("in step"));
            assert!(left.is_empty(), "ovn-northd writes nothing into our columns: {left:#?}");
        }
        let busy = diff(&[], &ovn.north_bound.rows("v").expect("in step"));
        let refused = ovn.north_bound.apply(&busy).await.expect_err("a router that others have rows on stays");
        assert_eq!(refused.class(), ports::ErrorClass::Busy, "{refused}");
        for uid in ["f-4", "f-6", "out-v", "out-w", "p"] {
            ovn.put(uid, Vec::new()).await;
        }
        ovn.put(A.uid, port(&A, &["g-1"])).await;
        ovn.sync();
        assert_eq!(leaves_as(&ovn, &A, true), [""; 0], "the way out no longer exists");
    });
}

/// As a host of the VLAN, with a Subnet of its own on it.
const HOST: Nic = Nic { uid: "h-1", subnet: "s4", mac: "02:00:00:00:04:07", v4: "203.0.113.7", v6: "2001:db8:1::7" };
/// One of the data centre's, with its MAC address.
const OTHER: (&str, &str, &str) = ("203.0.113.99", "2001:db8:1::99", "02:00:00:00:09:63");

fn on_vlan() -> Vec<Row> {
    let family = |network: &str, gateway: &str| Family {
        network: network.parse().expect("a network"),
        gateway: Some(gateway.parse().expect("an address")),
    };
    let subnet = Subnet {
        uid: HOST.subnet.to_owned(),
        vpc_uid: "v".to_owned(),
        families: vec![family("203.0.113.0/24", HOP.0), family("2001:db8:1::/64", HOP.1)],
        router_mac: "02:00:00:00:04:01".to_owned(),
        mtu: 1500,
        dhcp: Some(Dhcp { lease_seconds: 3600, ntp_servers: Vec::new() }),
        slaac: false,
        dns_servers: Vec::new(),
        domain: None,
        metadata: true,
        vlan: Some(Vlan { physical_network: "physnet1".to_owned(), tag: Some(100) }),
    };
    subnet.rows(SITE)
}

/// Whether a TCP packet of the guest reaches the VLAN, and one of a host there the guest.
fn meet(ovn: &Ovn, v4: bool) -> (bool, bool) {
    let (own, other) = if v4 { (HOST.v4, OTHER.0) } else { (HOST.v6, OTHER.1) };
    let ip = if v4 { "ip4" } else { "ip6" };
    let packet = |port: &str, macs: (&str, &str), from: &str, to: &str| {
        format!(
            "inport == \"{port}\" && eth.src == {} && eth.dst == {} && {ip}.src == {from} && {ip}.dst == {to} && ip.ttl == 64 && tcp.dst == 443",
            macs.0, macs.1
        )
    };
    let out = ovn.trace("mp-s4", &packet("mp-h-1", (HOST.mac, OTHER.2), own, other));
    let back = ovn.trace("mp-s4", &packet("mp-s4.localnet", (OTHER.2, HOST.mac), other, own));
    (out.contains("output to \"mp-s4.localnet\""), back.contains("output to \"mp-h-1\""))
}

#[test]
fn a_host_of_the_vlan_meets_whom_its_groups_let() {
    let name = "a_host_of_the_vlan_meets_whom_its_groups_let";
    if let Some(reason) = missing_of_ovn() {
        eprintln!("SKIP {name}: {reason}");
        return;
    }
    in_namespace(name, || async {
        let ovn = Ovn::start().await;
        ovn.put("v", Vpc { uid: "v".to_owned(), hops: Vec::new() }.rows(SITE)).await;
        ovn.put("s1", subnet("s1")).await;
        ovn.put("s4", on_vlan()).await;
        ovn.put("g-1", open("g-1")).await;
        ovn.put(A.uid, port(&A, &["g-1"])).await;
        for (groups, expected) in [(&[][..], (false, false)), (&["g-1"], (true, true))] {
            ovn.put(HOST.uid, port(&HOST, groups)).await;
            ovn.sync();
            for v4 in [true, false] {
                assert_eq!(meet(&ovn, v4), expected, "in {groups:?}, IPv4: {v4}");
            }
        }
        let asked = format!(
            "inport == \"mp-h-1\" && eth.src == {} && eth.dst == ff:ff:ff:ff:ff:ff && ip4.src == 0.0.0.0 && ip4.dst == 255.255.255.255 && ip.ttl == 64 && udp.src == 68 && udp.dst == 67",
            HOST.mac
        );
        let trace = ovn.trace("mp-s4", &asked);
        assert!(trace.contains("put_dhcp_opts") && trace.contains("router = 203.0.113.1"), "{trace}");
        assert!(!trace.contains("output to \"mp-s4.localnet\""), "OVN answers itself: {trace}");
        // By the router of its Vpc nobody comes to it.
        let over = format!(
            "inport == \"mp-a-1\" && eth.src == {} && eth.dst == {} && ip4.src == {} && ip4.dst == {} && ip.ttl == 64 && tcp.dst == 443",
            A.mac,
            router_mac("s1"),
            A.v4,
            HOST.v4
        );
        let trace = ovn.trace("mp-s1", &over);
        assert!(!trace.contains("output to \"mp-h-1\""), "{trace}");
        let left = diff(&on_vlan(), &ovn.north_bound.rows("s4").expect("in step"));
        assert!(left.is_empty(), "ovn-northd writes nothing into our columns: {left:#?}");
        ovn.put(HOST.uid, Vec::new()).await;
        ovn.put("s4", Vec::new()).await;
        assert_eq!(ovn.north_bound.rows("s4").expect("in step").len(), 0);
    });
}
