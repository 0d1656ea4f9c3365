//! What a description asks for, and what of it is there: said by the objects, and written in OVN. By hand, from the description: no function of the
//! planner is asked.

use super::super::life;
use super::super::simulation::{Simulation, USER};
use super::draw::Description;
use super::orders::place_of;
use api::labels;
use planner::network::rows::{Cell, Row, Table};
use serde_json::Value;
use std::collections::BTreeSet;

/// The first thing that is not as it was asked for.
pub(super) fn missing(s: &Simulation, description: &Description) -> Option<String> {
    description.objects.iter().find_map(|object| {
        let (kind, name) = (object["kind"].as_str().unwrap_or_default(), text(object, "/metadata/name"));
        let wrong = match kind {
            "Vpc" | "Subnet" | "NatGateway" | "FloatingIP" => {
                not(s, object, "Ready").or_else(|| not(s, object, "InForce"))
            }
            "ProviderNetwork" => not(s, object, "Ready"),
            "SecurityGroup" => group(s, description, object),
            "VNic" => vnic(s, description, object),
            "BareMetalMachine" => (!life::runs(s, name)).then(|| "does not run".to_owned()),
            "Pod" => pod(s, name),
            _ => None,
        };
        wrong.map(|wrong| format!("{kind} '{name}' {wrong}"))
    })
}

/// What of it still exists.
pub(super) fn left(s: &Simulation, description: &Description) -> Option<String> {
    let there = description.objects.iter().find(|object| !get(s, object).is_null());
    there.map(|object| format!("{} '{}' exists", text(object, "/kind"), text(object, "/metadata/name")))
}

pub(super) fn site_is_there(s: &Simulation) -> bool {
    let is = |resource: &str, namespace: &str, name: &str| {
        life::condition(&s.scene.server.get(resource, namespace, name).unwrap_or_default(), "Ready") == "True"
    };
    is("metalplane.io/subnets", USER, "blue")
        && is("metalplane.io/securitygroups", USER, "default")
        && s.scene.hosts.iter().all(|host| is("metalplane.io/dpus", "", &host.dpu_name))
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn get(s: &Simulation, object: &Value) -> Value {
    let (resource, namespace, name) = place_of(object);
    s.scene.server.get(&resource, namespace, name).map(|there| Value::clone(&there)).unwrap_or_default()
}

fn said(there: &Value, type_: &str) -> Value {
    let all = there["status"]["conditions"].as_array().into_iter().flatten();
    all.filter(|said| said["observedGeneration"] == there["metadata"]["generation"])
        .find(|said| said["type"] == type_)
        .cloned()
        .unwrap_or_default()
}

/// Its newest generation.
fn not(s: &Simulation, object: &Value, type_: &str) -> Option<String> {
    let said = said(&get(s, object), type_);
    (said["status"] != "True").then(|| format!("is not {type_}: {} {}", said["reason"], said["message"]))
}

/// One of these is the reason why the condition is false.
fn not_because(s: &Simulation, object: &Value, type_: &str, reasons: &[&str]) -> Option<String> {
    let said = said(&get(s, object), type_);
    let is_so = said["status"] == "False" && said["reason"].as_str().is_some_and(|reason| reasons.contains(&reason));
    (!is_so).then(|| format!("does not say {reasons:?} in {type_}: {said}"))
}

fn of_kind<'a>(description: &'a Description, kind: &'a str, name: &'a str) -> Option<&'a Value> {
    let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    description.objects.iter().find(is_it)
}

/// Why a group that is named in this Vpc is nobody there.
fn refused(description: &Description, group: &str, vpc: &str) -> Option<&'static str> {
    match of_kind(description, "SecurityGroup", group) {
        None => Some("SecurityGroupMissing"),
        Some(there) if text(there, "/spec/vpc/name") != vpc => Some("GroupOfOtherVpc"),
        Some(_) => None,
    }
}

