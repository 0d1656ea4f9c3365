//! Two ProviderNetworks of one VLAN that overlap and are made within one second: which of them comes first their creation does not tell then, so
//! that the one which gives addresses already may be the one that comes second. And an upgrade of such.

use super::api::path::Id;
use super::api::store::Store;
use super::life::condition;
use super::network::{SUBNETS, VNICS, object};
use super::simulation::{SYSTEM, Simulation, USER};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const NETWORKS: &str = "metalplane.io/providernetworks";
const FLOATING: &str = "metalplane.io/floatingips";
const HOLDS: &str = "metalplane.io/addressholds";

/// For whatever would be done about it.
const LONG: Duration = Duration::from_secs(60);
/// What is woken by name is done by then.
const SOON: Duration = Duration::from_secs(5);

fn get(s: &Simulation, resource: &str, name: &str) -> Value {
    let namespace = if resource == NETWORKS { "" } else { USER };
    s.scene.server.get(resource, namespace, name).map(|there| Value::clone(&there)).unwrap_or_default()
}

fn says(s: &Simulation, resource: &str, name: &str, reason: &str) -> bool {
    let there = get(s, resource, name);
    there["status"]["conditions"].as_array().into_iter().flatten().any(|said| said["reason"] == reason)
}

/// A ProviderNetwork, and a FloatingIP of it.
fn make_outside(s: &Simulation, name: &str) {
    let mut spec = vlan();
    spec["addresses"] = json!(["203.0.113.10-203.0.113.12"]);
    s.create(NETWORKS, "", object("ProviderNetwork", name, &spec));
    let floating = json!({"providerNetwork": name, "address": "203.0.113.11"});
    s.create(FLOATING, USER, object("FloatingIP", name, &floating));
}

fn vlan() -> Value {
    json!({"physicalNetwork": "physnet1", "vlan": 7, "cidr": "203.0.113.0/24", "gateway": "203.0.113.1",
        "ipv6Cidr": "2001:db8:1::/64", "gatewayNodes": ["dpu-1"]})
}

/// A Subnet on it, in a Vpc of its own, with a VNic that asks for these.
fn make_hosts(s: &Simulation, name: &str, addresses: &[&str]) {
    let subnet = json!({"vpc": {"name": name}, "providerNetwork": name, "routed": false, "cidr": "203.0.113.0/24",
        "ipv6Cidr": "2001:db8:1::/64"});
    s.create("metalplane.io/vpcs", USER, object("Vpc", name, &json!({})));
    s.create(SUBNETS, USER, object("Subnet", name, &subnet));
    let vnic = json!({"subnet": name, "addresses": addresses, "nodeName": "dpu-1"});
    s.create(VNICS, USER, object("VNic", name, &vnic));
}

/// All of them ask for the same addresses as those of the other one.
fn make(s: &Simulation, name: &str) {
    make_outside(s, name);
    make_hosts(s, name, &["203.0.113.20", "2001:db8:1::20"]);
}

fn unmake(s: &Simulation, name: &str) {
    s.delete(VNICS, USER, name);
    s.delete(SUBNETS, USER, name);
    s.delete(FLOATING, USER, name);
    s.delete(NETWORKS, "", name);
}

fn has_all(s: &Simulation, name: &str) -> bool {
    get(s, FLOATING, name)["status"]["address"].is_string() && condition(&get(s, VNICS, name), "Programmed") == "True"
}

