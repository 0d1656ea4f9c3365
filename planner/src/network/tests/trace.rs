//! The trace against a model that reads nothing but what was declared, over random groups; and what is said of each reason.

use crate::network::trace::{End, Network, Packet, trace};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;

const VPCS: [&str; 2] = ["red", "blue"];
const GROUPS: [&str; 3] = ["a", "b", "c"];
/// The last part of the VNics' addresses in each Subnet.
const HOSTS: [u8; 2] = [7, 40];
const PORTS: [u16; 3] = [80, 443, 8080];

fn object<K: serde::de::DeserializeOwned>(name: &str, spec: &Value, status: &Value) -> K {
    let meta = json!({"name": name, "namespace": "team-a", "uid": format!("uid-{name}"), "generation": 1});
    serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": status})).expect("an object")
}

/// What is declared: by its name, the spec.
#[derive(Debug, Clone)]
struct Declared {
    groups: Vec<(String, Value)>,
    /// Name, Vpc, address, and the groups that it names.
    vnics: Vec<(String, &'static str, Ipv4Addr, Option<Vec<String>>)>,
}

fn peers() -> impl Strategy<Value = Value> {
    let nets = ["0.0.0.0/0", "10.1.0.0/24", "10.2.0.0/24", "10.1.0.0/28", "10.1.0.40/32", "fd00::/8"];
    let cidr = prop::sample::select(nets.to_vec()).prop_map(|cidr| json!({"cidr": cidr}));
    let except = Just(json!({"cidr": "10.0.0.0/8", "except": ["10.1.0.0/28", "10.2.0.0/16"]}));
    // A name without its Vpc: of both, so that one of another Vpc is named too.
    let names: Vec<String> =
        VPCS.iter().flat_map(|vpc| GROUPS.iter().map(move |group| format!("{vpc}-{group}"))).collect();
    let group = prop::sample::select(names).prop_map(|group| json!({"securityGroup": {"name": group}}));
    let peer = prop_oneof![3 => cidr, 1 => except, 3 => group];
    prop_oneof![1 => Just(Value::Null), 4 => prop::collection::vec(peer, 1..3).prop_map(|all| json!(all))]
}

fn what() -> impl Strategy<Value = Value> {
    let port = (prop::sample::select(vec!["TCP", "UDP", "SCTP"]), prop::sample::select(PORTS.to_vec()), 0..400u16);
    let port = port.prop_map(|(protocol, port, more)| match more {
        0..=99 => json!({"protocol": protocol}),
        100..=199 => json!({"protocol": protocol, "port": port}),
        more => json!({"protocol": protocol, "port": port, "endPort": port + more}),
    });
    let icmp = prop_oneof![
        Just(json!({"family": "IPv4"})),
        Just(json!({"family": "IPv4", "type": 8})),
        Just(json!({"family": "IPv4", "type": 0})),
        Just(json!({"family": "IPv6", "type": 8})),
    ];
    prop_oneof![
        1 => Just(json!({})),
        4 => prop::collection::vec(port, 1..3).prop_map(|ports| json!({"ports": ports})),
        2 => icmp.prop_map(|icmp| json!({"icmp": icmp})),
    ]
}

fn rules(side: &'static str) -> impl Strategy<Value = Vec<Value>> {
    let rule = (peers(), what()).prop_map(move |(peers, mut rule)| {
        if !peers.is_null() {
            rule[side] = peers;
        }
        rule
    });
    prop::collection::vec(rule, 0..3)
}

fn declared() -> impl Strategy<Value = Declared> {
    let group = (rules("from"), prop::option::weighted(0.7, rules("to")));
    let groups = prop::collection::vec(group, VPCS.len() * GROUPS.len());
    let member = prop::option::weighted(0.8, prop::sample::subsequence(GROUPS.to_vec(), 0..=2));
    let members = prop::collection::vec(member, VPCS.len() * 2 * HOSTS.len());
    (groups, members).prop_map(|(groups, members)| {
        let (mut groups, mut members) = (groups.into_iter(), members.into_iter());
        let mut all = Declared { groups: Vec::new(), vnics: Vec::new() };
        for vpc in VPCS {
            for group in GROUPS {
                let (ingress, egress) = groups.next().expect("one for each");
                let mut spec = json!({"vpc": {"name": vpc}, "ingress": ingress});
                if let Some(egress) = egress {
                    spec["egress"] = json!(egress);
                }
                all.groups.push((format!("{vpc}-{group}"), spec));
            }
            for (subnet, host) in [(1, HOSTS[0]), (1, HOSTS[1]), (2, HOSTS[0]), (2, HOSTS[1])] {
                let named = members.next().expect("one for each");
                let named = named.map(|named| named.iter().map(|group| format!("{vpc}-{group}")).collect());
                all.vnics.push((format!("{vpc}-{subnet}-{host}"), vpc, Ipv4Addr::new(10, subnet, 0, host), named));
            }
        }
        all
    })
}

fn network(declared: &Declared) -> Network {
    let mut network = Network::default();
    for vpc in VPCS {
        network.vpcs.push(object(vpc, &json!({"defaultSecurityGroups": [format!("{vpc}-a")]}), &Value::Null));
        for subnet in [1, 2] {
            let spec = json!({"vpc": {"name": vpc}, "cidr": format!("10.{subnet}.0.0/24"), "gateway": format!("10.{subnet}.0.1")});
            network.subnets.push(object(&format!("{vpc}-{subnet}"), &spec, &Value::Null));
        }
    }
    for (name, spec) in &declared.groups {
        network.groups.push(Arc::new(object(name, spec, &Value::Null)));
    }
    for (name, vpc, address, groups) in &declared.vnics {
        let mut spec = json!({"subnet": format!("{vpc}-{}", address.octets()[1]), "addresses": [address]});
        if let Some(groups) = groups {
            spec["securityGroups"] = json!(groups);
        }
        let status = json!({"addresses": [address], "grant": {"epoch": 3}, "programmed": {"epoch": 3},
            "holder": {"attachmentNamespace": "n", "attachmentName": "a", "attachmentUID": "a", "dpuName": "dpu-1", "dpuUID": "d"}});
        network.vnics.push(object(name, &spec, &status));
    }
    network
}

/// Nothing of it is the planner's.
impl Declared {
    fn groups_of(&self, vnic: usize) -> Vec<String> {
        let (_, vpc, _, named) = &self.vnics[vnic];
        named.clone().unwrap_or_else(|| vec![format!("{vpc}-a")])
    }