fn group(s: &Simulation, description: &Description, group: &Value) -> Option<String> {
    let peers = |rules: &'static str, peers: &'static str| {
        let rules = group["spec"][rules].as_array().into_iter().flatten();
        rules.flat_map(move |rule| rule[peers].as_array().into_iter().flatten())
    };
    let named = peers("ingress", "from").chain(peers("egress", "to"));
    let named = named.filter_map(|peer| peer["securityGroup"]["name"].as_str());
    let wrong: Vec<&str> = named.filter_map(|peer| refused(description, peer, text(group, "/spec/vpc/name"))).collect();
    let ready = if wrong.is_empty() { not(s, group, "Ready") } else { not_because(s, group, "Ready", &wrong) };
    ready.or_else(|| not(s, group, "InForce"))
}

fn vnic(s: &Simulation, description: &Description, vnic: &Value) -> Option<String> {
    let subnet = of_kind(description, "Subnet", text(vnic, "/spec/subnet"))?;
    let vpc = text(subnet, "/spec/vpc/name");
    let of_vpc = || of_kind(description, "Vpc", vpc).map(|vpc| &vpc["spec"]["defaultSecurityGroups"]);
    let named = Some(&vnic["spec"]["securityGroups"]).filter(|named| !named.is_null()).or_else(of_vpc);
    let named = || named.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let wrong: Vec<&str> = named().filter_map(|group| refused(description, group, vpc)).collect();
    let programmed = match wrong.as_slice() {
        [] => not(s, vnic, "Programmed"),
        wrong => not_because(s, vnic, "Programmed", wrong),
    };
    let in_force = match vnic["spec"]["nodeName"].is_null() {
        true => not_because(s, vnic, "InForce", &["NotHeld"]),
        false => not(s, vnic, "InForce"),
    };
    let groups: BTreeSet<String> = named()
        .filter(|group| refused(description, group, vpc).is_none())
        .filter_map(|group| of_kind(description, "SecurityGroup", group))
        .map(|group| text(&get(s, group), "/metadata/uid").to_owned())
        .collect();
    let there = get(s, vnic);
    let switch = get(s, subnet);
    let port = || port(s, &there, text(&switch, "/metadata/uid"), &groups);
    not(s, vnic, "AddressesAssigned").or(programmed).or(in_force).or_else(port)
}

/// On its Subnet's switch, with its addresses, in exactly these groups.
fn port(s: &Simulation, vnic: &Value, switch: &str, groups: &BTreeSet<String>) -> Option<String> {
    let uid = text(vnic, "/metadata/uid");
    let rows = s.scene.north_bound.rows();
    let is_it = |row: &&Row| row.table == Table::LogicalSwitchPort && row.id.uid == uid && row.id.part.is_empty();
    let Some(row) = rows.iter().find(is_it) else { return Some("has no port".to_owned()) };
    let sets = |table: Table| -> BTreeSet<String> {
        row.member_of.iter().filter(|set| set.table == table).map(|set| set.row.uid.clone()).collect()
    };
    let known = match row.columns.get("addresses") {
        Some(Cell::Text(known)) => known.split_whitespace().collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    let addresses: Vec<&str> = vnic["status"]["addresses"].as_array()?.iter().filter_map(Value::as_str).collect();
    let asked = vnic["spec"]["addresses"].as_array();
    let as_asked = asked.is_none_or(|asked| asked.iter().filter_map(Value::as_str).eq(addresses.iter().copied()));
    let has = [text(vnic, "/status/macAddress")].into_iter().chain(addresses.iter().copied());
    if !as_asked || !known.iter().copied().eq(has) {
        return Some(format!("has {addresses:?}, and its port {known:?}"));
    }
    let (on, within) = (sets(Table::LogicalSwitch), sets(Table::PortGroup));
    let is_right = on.iter().eq([switch]) && within == *groups;
    (!is_right).then(|| format!("is on {on:?} in place of {switch}, in {within:?} in place of {groups:?}"))
}

fn pod(s: &Simulation, name: &str) -> Option<String> {
    let pod = s.scene.server.get("pods", USER, name).unwrap_or_default();
    let told = pod["metadata"]["annotations"][labels::NETWORK_STATUS].as_str().unwrap_or_default();
    (!told.contains("net1")).then(|| format!("has no NIC: '{told}'"))
}
