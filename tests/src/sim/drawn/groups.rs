//! SecurityGroups: whose rules name others of their Vpc, of another one, and some that are not there; and who is in which.

use super::super::network::object;
use super::super::random::Random;
use super::draw::{one_in, pick, set};
use serde_json::{Value, json};

/// That of no SecurityGroup.
const MISSING: &str = "nowhere";

#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) name: String,
    vpc: String,
}

/// Up to four, of these Vpcs.
pub(super) fn named(dice: &Random, vpcs: &[String]) -> Vec<Named> {
    let one = |number| Some(Named { name: format!("g{number}"), vpc: pick(dice, vpcs)?.clone() });
    (0..dice.below(5)).filter_map(one).collect()
}

pub(super) fn group(dice: &Random, of: &Named, all: &[Named]) -> Value {
    let mut group = object("SecurityGroup", &of.name, &json!({"vpc": {"name": of.vpc}}));
    let rules = |peers: &str, most| (0..dice.below(most)).map(|_| rule(dice, peers, all)).collect::<Vec<_>>();
    set(&mut group, "ingress", json!(rules("from", 4)));
    // Left out it is everything, empty it is nothing.
    if !one_in(dice, 3) {
        set(&mut group, "egress", json!(rules("to", 3)));
    }
    group
}

fn rule(dice: &Random, peers: &str, all: &[Named]) -> Value {
    let mut rule = json!({});
    if !one_in(dice, 4) {
        rule[peers] = (0..=dice.below(3)).map(|_| peer(dice, all)).collect();
    }
    match dice.below(4) {
        0 => {}
        1 => rule["icmp"] = json!({"family": if one_in(dice, 2) { "IPv4" } else { "IPv6" }, "type": 8}),
        _ => rule["ports"] = (0..=dice.below(2)).map(|_| ports(dice)).collect(),
    }
    rule
}

fn peer(dice: &Random, all: &[Named]) -> Value {
    match (dice.below(4), pick(dice, all)) {
        (0, _) => json!({"cidr": format!("10.{}.0.0/16", dice.below(4)), "except": ["10.0.1.0/24", "10.2.0.0/20"]}),
        (1, _) => json!({"cidr": format!("fd00:{}::/32", dice.below(4))}),
        (_, Some(group)) if !one_in(dice, 8) => json!({"securityGroup": {"name": group.name}}),
        _ => json!({"securityGroup": {"name": MISSING}}),
    }
}

fn ports(dice: &Random) -> Value {
    let protocol = ["TCP", "UDP", "SCTP"][dice.below(3) as usize];
    let first = 1 + dice.below(1000);
    match dice.below(3) {
        0 => json!({"protocol": protocol}),
        1 => json!({"protocol": protocol, "port": first}),
        _ => json!({"protocol": protocol, "port": first, "endPort": first + dice.below(1000)}),
    }
}

/// What somebody in this Vpc writes; `None`: nothing. Now and then a group of another one, or one that is not there.
pub(super) fn member_of(dice: &Random, vpc: &str, all: &[Named]) -> Option<Value> {
    if one_in(dice, 3) {
        return None;
    }
    let own = all.iter().filter(|group| group.vpc == vpc || one_in(dice, 8));
    let mut named: Vec<&str> = own.filter(|_| !one_in(dice, 3)).map(|group| group.name.as_str()).collect();
    named.extend(one_in(dice, 10).then_some(MISSING));
    Some(json!(named))
}