    fn within(network: &str, address: Ipv4Addr) -> bool {
        let (base, length) = network.split_once('/').expect("a network");
        let Ok(base) = base.parse::<Ipv4Addr>() else { return false };
        let shift = 32 - length.parse::<u32>().expect("a length");
        u64::from(u32::from(base)) >> shift == u64::from(u32::from(address)) >> shift
    }

    fn is_peer(&self, peer: &Value, vpc: &str, other: Ipv4Addr) -> bool {
        if let Some(group) = peer["securityGroup"]["name"].as_str() {
            let member = |at: usize| {
                let (_, of, address, _) = &self.vnics[at];
                *of == vpc && *address == other && self.groups_of(at).iter().any(|own| own == group)
            };
            return group.starts_with(vpc) && (0..self.vnics.len()).any(member);
        }
        let inside = |network: &Value| Self::within(network.as_str().expect("a network"), other);
        inside(&peer["cidr"]) && !peer["except"].as_array().into_iter().flatten().any(inside)
    }

    fn is_meant(rule: &Value, packet: Packet) -> bool {
        let (protocol, asked) = match packet {
            Packet::Icmp => {
                let (icmp, kind) = (&rule["icmp"], &rule["icmp"]["type"]);
                let echo = icmp["family"] == "IPv4" && (kind.is_null() || *kind == 8);
                return if icmp.is_null() { rule["ports"].is_null() } else { echo };
            }
            Packet::Tcp(port) => ("TCP", port),
            Packet::Udp(port) => ("UDP", port),
        };
        if rule["icmp"].is_object() {
            return false;
        }
        let Some(ports) = rule["ports"].as_array() else { return true };
        ports.iter().any(|range| {
            let first = range["port"].as_u64();
            let last = range["endPort"].as_u64().or(first);
            let fits = first.is_none_or(|first| (first..=last.unwrap_or(first)).contains(&u64::from(asked)));
            range["protocol"] == protocol && fits
        })
    }

