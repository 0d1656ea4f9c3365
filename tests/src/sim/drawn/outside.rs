//! What is beside Vpcs: a way out and in, a Subnet on a VLAN, a machine and a pod on it.

use super::super::life;
use super::super::network::object;
use super::super::random::Random;
use super::draw::{Net, Nic, one_in, pick};
use super::groups::{Named, member_of};
use api::labels;
use serde_json::{Value, json};

/// The node that the machine is.
const NODE: &str = "worker-1";

/// By a ProviderNetwork whose addresses are asked for, each once.
pub(super) fn way_out(dice: &Random, nics: &[Nic]) -> Vec<Value> {
    if one_in(dice, 3) {
        return Vec::new();
    }
    let network = json!({"physicalNetwork": "physnet1", "cidr": "203.0.113.0/24", "gateway": "203.0.113.1",
        "addresses": ["203.0.113.10-203.0.113.12"], "gatewayNodes": ["dpu-1"]});
    let out = json!({"vpc": {"name": "v0"}, "providerNetwork": "outside", "addresses": ["203.0.113.10"]});
    let has_v4 = |nic: &&Nic| nic.addresses.iter().any(|address| address.starts_with("10."));
    let inner = nics.iter().filter(has_v4).find(|nic| nic.vpc == "v0" && nic.routed);
    let floating = |nic: &Nic| {
        let spec = json!({"providerNetwork": "outside", "address": "203.0.113.11", "vnic": nic.name});
        object("FloatingIP", "in", &spec)
    };
    let objects = [object("ProviderNetwork", "outside", &network), object("NatGateway", "out", &out)];
    objects.into_iter().chain(inner.map(floating)).collect()
}

pub(super) fn vlan(dice: &Random) -> Vec<Value> {
    if one_in(dice, 2) {
        return Vec::new();
    }
    let network =
        json!({"physicalNetwork": "physnet1", "vlan": 7, "cidr": "198.51.100.0/24", "gateway": "198.51.100.1"});
    let subnet = json!({"vpc": {"name": "v0"}, "providerNetwork": "rack", "routed": false, "cidr": "198.51.100.0/24"});
    let vnic = json!({"subnet": "hosts", "addresses": ["198.51.100.20"], "nodeName": "dpu-1"});
    vec![
        object("ProviderNetwork", "rack", &network),
        object("Subnet", "hosts", &subnet),
        object("VNic", "on-rack", &vnic),
    ]
}

/// Always on the same server: its chassis is in the rows.
pub(super) fn machine(dice: &Random, nets: &[Net], groups: &[Named]) -> Vec<Value> {
    let nic = |number: u64| {
        let net = pick(dice, nets)?;
        let mut nic = json!({"subnet": net.name, "addresses": net.addresses(number)});
        if let Some(named) = member_of(dice, &net.vpc, groups) {
            nic["securityGroups"] = named;
        }
        Some(nic)
    };
    let mut machine = life::machine("bm-01", 7);
    machine["spec"]["hardware"] = json!({"name": "server-1"});
    machine["spec"]["nodeName"] = json!(NODE);
    let interfaces: Vec<Value> = (0..=dice.below(2))
        .filter_map(|place| {
            let mut nic = nic(60 + place)?;
            nic["name"] = json!(format!("eth{place}"));
            Some(nic)
        })
        .collect();
    machine["spec"]["interfaces"] = json!(interfaces);
    let mut objects = vec![machine];
    if !one_in(dice, 3)
        && let Some(mut net1) = nic(70)
    {
        net1["name"] = json!("net1");
        let asks = json!({labels::NETWORKS: json!([net1]).to_string()});
        let provider = format!("metalplane://{}/bm-01", super::super::simulation::USER);
        objects.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE},
            "spec": {"providerID": provider}}));
        objects.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": "web", "labels": {labels::NETWORKS: ""}, "annotations": asks,
        }, "spec": {"nodeName": NODE, "containers": []}}));
    }
    objects
}