/// Addresses that the statuses of two objects name.
fn twice(s: &Simulation) -> Vec<String> {
    let mut users: BTreeMap<String, usize> = BTreeMap::new();
    for floating in s.scene.server.list(FLOATING) {
        floating["status"]["address"]
            .as_str()
            .into_iter()
            .for_each(|one| *users.entry(one.to_owned()).or_default() += 1);
    }
    for vnic in s.scene.server.list(VNICS) {
        let all = vnic["status"]["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
        all.for_each(|one| *users.entry(one.to_owned()).or_default() += 1);
    }
    users.into_iter().filter(|(_, count)| *count > 1).map(|(address, _)| address).collect()
}

fn were_made_within_a_second(s: &Simulation, names: [&str; 2]) -> Result<(), String> {
    let [one, other] = names.map(|name| get(s, NETWORKS, name)["metadata"]["creationTimestamp"].clone());
    if one == other { Ok(()) } else { Err("they were not made within one second".to_owned()) }
}

fn comes_first(s: &Simulation, [younger, older]: [&str; 2]) -> bool {
    let uid = |name| get(s, NETWORKS, name)["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    uid(younger) < uid(older)
}

/// Whether the younger one comes first: by the UIDs that these names make.
pub async fn within_a_second(s: &Simulation, [older, younger]: [&str; 2]) -> Result<bool, String> {
    s.until("the site is there", |s| condition(&get(s, SUBNETS, "blue"), "Ready") == "True").await?;
    make(s, older);
    s.until("the older one gives addresses", |s| get(s, FLOATING, older)["status"]["address"].is_string()).await?;
    make(s, younger);
    were_made_within_a_second(s, [older, younger])?;
    tokio::time::sleep(LONG).await;
    let reversed = comes_first(s, [younger, older]);
    let (first, second) = if reversed { (younger, older) } else { (older, younger) };
    let overlap = |name| says(s, NETWORKS, name, "ProviderNetworkOverlaps");
    if overlap(first) || !overlap(second) {
        return Err(format!("'{first}' does not come first\n{}", s.story()));
    }
    let given = twice(s);
    if !given.is_empty() {
        return Err(format!("two have {given:?}\n{}", s.story()));
    }
    if get(s, FLOATING, older)["status"]["address"] != "203.0.113.11" {
        return Err("what was given before does not stay".to_owned());
    }
    // Nothing more is given by the second one.
    let more = json!({"providerNetwork": second, "address": "203.0.113.12"});
    s.create(FLOATING, USER, object("FloatingIP", "more", &more));
    let vnic = json!({"subnet": second, "addresses": ["203.0.113.21"]});
    s.create(VNICS, USER, object("VNic", "more", &vnic));
    tokio::time::sleep(LONG).await;
    let gave = !get(s, FLOATING, "more")["status"]["address"].is_null();
    if gave || condition(&get(s, VNICS, "more"), "AddressesAssigned") == "True" {
        return Err(format!("'{second}' gives addresses\n{}", s.story()));
    }
    s.delete(FLOATING, USER, "more");
    s.delete(VNICS, USER, "more");
    unmake(s, older);
    s.until("the older one no longer exists", |s| get(s, NETWORKS, older).is_null()).await?;
    let began = tokio::time::Instant::now();
    s.until("the younger one gives them", |s| has_all(s, younger)).await?;
    if began.elapsed() > SOON {
        return Err(format!("the younger one gives them after {:?}\n{}", began.elapsed(), s.story()));
    }
    Ok(reversed)
}

/// The holds of a version for which an address was of a ProviderNetwork or a Subnet alone.
fn named_as_before(store: &mut Store) {
    for hold in store.list(&Id::new(HOLDS, "", "")) {
        let [name, network, held] = ["/metadata/name", "/spec/subnet/uid", "/spec/address"]
            .map(|pointer| hold.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned());
        let before = api::names::address_hold(&network, &held);
        if held.is_empty() || name == before {
            continue;
        }
        let mut again = json!({"apiVersion": hold["apiVersion"], "kind": hold["kind"], "spec": hold["spec"]});
        again["metadata"] = json!({"name": before, "labels": hold["metadata"]["labels"]});
        store.delete(&Id::new(HOLDS, "", &name), &Value::Null).expect("it was listed");
        store.create(&Id::new(HOLDS, "", &before), again).expect("nobody has that name");
    }
}

/// A version without holds of VLANs gave an address of the older one, and the younger one comes first. After the upgrade the hold by its name
/// of before keeps the address, which is counted once. Whether the younger one comes first.
pub async fn upgraded(s: &mut Simulation, [older, younger]: [&str; 2]) -> Result<bool, String> {
    s.until("the site is there", |s| condition(&get(s, SUBNETS, "blue"), "Ready") == "True").await?;
    make_outside(s, older);
    s.until("the older one gives an address", |s| get(s, FLOATING, older)["status"]["address"].is_string()).await?;
    s.create(NETWORKS, "", object("ProviderNetwork", younger, &vlan()));
    were_made_within_a_second(s, [older, younger])?;
    if !comes_first(s, [younger, older]) {
        return Ok(false);
    }
    make_hosts(s, younger, &["203.0.113.11"]);
    s.until("who has the address is told", |s| says(s, VNICS, younger, "ExternalAddressTaken")).await?;
    s.stop_controllers();
    s.scene.server.write(named_as_before);
    s.start_controller("controller-1", SYSTEM);
    tokio::time::sleep(LONG).await;
    let is_assigned = |s: &Simulation| condition(&get(s, VNICS, younger), "AddressesAssigned") == "True";
    if is_assigned(s) || !twice(s).is_empty() || !says(s, VNICS, younger, "ExternalAddressTaken") {
        return Err(format!("two have {:?} after the upgrade\n{}", twice(s), s.story()));
    }
    let held = s.scene.server.list(HOLDS).iter().filter(|hold| hold["spec"]["address"] == "203.0.113.11").count();
    let used = get(s, NETWORKS, older)["status"]["used"].clone();
    if held != 2 || used != 1 {
        return Err(format!("{held} holds are counted as {used} addresses\n{}", s.story()));
    }
    s.delete(FLOATING, USER, older);
    s.until("the younger one has the address", is_assigned).await?;
    Ok(true)
}
