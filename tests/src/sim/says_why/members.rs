//! A SecurityGroup that lets in so many that its rules cost too much: by one member of its peers more, and no more by one less.

use super::super::network::object;
use super::made::{empty_group, leaving, vnic};
use super::{Case, Cure};
use serde_json::{Value, json};

/// With one member of `peers` its rules are some 63,000 flows, with two as many again.
fn open_to_peers(name: &str) -> Value {
    let from = json!([{"securityGroup": {"name": "peers"}}]);
    let rule = |number: u16| {
        let range = |place: u16| {
            let first = 1 + number * 16 + place;
            json!({"protocol": "TCP", "port": first, "endPort": 65_535 - first})
        };
        json!({"from": from, "ports": (0..16).map(range).collect::<Vec<_>>()})
    };
    let rules: Vec<Value> = (0..100).map(rule).collect();
    object("SecurityGroup", name, &json!({"vpc": {"name": "default"}, "ingress": rules}))
}

fn peers() -> Value {
    empty_group("peers", "default")
}

fn peer(name: &str, address: &str) -> Value {
    vnic(name, &json!({"subnet": "blue", "addresses": [address], "securityGroups": ["peers"]}))
}

fn one_more() -> Vec<Value> {
    vec![peers(), open_to_peers("web"), peer("a", "10.20.0.200"), peer("b", "10.20.0.201")]
}

pub(super) const CASES: [Case; 3] = [
    Case {
        of: ("SecurityGroup", "web"),
        made: one_more,
        says: ("Ready", "TooManyFlows"),
        cure: Cure::Delete("VNic", "b"),
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: one_more,
        says: ("Ready", "TooManyFlows"),
        cure: Cure::Change("VNic", "b", |nic| nic["spec"]["securityGroups"] = json!([])),
    },
    // That its peer says nothing new: it is being deleted, and waits for another member first.
    Case {
        of: ("SecurityGroup", "web"),
        made: || {
            let members = [peer("a", "10.20.0.200"), peer("b", "10.20.0.201")];
            [vec![leaving(peers())], members.to_vec(), vec![open_to_peers("web")]].concat()
        },
        says: ("Ready", "TooManyFlows"),
        cure: Cure::Change("VNic", "b", |nic| nic["spec"]["securityGroups"] = json!([])),
    },
];
