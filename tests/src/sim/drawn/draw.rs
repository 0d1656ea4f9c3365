//! Which Vpcs, Subnets and VNics there are. Each is well by itself, and nothing depends on who came first: no two Subnets of a Vpc overlap, and no
//! two VNics ask for one address. What is missing or of another Vpc is named all the same, by groups and by VNics.

use super::super::network::object;
use super::super::random::Random;
use super::{groups, outside};
use serde_json::{Value, json};

/// A network as it shall be in the end.
#[derive(Debug, Clone)]
pub struct Description {
    pub seed: u64,
    pub hosts: usize,
    pub objects: Vec<Value>,
}

/// A Subnet, as far as others have to know it.
pub(super) struct Net {
    pub(super) name: String,
    pub(super) vpc: String,
    /// How its addresses begin, of each family that it has.
    v4: Option<String>,
    v6: Option<String>,
    pub(super) routed: bool,
}

impl Net {
    /// Of each family one that nobody else asks for. Below 100, so that it is not chosen for others: it is reserved.
    pub(super) fn addresses(&self, number: u64) -> Vec<String> {
        [&self.v4, &self.v6].into_iter().flatten().map(|prefix| format!("{prefix}{number}")).collect()
    }
}

/// A VNic, as far as others have to know it.
pub(super) struct Nic {
    pub(super) name: String,
    pub(super) subnet: String,
    pub(super) vpc: String,
    /// Empty: chosen.
    pub(super) addresses: Vec<String>,
    /// Its Subnet is at the router of the Vpc.
    pub(super) routed: bool,
    on_node: bool,
}

pub(super) fn one_in(dice: &Random, many: u64) -> bool {
    dice.below(many) == 0
}

pub(super) fn pick<'a, T>(dice: &Random, all: &'a [T]) -> Option<&'a T> {
    all.get(usize::try_from(dice.below(all.len() as u64)).unwrap_or_default())
}

/// Of the object's spec.
pub(super) fn set(object: &mut Value, field: &str, value: Value) {
    object["spec"][field] = value;
}

/// `machines`: also one that runs on the first host, and a pod on it.
pub fn draw(seed: u64, machines: bool) -> Description {
    let (dice, hosts) = (Random::new(seed), if machines { 1 } else { 2 });
    let vpcs: Vec<String> = (0..=dice.below(3)).map(|number| format!("v{number}")).collect();
    let groups = groups::named(&dice, &vpcs);
    let (nets, mut objects) = subnets(&dice, &vpcs);
    objects.extend(groups.iter().map(|group| groups::group(&dice, group, &groups)));
    let (nics, vnics) = vnics(&dice, &nets, &groups, hosts);
    objects.extend(vnics);
    objects.extend(vpcs.iter().map(|name| vpc(&dice, name, &nics, &groups)));
    objects.extend(outside::way_out(&dice, &nics));
    objects.extend(outside::vlan(&dice));
    if machines {
        objects.extend(outside::machine(&dice, &nets, &groups));
    }
    Description { seed, hosts, objects }
}

fn subnets(dice: &Random, vpcs: &[String]) -> (Vec<Net>, Vec<Value>) {
    let (mut nets, mut objects) = (Vec::new(), Vec::new());
    for vpc in vpcs {
        // The same networks in every Vpc: they do not know of each other.
        for place in 0..=dice.below(2) {
            let (v4, v6) = (format!("10.4{place}.0."), format!("fd00:4{place}::"));
            let (has_v4, has_v6) = [(true, false), (true, true), (true, true), (false, true)][dice.below(4) as usize];
            let name = format!("{vpc}-{place}");
            let ranges = [has_v4.then(|| format!("{v4}10-{v4}99")), has_v6.then(|| format!("{v6}10-{v6}99"))];
            let reserved: Vec<String> = ranges.into_iter().flatten().collect();
            let mut spec = json!({"vpc": {"name": vpc}, "reserved": reserved});
            spec["cidr"] = if has_v4 { json!(format!("{v4}0/24")) } else { json!(format!("{v6}/64")) };
            if has_v4 && has_v6 {
                spec["ipv6Cidr"] = json!(format!("{v6}/64"));
            }
            let routed = !one_in(dice, 5);
            spec["routed"] = json!(routed);
            if has_v6 && routed && one_in(dice, 3) {
                spec["ipv6Mode"] = json!("SLAAC");
            }
            if one_in(dice, 4) {
                spec["dhcp"] = json!({"enabled": false});
            }
            if one_in(dice, 4) {
                spec["metadata"] = json!("Disabled");
            }
            if one_in(dice, 4) {
                spec["mtu"] = json!(1400);
            }
            objects.push(object("Subnet", &name, &spec));
            let (v4, v6) = (has_v4.then_some(v4), has_v6.then_some(v6));
            nets.push(Net { name, vpc: vpc.clone(), v4, v6, routed });
        }
    }
    (nets, objects)
}

