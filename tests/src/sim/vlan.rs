//! Two ProviderNetworks of one VLAN that overlap and are made within one second: which of them comes first their creation does not tell then, so
//! that the one which gives addresses already may be the one that comes second.

use super::life::condition;
use super::network::{SUBNETS, VNICS, object};
use super::simulation::{Simulation, USER};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const NETWORKS: &str = "metalplane.io/providernetworks";
const FLOATING: &str = "metalplane.io/floatingips";

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

/// A ProviderNetwork, a FloatingIP of it, and a Subnet on it with a VNic: all ask for the same addresses as those of the other one.
fn make(s: &Simulation, name: &str) {
    let spec = json!({"physicalNetwork": "physnet1", "vlan": 7, "cidr": "203.0.113.0/24", "gateway": "203.0.113.1",
        "ipv6Cidr": "2001:db8:1::/64", "addresses": ["203.0.113.10-203.0.113.12"], "gatewayNodes": ["dpu-1"]});
    s.create(NETWORKS, "", object("ProviderNetwork", name, &spec));
    let floating = json!({"providerNetwork": name, "address": "203.0.113.11"});
    s.create(FLOATING, USER, object("FloatingIP", name, &floating));
    let subnet = json!({"vpc": {"name": name}, "providerNetwork": name, "routed": false, "cidr": "203.0.113.0/24",
        "ipv6Cidr": "2001:db8:1::/64"});
    s.create("metalplane.io/vpcs", USER, object("Vpc", name, &json!({})));
    s.create(SUBNETS, USER, object("Subnet", name, &subnet));
    let vnic = json!({"subnet": name, "addresses": ["203.0.113.20", "2001:db8:1::20"], "nodeName": "dpu-1"});
    s.create(VNICS, USER, object("VNic", name, &vnic));
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

/// Whether the younger one comes first: by the UIDs that these names make.
pub async fn within_a_second(s: &Simulation, [older, younger]: [&str; 2]) -> Result<bool, String> {
    s.until("the site is there", |s| condition(&get(s, SUBNETS, "blue"), "Ready") == "True").await?;
    make(s, older);
    s.until("the older one gives addresses", |s| get(s, FLOATING, older)["status"]["address"].is_string()).await?;
    make(s, younger);
    let created = |name| get(s, NETWORKS, name)["metadata"]["creationTimestamp"].clone();
    if created(older) != created(younger) {
        return Err("they were not made within one second".to_owned());
    }
    tokio::time::sleep(LONG).await;
    let uid = |name| get(s, NETWORKS, name)["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let reversed = uid(younger) < uid(older);
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