    fn lets(&self, vnic: usize, list: &str, side: &str, other: Ipv4Addr, packet: Packet) -> bool {
        let vpc = self.vnics[vnic].1;
        self.groups_of(vnic).iter().any(|named| {
            let (_, spec) = self.groups.iter().find(|(name, _)| name == named).expect("it is there");
            match spec[list].as_array() {
                None => true,
                Some(rules) => rules.iter().any(|rule| {
                    let peers = rule[side].as_array();
                    let is_peer = peers.is_none_or(|all| all.iter().any(|peer| self.is_peer(peer, vpc, other)));
                    is_peer && Self::is_meant(rule, packet)
                }),
            }
        })
    }

    fn allows(&self, from: usize, to: usize, packet: Packet) -> bool {
        let ((_, vpc, source, _), (_, other, destination, _)) = (&self.vnics[from], &self.vnics[to]);
        vpc == other
            && self.lets(from, "egress", "to", *destination, packet)
            && self.lets(to, "ingress", "from", *source, packet)
    }
}

proptest! {
    #[test]
    fn the_trace_says_what_was_declared(declared in declared()) {
        let network = network(&declared);
        let packets = PORTS.iter().flat_map(|port| [Packet::Tcp(*port), Packet::Udp(*port)]).chain([Packet::Icmp]);
        for packet in packets {
            for (from, to) in (0..8).flat_map(|from| (0..8).map(move |to| (from, to))).filter(|(from, to)| from != to) {
                let (a, b) = (&network.vnics[from], &network.vnics[to]);
                let traced = trace(&network, End::VNic(a), End::VNic(b), packet).expect("both have addresses");
                prop_assert_eq!(traced.allowed, declared.allows(from, to, packet), "{:#?}", traced);
                // An address means whoever has it in the Vpc of the other end.
                if declared.vnics[from].1 == declared.vnics[to].1 {
                    let address = End::Address(declared.vnics[to].2.into());
                    let by_address = trace(&network, End::VNic(a), address, packet).expect("one is a VNic");
                    prop_assert_eq!(by_address.paths, traced.paths);
                }
            }
        }
    }
}

/// Two VNics of Vpc red in two Subnets, one of blue; group red-a lets TCP 443 in.
fn example() -> Network {
    let vnic = |name: &str, vpc, subnet| (name.to_owned(), vpc, Ipv4Addr::new(10, subnet, 0, 7), None);
    network(&Declared {
        groups: vec![
            (
                "red-a".to_owned(),
                json!({"vpc": {"name": "red"}, "ingress": [{"ports": [{"protocol": "TCP", "port": 443}]}]}),
            ),
            ("blue-a".to_owned(), json!({"vpc": {"name": "blue"}})),
        ],
        vnics: vec![vnic("one", "red", 1), vnic("two", "red", 2), vnic("three", "blue", 1)],
    })
}

fn said(network: &Network, from: End<'_>, to: End<'_>, packet: Packet) -> String {
    let traced = trace(network, from, to, packet).expect("an answer");
    let steps = traced.paths.iter().flat_map(|path| &path.steps);
    let steps = steps.map(|step| format!("{} {}: {}\n", if step.allowed { "+" } else { "-" }, step.by, step.message));
    steps.collect::<String>() + if traced.allowed { "allowed" } else { "denied" }
}

#[test]
fn each_step_names_the_object_that_decides() {
    let network = example();
    let [one, two, three] = [0, 1, 2].map(|at| End::VNic(&network.vnics[at]));
    let expected = "\
+ VNic 'one': bound, and in force, on Dpu 'dpu-1'
+ SecurityGroup 'red-a': spec.egress is left out: everything
+ Subnet 'red-1': it has a router
+ Subnet 'red-2': it has a router
+ SecurityGroup 'red-a': spec.ingress[0]
+ VNic 'two': bound, and in force, on Dpu 'dpu-1'
allowed";
    assert_eq!(said(&network, one, two, Packet::Tcp(443)), expected);
    let denied = said(&network, one, two, Packet::Udp(443));
    let why =
        "- Subnet 'red-2': default deny: no ingress rule of SecurityGroup 'red-a' allows UDP port 443 from 10.1.0.7";
    assert!(denied.contains(why) && denied.ends_with("denied"), "{denied}");
    assert!(said(&network, one, three, Packet::Icmp).contains("- Vpc 'red': VNic 'three' is in another Vpc, 'blue'"));
    let at = |address: &str| End::Address(address.parse().expect("an address"));
    assert!(said(&network, one, at("10.1.0.1"), Packet::Icmp).ends_with("allowed"), "the router answers");
    assert!(
        said(&network, one, at("10.1.0.1"), Packet::Tcp(443)).contains("- Subnet 'red-1': the router answers ICMP")
    );
    assert!(said(&network, one, at("10.2.0.9"), Packet::Icmp).contains("- Subnet 'red-2': no VNic has 10.2.0.9"));
    assert!(said(&network, one, at("192.0.2.1"), Packet::Icmp).contains("192.0.2.1 is in no Subnet of Vpc 'red'"));
    assert!(said(&network, at("192.0.2.1"), one, Packet::Tcp(443)).contains("VNic 'one' has no FloatingIP"));
    trace(&network, one, one, Packet::Icmp).expect_err("to itself");
    trace(&network, at("10.1.0.7"), at("10.2.0.7"), Packet::Icmp).expect_err("no Vpc");
    trace(&network, one, at("fd00::1"), Packet::Icmp).expect_err("another family");
    let traced = trace(&network, one, two, Packet::Tcp(443)).expect("an answer");
    assert_eq!(traced.notes.len(), 1, "its rules are not in force: {:?}", traced.notes);
}

#[test]
fn outside_is_reached_as_who_is_told() {
    let mut network = example();
    let host = End::Address("192.0.2.1".parse().expect("an address"));
    let out = |network: &Network| said(network, End::VNic(&network.vnics[0]), host, Packet::Tcp(443));
    let in_ = |network: &Network, port| said(network, host, End::VNic(&network.vnics[0]), Packet::Tcp(port));
    let programmed = json!([{"type": "Programmed", "status": "True", "reason": "Programmed", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let spec = json!({"vpc": {"name": "red"}, "providerNetwork": "outside"});
    network.gateways.push(object("out", &spec, &json!({"addresses": ["203.0.113.10"]})));
    assert!(out(&network).contains("- NatGateway 'out': OVN does not have it yet"), "{}", out(&network));
    network.gateways[0].status.as_mut().expect("a status").conditions =
        serde_json::from_value(programmed.clone()).expect("conditions");
    let said_out = out(&network);
    assert!(
        said_out.contains("+ NatGateway 'out': leaves as 203.0.113.10") && said_out.ends_with("allowed"),
        "{said_out}"
    );
    assert!(in_(&network, 443).ends_with("denied"), "a way out is none in");
    let (spec, status) = (
        json!({"providerNetwork": "outside", "vnic": "one"}),
        json!({"address": "203.0.113.20", "vnicUID": "uid-one", "conditions": programmed}),
    );
    network.floating.push(object("fip", &spec, &status));
    assert!(out(&network).contains("+ FloatingIP 'fip': leaves as 203.0.113.20"), "{}", out(&network));
    let said_in = in_(&network, 443);
    assert!(said_in.contains("+ FloatingIP 'fip': 203.0.113.20 is translated to 10.1.0.7"), "{said_in}");
    assert!(said_in.ends_with("allowed") && in_(&network, 80).ends_with("denied"), "as far as the groups allow");
    let three = said(&network, End::VNic(&network.vnics[2]), host, Packet::Icmp);
    assert!(three.contains("- ") && three.ends_with("denied"), "of another Vpc: {three}");
}

/// VNic `two` is an appliance of its Vpc.
#[test]
fn a_route_leads_to_the_guest_that_may_receive() {
    let mut network = example();
    let route =
        |hop| serde_json::from_value(json!([{"destination": "192.0.2.0/24", "nextHops": [hop]}])).expect("routes");
    network.vpcs[0].spec.routes = route("10.2.0.99");
    let host = End::Address("192.0.2.1".parse().expect("an address"));
    let out = |network: &Network, port| said(network, End::VNic(&network.vnics[0]), host, Packet::Tcp(port));
    let in_ = |network: &Network, port| said(network, host, End::VNic(&network.vnics[0]), Packet::Tcp(port));
    assert!(
        out(&network, 443)
            .contains("- Vpc 'red': spec.routes: 192.0.2.0/24 is reached by 10.2.0.99, which no VNic has")
    );
    network.vpcs[0].spec.routes = route("10.2.0.7");
    let why = "- VNic 'two': 192.0.2.1 is not among the allowedAddresses";
    assert!(out(&network, 443).contains(why) && in_(&network, 443).contains(why), "{}", out(&network, 443));
    network.vnics[1].status.as_mut().expect("a status").allowed_addresses = vec!["192.0.2.0/24".to_owned()];
    let passes = out(&network, 443);
    assert!(passes.contains("+ Vpc 'red': spec.routes: 192.0.2.0/24 is reached by 10.2.0.7, VNic 'two'"), "{passes}");
    assert!(passes.ends_with("allowed") && out(&network, 80).ends_with("denied"), "as the appliance's groups say");
    assert!(in_(&network, 443).ends_with("allowed") && in_(&network, 80).ends_with("denied"), "{}", in_(&network, 443));
    let three = said(&network, End::VNic(&network.vnics[2]), host, Packet::Tcp(443));
    assert!(three.ends_with("denied"), "of another Vpc: {three}");
}

#[test]
fn an_address_that_guests_share_is_answered_by_any_of_them() {
    let mut network = example();
    let mut shared = network.vnics[1].clone();
    (shared.metadata.name, shared.metadata.uid) = (Some("shared".to_owned()), Some("uid-shared".to_owned()));
    let status = shared.status.as_mut().expect("a status");
    (status.addresses, status.holder) = (vec!["10.2.0.200".to_owned()], None);
    network.vnics.push(shared);
    let asked = |network: &Network, port| {
        said(network, End::VNic(&network.vnics[0]), End::VNic(&network.vnics[3]), Packet::Tcp(port))
    };
    assert!(asked(&network, 443).contains("- VNic 'shared': no host has it"), "{}", asked(&network, 443));
    network.vnics[1].status.as_mut().expect("a status").allowed_addresses = vec!["10.2.0.200".to_owned()];
    let answered = asked(&network, 443);
    assert!(answered.contains("+ VNic 'two': bound") && answered.ends_with("allowed"), "{answered}");
    assert!(asked(&network, 80).ends_with("denied"));
}

#[test]
fn what_is_not_there_lets_nothing_pass() {
    let mut network = example();
    network.vnics[1].status.as_mut().expect("a status").holder = None;
    let asked =
        |network: &Network| said(network, End::VNic(&network.vnics[0]), End::VNic(&network.vnics[1]), Packet::Tcp(443));
    assert!(asked(&network).contains("- VNic 'two': no host has it"), "{}", asked(&network));

    let mut network = example();
    network.vnics[1].status.as_mut().expect("a status").grant.epoch = 4;
    assert!(asked(&network).contains("- VNic 'two': "), "OVN has the port of an earlier grant");

    let mut network = example();
    network.attachments = Some(Vec::new());
    assert!(asked(&network).contains("- VNic 'two': its port is not in force yet"), "{}", asked(&network));

    let mut network = example();
    network.subnets[1].spec.routed = false;
    assert!(asked(&network).contains("- Subnet 'red-2': it is not routed"), "{}", asked(&network));

    let mut network = example();
    network.vpcs[0].spec.default_security_groups.clear();
    assert!(asked(&network).contains("default deny: VNic 'one' is in no SecurityGroup"), "{}", asked(&network));
}
