//! Objects that the cases are made of.

use super::super::{life, network::object};
use serde_json::{Value, json};

pub(super) fn vpc(name: &str) -> Value {
    object("Vpc", name, &json!({}))
}

/// It sends to a VNic.
pub(super) fn routed(name: &str) -> Value {
    object("Vpc", name, &json!({"routes": [{"destination": "10.90.0.0/16", "nextHops": ["10.30.0.7"]}]}))
}

pub(super) fn subnet(name: &str, vpc: &str, cidr: &str) -> Value {
    object("Subnet", name, &json!({"vpc": {"name": vpc}, "cidr": cidr}))
}

pub(super) fn group(name: &str, vpc: &str) -> Value {
    let from = json!([{"from": [{"securityGroup": {"name": "peers"}}]}]);
    object("SecurityGroup", name, &json!({"vpc": {"name": vpc}, "ingress": from}))
}

pub(super) fn vnic(name: &str, spec: &Value) -> Value {
    object("VNic", name, spec)
}

pub(super) fn at(name: &str, address: &str) -> Value {
    vnic(name, &json!({"subnet": "blue", "addresses": [address]}))
}

/// Of three addresses.
pub(super) fn outside() -> Value {
    let spec = json!({"physicalNetwork": "physnet1", "cidr": "203.0.113.0/24", "gateway": "203.0.113.1",
        "addresses": ["203.0.113.10-203.0.113.12"], "gatewayNodes": ["dpu-1"]});
    object("ProviderNetwork", "outside", &spec)
}

/// Of other addresses.
pub(super) fn another_outside(name: &str) -> Value {
    let spec = json!({"physicalNetwork": "physnet1", "cidr": "198.51.100.0/24", "gateway": "198.51.100.1",
        "addresses": ["198.51.100.10-198.51.100.12"], "gatewayNodes": ["dpu-1"]});
    object("ProviderNetwork", name, &spec)
}

/// For a Subnet alone.
pub(super) fn network(name: &str, physical_network: &str) -> Value {
    let spec = json!({"physicalNetwork": physical_network, "cidr": "203.0.113.0/24", "gateway": "203.0.113.1"});
    object("ProviderNetwork", name, &spec)
}

/// On the ProviderNetwork `outside`.
pub(super) fn hosts(name: &str, vpc: &str) -> Value {
    let spec = json!({"vpc": {"name": vpc}, "providerNetwork": "outside", "routed": false, "cidr": "203.0.113.0/24"});
    object("Subnet", name, &spec)
}

/// A node that was made from a copy of dpu-1's disk says so.
pub(super) fn copy_of_dpu_1(chassis: &str) -> Value {
    let mut dpu = object("Dpu", "copy", &json!({"type": "NIC"}));
    dpu["status"] = json!({"network": {"chassis": chassis}});
    dpu
}

/// No chassis is on its gateway node.
pub(super) fn elsewhere() -> Value {
    let mut outside = outside();
    outside["spec"]["gatewayNodes"] = json!(["nowhere"]);
    outside
}

pub(super) fn way_out(name: &str) -> Value {
    object("NatGateway", name, &json!({"vpc": {"name": "default"}, "providerNetwork": "outside"}))
}

pub(super) fn floating(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["providerNetwork"] = json!("outside");
    object("FloatingIP", name, &spec)
}

/// Nothing comes in by it.
pub(super) fn empty_group(name: &str, vpc: &str) -> Value {
    object("SecurityGroup", name, &json!({"vpc": {"name": vpc}}))
}

/// Of the group `web`.
pub(super) fn member(name: &str, address: &str) -> Value {
    vnic(name, &json!({"subnet": "blue", "addresses": [address], "securityGroups": ["web"]}))
}

/// Its rules differ in their ports, so none of them is merged with another; each is 32 peers times 16 ranges of some 25 masks.
pub(super) fn costly(name: &str) -> Value {
    let peers: Vec<Value> = (0..32).map(|net| json!({"cidr": format!("10.{net}.0.0/16")})).collect();
    let rule = |number: u16| {
        let range = |place: u16| {
            let first = 1 + number * 16 + place;
            json!({"protocol": "TCP", "port": first, "endPort": 65_535 - first})
        };
        json!({"from": peers, "ports": (0..16).map(range).collect::<Vec<_>>()})
    };
    let rules: Vec<Value> = (0..12).map(rule).collect();
    object("SecurityGroup", name, &json!({"vpc": {"name": "default"}, "ingress": rules}))
}

/// Its guest asks for this one beside its own.
pub(super) fn beside(name: &str, allowed: &str) -> Value {
    vnic(name, &json!({"subnet": "blue", "addresses": ["10.20.0.200"], "allowedAddresses": [allowed]}))
}

pub(super) fn on_node(name: &str, node: &str) -> Value {
    vnic(name, &json!({"subnet": "blue", "addresses": ["10.20.0.200"], "nodeName": node}))
}

/// A node whose agent has not said a word.
pub(super) fn mute(name: &str) -> Value {
    object("Dpu", name, &json!({"type": "NIC"}))
}

/// The host of a DPU has a NIC with these addresses that nothing explains; without addresses it has none.
pub(super) fn showing(addresses: &[&str]) -> Value {
    let orphan = json!({"kind": "Nic", "uid": "lost", "epoch": 1, "addresses": addresses});
    let mut dpu = mute("copy");
    dpu["status"] = json!({"orphans": if addresses.is_empty() { vec![] } else { vec![orphan] }});
    dpu
}

/// It is being deleted, for as long as it is used.
pub(super) fn leaving(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("before");
    object
}

/// The second NIC of the machine `bm-01` is this VNic.
pub(super) fn machine_with(vnic: &str) -> Value {
    let mut machine = life::machine("bm-01", 7);
    let interface = json!({"name": "eth1", "vnic": {"name": vnic}});
    machine["spec"]["interfaces"].as_array_mut().expect("a list").push(interface);
    machine
}

/// For namespaces alone that have a label, which that of the user lacks.
pub(super) fn allowing(mut network: Value) -> Value {
    network["spec"]["allowedNamespaces"] = json!({"matchLabels": {"team": "a"}});
    network
}
