//! The network of a run, drawn at random from its seed: two Vpcs with the same addresses, two Subnets each, both families.

use serde_json::{Value, json};
use tests::sim::random::Random;

pub(super) const VPCS: [&str; 2] = ["blue", "red"];
pub(super) const PORTS: [u16; 3] = [80, 443, 8080];
const GROUPS: usize = 3;

/// Chance from a seed.
pub(super) struct Draw(Random);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// Less than `limit`.
    pub(super) fn below(&self, limit: usize) -> usize {
        usize::try_from(self.0.below(limit as u64)).unwrap_or_default()
    }

    fn one<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn some<T>(&self, most: usize, make: impl Fn() -> T) -> Vec<T> {
        (0..=self.below(most)).map(|_| make()).collect()
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn group(vpc: &str, number: usize) -> String {
    format!("{vpc}-{number}")
}

/// What every run has.
pub(super) fn networks() -> Vec<Value> {
    let mut all = Vec::new();
    for vpc in VPCS {
        all.push(object("Vpc", vpc, &json!({})));
        for (part, number) in [("a", 0), ("b", 1)] {
            let (cidr, six) = (format!("10.60.{number}.0/24"), format!("fd00:60:0:{number}::/64"));
            all.push(object(
                "Subnet",
                &format!("{vpc}-{part}"),
                &json!({"vpc": {"name": vpc}, "cidr": cidr, "ipv6Cidr": six}),
            ));
        }
    }
    all
}

pub(super) fn vnic_name(vpc: &str, place: usize) -> String {
    format!("{vpc}-{place}")
}

/// The `place`-th VNic of a Vpc: in turn in one Subnet and the other.
pub(super) fn vnic(draw: &Draw, vpc: &str, place: usize, node: Option<&str>) -> Value {
    let (part, number) = if place.is_multiple_of(2) { ("a", 0) } else { ("b", 1) };
    let addresses = [format!("10.60.{number}.{}", 20 + place), format!("fd00:60:0:{number}::{}", 20 + place)];
    let mut spec =
        json!({"subnet": format!("{vpc}-{part}"), "addresses": addresses, "securityGroups": some_groups(draw, vpc)});
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
    }
    object("VNic", &vnic_name(vpc, place), &spec)
}

fn some_groups(draw: &Draw, vpc: &str) -> Vec<String> {
    let mut groups: Vec<String> = (0..draw.below(4).min(2)).map(|_| group(vpc, draw.below(GROUPS))).collect();
    groups.push(everybodys_name(vpc));
    groups.sort();
    groups.dedup();
    groups
}

/// The VNic in other groups than it is in.
pub(super) fn regroup(draw: &Draw, vnic: &Value) -> Value {
    let mut changed = vnic.clone();
    let vpc = vnic["metadata"]["name"].as_str().and_then(|name| name.split_once('-')).map_or("", |(vpc, _)| vpc);
    while changed == *vnic {
        changed["spec"]["securityGroups"] = json!(some_groups(draw, vpc));
    }
    changed
}

pub(super) fn groups(draw: &Draw) -> Vec<Value> {
    VPCS.iter().flat_map(|vpc| (0..GROUPS).map(|number| one_group(draw, vpc, number)).collect::<Vec<_>>()).collect()
}

fn everybodys_name(vpc: &str) -> String {
    format!("{vpc}-all")
}

/// The group that every VNic of a Vpc is a member of: it lets through everything, or nothing.
pub(super) fn everybodys(vpc: &str, open: bool) -> Value {
    let mut spec = json!({"vpc": {"name": vpc}, "ingress": if open { json!([{}]) } else { json!([]) }});
    if !open {
        spec["egress"] = json!([]);
    }
    object("SecurityGroup", &everybodys_name(vpc), &spec)
}

fn one_group(draw: &Draw, vpc: &str, number: usize) -> Value {
    let mut spec = json!({"vpc": {"name": vpc}, "ingress": draw.some(3, || rule(draw, vpc, "from"))});
    match draw.below(4) {
        0 => {}
        1 => spec["egress"] = json!([]),
        _ => spec["egress"] = json!(draw.some(3, || rule(draw, vpc, "to"))),
    }
    object("SecurityGroup", &group(vpc, number), &spec)
}

fn rule(draw: &Draw, vpc: &str, peers: &str) -> Value {
    let mut rule = json!({});
    if draw.below(2) > 0 {
        rule[peers] = json!(draw.some(2, || peer(draw, vpc)));
    }
    match draw.below(4) {
        0 => {}
        1 => {
            let (family, echo) = *draw.one(&[("IPv4", 8), ("IPv6", 128)]);
            rule["icmp"] = match draw.below(3) {
                0 => json!({"family": family}),
                1 => json!({"family": family, "type": 13}),
                _ => json!({"family": family, "type": echo}),
            };
        }
        _ => rule["ports"] = json!(draw.some(2, || ports(draw))),
    }
    rule
}

fn ports(draw: &Draw) -> Value {
    let protocol = *draw.one(&["TCP", "UDP"]);
    match draw.below(4) {
        0 => json!({"protocol": protocol}),
        1 => json!({"protocol": protocol, "port": 81, "endPort": draw.one(&[442, 443, 9000])}),
        _ => json!({"protocol": protocol, "port": draw.one(&PORTS)}),
    }
}

fn peer(draw: &Draw, vpc: &str) -> Value {
    if draw.below(2) == 0 {
        return json!({"securityGroup": {"name": group(vpc, draw.below(GROUPS))}});
    }
    let number = draw.below(2);
    let host = 20 + draw.below(6);
    match draw.below(6) {
        0 => json!({"cidr": "10.60.0.0/16", "except": [format!("10.60.{number}.0/24")]}),
        1 => json!({"cidr": format!("10.60.{number}.0/24"), "except": [format!("10.60.{number}.{host}/32")]}),
        2 => json!({"cidr": format!("10.60.{number}.{host}/32")}),
        3 => json!({"cidr": "fd00:60::/32", "except": [format!("fd00:60:0:{number}::/64")]}),
        4 => json!({"cidr": format!("fd00:60:0:{number}::/64")}),
        _ => json!({"cidr": *draw.one(&["0.0.0.0/0", "::/0"])}),
    }
}

/// One rule of one group comes, goes, or becomes another; never a change that is none.
pub(super) fn change(draw: &Draw, group: &Value) -> Value {
    let mut changed = group.clone();
    while changed == *group {
        let vpc = group["spec"]["vpc"]["name"].as_str().unwrap_or_default();
        let direction = if draw.below(3) == 0 { ("egress", "to") } else { ("ingress", "from") };
        let mut rules = changed["spec"][direction.0].as_array().cloned().unwrap_or_default();
        match (draw.below(3), rules.len()) {
            (0, _) | (_, 0) => rules.push(rule(draw, vpc, direction.1)),
            (1, all) => drop(rules.remove(draw.below(all))),
            (_, all) => rules[draw.below(all)] = rule(draw, vpc, direction.1),
        }
        changed["spec"][direction.0] = json!(rules);
    }
    changed
}
