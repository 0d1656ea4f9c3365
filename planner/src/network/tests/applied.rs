//! `examples/vpc.yaml`, as it is applied: what passes in it, in both families.

use crate::network::admission::admit;
use crate::network::trace::{End, Network, Packet, Trace, trace};
use api::network::VpcStatus;
use api::{SecurityGroup, Subnet, VNic};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;

const EXAMPLE: &str = include_str!("../../../../examples/vpc.yaml");

fn example() -> Network {
    let mut network = Network::default();
    for text in EXAMPLE.split("\n---\n") {
        let mut object: Value = serde_saphyr::from_str(text).expect("YAML");
        object["metadata"]["namespace"] = json!("team-a");
        object["metadata"]["uid"] = json!(format!("uid-{}", object["metadata"]["name"]));
        match object["kind"].as_str() {
            Some("Vpc") => network.vpcs.push(serde_json::from_value(object).expect("a Vpc")),
            Some("Subnet") => network.subnets.push(serde_json::from_value(object).expect("a Subnet")),
            Some("SecurityGroup") => {
                let group: SecurityGroup = serde_json::from_value(object).expect("a SecurityGroup");
                network.groups.push(Arc::new(group));
            }
            other => panic!("{other:?}"),
        }
    }
    for subnet in network.subnets.clone() {
        let name = subnet.metadata.name.clone().unwrap_or_default();
        let addresses = [&subnet.spec.cidr, subnet.spec.ipv6_cidr.as_ref().expect("two families")]
            .map(|network| network.rsplit_once('/').map(|(network, _)| format!("{}7", network.trim_end_matches('0'))));
        let holder = json!({"attachmentNamespace": "n", "attachmentName": "a", "attachmentUID": "a", "dpuName": "dpu-1",
            "dpuUID": "d"});
        let vnic: VNic = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "team-a", "uid": format!("uid-nic-{name}"), "generation": 1},
            "spec": {"subnet": name},
            "status": {"addresses": addresses, "grant": {"epoch": 3}, "programmed": {"epoch": 3}, "holder": holder},
        }))
        .expect("a VNic");
        network.vnics.push(vnic);
    }
    network
}

fn of<'a>(network: &'a Network, vpc: &str) -> Vec<&'a Subnet> {
    network.subnets.iter().filter(|subnet| subnet.spec.vpc.name == vpc).collect()
}

fn ask(network: &Network, from: &str, to: &str, packet: Packet) -> Trace {
    let end = |name: &str| {
        let named = |vnic: &&VNic| vnic.metadata.name.as_deref() == Some(name);
        End::VNic(network.vnics.iter().find(named).expect("there"))
    };
    trace(network, end(from), end(to), packet).expect("both have addresses")
}

#[test]
fn blue_and_red_have_the_same_two_subnets_of_both_families_and_each_admits_its_own() {
    let network = example();
    let addresses = |vpc: &str| -> Vec<_> {
        of(&network, vpc).iter().map(|one| (one.spec.cidr.clone(), one.spec.ipv6_cidr.clone())).collect()
    };
    assert_eq!(addresses("blue").len(), 2);
    assert_eq!(addresses("blue"), addresses("red"));
    for mut vpc in network.vpcs.clone() {
        for subnet in of(&network, vpc.metadata.name.as_deref().unwrap_or_default()) {
            let admitted = admit(&vpc, subnet).expect("they do not overlap").expect("it is new");
            vpc.status = Some(VpcStatus { subnets: admitted, ..VpcStatus::default() });
        }
    }
}

#[test]
fn in_blue_members_reach_each_other_in_both_families_in_red_nobody_is_let_in_and_nothing_passes_between() {
    let network = example();
    for packet in [Packet::Tcp(22), Packet::Udp(53), Packet::Icmp] {
        let inside = ask(&network, "blue-a", "blue-b", packet);
        assert!(inside.allowed && inside.paths.len() == 2, "{inside:#?}");
        let closed = ask(&network, "red-a", "red-b", packet);
        assert!(!closed.allowed && closed.paths.len() == 2, "{closed:#?}");
        for path in &closed.paths {
            let sent = path.steps.iter().any(|step| step.allowed && step.message.contains("spec.egress[0]"));
            assert!(sent, "members may send to the whole of red: {path:#?}");
        }
        for (from, to) in [("blue-a", "red-a"), ("red-b", "blue-b")] {
            assert!(!ask(&network, from, to, packet).allowed, "{from} to {to}");
        }
    }
}

/// Whoever is in no group of blue's reaches 443 and may ping, by either family.
#[test]
fn everybody_reaches_443_and_may_ping() {
    let mut network = example();
    let stranger =
        network.vnics.iter_mut().find(|vnic| vnic.metadata.name.as_deref() == Some("blue-a")).expect("there");
    stranger.spec.security_groups = Some(vec!["open".to_owned()]);
    let open = json!({"metadata": {"name": "open", "namespace": "team-a", "uid": "uid-open"},
        "spec": {"vpc": {"name": "blue"}}});
    network.groups.push(serde_json::from_value(open).map(Arc::new).expect("a SecurityGroup"));
    for (packet, passes) in [(Packet::Tcp(443), true), (Packet::Icmp, true), (Packet::Tcp(22), false)] {
        let traced = ask(&network, "blue-a", "blue-b", packet);
        let of_families: Vec<bool> =
            traced.paths.iter().map(|path| path.steps.iter().all(|step| step.allowed)).collect();
        assert_eq!(of_families, [passes; 2], "{traced:#?}");
    }
    let router: IpAddr = "fd00:30::1".parse().expect("an address");
    let vnic = &network.vnics[0];
    assert!(trace(&network, End::VNic(vnic), End::Address(router), Packet::Icmp).expect("in its Vpc").allowed);
}