fn vnics(dice: &Random, nets: &[Net], groups: &[groups::Named], hosts: usize) -> (Vec<Nic>, Vec<Value>) {
    let (mut nics, mut objects): (Vec<Nic>, Vec<Value>) = (Vec::new(), Vec::new());
    for number in 0..3 + dice.below(5) {
        let Some(net) = pick(dice, nets) else { continue };
        let name = format!("n{number}");
        let mut vnic = object("VNic", &name, &json!({"subnet": net.name}));
        let addresses = if one_in(dice, 4) { Vec::new() } else { net.addresses(20 + number) };
        if !addresses.is_empty() {
            set(&mut vnic, "addresses", json!(addresses));
        }
        let on_node = one_in(dice, 2);
        if on_node {
            set(&mut vnic, "nodeName", json!(format!("dpu-{}", 1 + dice.below(hosts as u64))));
        }
        if let Some(named) = groups::member_of(dice, &net.vpc, groups) {
            set(&mut vnic, "securityGroups", named);
        }
        if one_in(dice, 4) {
            set(&mut vnic, "macAddress", json!(format!("02:00:00:00:01:{number:02x}")));
        }
        if one_in(dice, 4) {
            set(&mut vnic, "qos", json!({"ingressMbps": 100 * (number + 1)}));
        }
        let mut beside: Vec<&String> = Vec::new();
        let range = "10.90.0.0/16".to_owned();
        beside.extend(one_in(dice, 4).then_some(&range));
        // Of one that no host has.
        let virtual_one = nics.iter().find(|nic| nic.subnet == net.name && !nic.on_node && !nic.addresses.is_empty());
        beside.extend(virtual_one.filter(|_| one_in(dice, 2)).iter().flat_map(|nic| &nic.addresses));
        if !beside.is_empty() {
            set(&mut vnic, "allowedAddresses", json!(beside));
        }
        objects.push(vnic);
        let (subnet, vpc, routed) = (net.name.clone(), net.vpc.clone(), net.routed);
        nics.push(Nic { name, subnet, vpc, addresses, routed, on_node });
    }
    (nics, objects)
}

fn vpc(dice: &Random, name: &str, nics: &[Nic], groups: &[groups::Named]) -> Value {
    let mut vpc = object("Vpc", name, &json!({}));
    if let Some(named) = groups::member_of(dice, name, groups) {
        set(&mut vpc, "defaultSecurityGroups", named);
    }
    if one_in(dice, 2) {
        set(&mut vpc, "dns", json!({"servers": ["10.40.0.53", "fd00:40::53"], "domain": format!("{name}.example")}));
    }
    let hops = nics.iter().filter(|nic| nic.vpc == name && nic.routed).flat_map(|nic| &nic.addresses);
    let hops: Vec<&String> = hops.filter(|address| address.starts_with("10.")).take(2).collect();
    if !hops.is_empty() && one_in(dice, 2) {
        set(&mut vpc, "routes", json!([{"destination": "10.91.0.0/16", "nextHops": hops}]));
    }
    vpc
}
