//! One address is at one port: of a Subnet, and of a VLAN. A virtual IP is at several while no host has its VNic; a machine that takes that VNic has
//! the address alone.

use super::life::{self, runs};
use super::network::{VNICS, object};
use super::scene::Scene;
use super::simulation::{Simulation, USER};
use planner::network::rows::{CHASSIS, Cell, KIND, Row, Table, UNBOUND};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where an address is known, and the address.
type Place = (String, String);

fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    match row.columns.get(column) {
        Some(Cell::Text(text)) => text,
        _ => "",
    }
}

/// A host may have the port.
fn is_bound(row: &Row) -> bool {
    match row.columns.get("options") {
        Some(Cell::Pairs(options)) => options.get(CHASSIS).is_some_and(|chassis| chassis != UNBOUND),
        _ => false,
    }
}

/// Addresses that a host has by its port, and that another port, or a translation, has too.
pub fn twice(scene: &Scene) -> Vec<String> {
    let rows = scene.north_bound.rows();
    let ports: Vec<&Row> = rows
        .iter()
        .filter(|row| row.table == Table::LogicalSwitchPort)
        .filter(|row| row.external_ids.get(KIND).is_some_and(|kind| kind == "VNic") && text(row, "type") != "virtual")
        .collect();
    let nats: Vec<&Row> = rows.iter().filter(|row| row.table == Table::Nat).collect();
    if ports.len() + nats.len() < 2 {
        return Vec::new();
    }
    let vlans = vlans(scene);
    let place =
        |uid: &str, address: &str| (vlans.get(uid).cloned().unwrap_or_else(|| uid.to_owned()), address.to_owned());
    let of_port = |row: &Row, column: &str| -> Vec<Place> {
        let switch = row.member_of.iter().find(|set| set.table == Table::LogicalSwitch);
        let switch = switch.map(|set| set.row.uid.as_str()).unwrap_or_default();
        text(row, column).split_whitespace().skip(1).map(|address| place(switch, address)).collect()
    };
    // All that may send from an address: a NatGateway and its translations are one.
    let mut users: BTreeMap<Place, BTreeSet<&str>> = BTreeMap::new();
    for row in &ports {
        for at in of_port(row, "port_security") {
            users.entry(at).or_default().insert(&row.id.uid);
        }
    }
    for row in &nats {
        let at = place(&row.id.uid, text(row, "external_ip"));
        users.entry(at).or_default().insert(&row.id.uid);
    }
    let bound = ports.iter().filter(|row| is_bound(row)).flat_map(|row| of_port(row, "addresses"));
    let outer = nats.iter().map(|row| place(&row.id.uid, text(row, "external_ip")));
    let owned: BTreeSet<Place> = bound.chain(outer).collect();
    let several = owned.into_iter().filter(|at| users.get(at).is_some_and(|users| users.len() > 1));
    several.map(|at| format!("{} of {} is at {:?}", at.1, at.0, users[&at])).collect()
}

/// By the UID of a Subnet, NatGateway or FloatingIP: the VLAN that it is on.
fn vlans(scene: &Scene) -> BTreeMap<String, String> {
    let networks = scene.server.list("metalplane.io/providernetworks");
    let of = |name: &Value| {
        let network = networks.iter().find(|network| network["metadata"]["name"] == *name)?;
        Some(format!("{} {}", network["spec"]["physicalNetwork"], network["spec"]["vlan"]))
    };
    let kinds =
        ["subnets", "natgateways", "floatingips"].map(|kind| scene.server.list(&format!("metalplane.io/{kind}")));
    let on = |object: &Arc<Value>| {
        let uid = object["metadata"]["uid"].as_str()?.to_owned();
        Some((uid, of(&object["spec"]["providerNetwork"])?))
    };
    kinds.iter().flatten().filter_map(on).collect()
}

fn port<'a>(s: &Simulation, rows: &'a [Row], vnic: &str) -> Option<&'a Row> {
    let vnic = s.scene.server.get(VNICS, USER, vnic)?;
    let is_it = |row: &&Row| row.table == Table::LogicalSwitchPort && vnic["metadata"]["uid"] == row.id.uid.as_str();
    rows.iter().find(is_it)
}

/// The guest of the VNic `beside` may have the address, and nobody's host has that.
fn is_shared(s: &Simulation, address: &str) -> bool {
    let rows = s.scene.north_bound.rows();
    let may = port(s, &rows, "beside").is_some_and(|row| text(row, "port_security").ends_with(address));
    may && port(s, &rows, "vip").is_some_and(|row| text(row, "type") == "virtual")
}

fn says(s: &Simulation, vnic: &str, reason: &str) -> bool {
    let vnic = s.scene.server.get(VNICS, USER, vnic).unwrap_or_default();
    vnic["status"]["conditions"].as_array().into_iter().flatten().any(|said| said["reason"] == reason)
}

/// A machine takes the VNic of a virtual IP, and gives it back.
pub async fn taken(s: &Simulation) -> Result<(), String> {
    s.create(VNICS, USER, object("VNic", "vip", &json!({"subnet": "blue", "addresses": ["10.20.0.200"]})));
    let spec = json!({"subnet": "blue", "addresses": ["10.20.0.210"], "nodeName": "dpu-1",
        "allowedAddresses": ["10.20.0.200"]});
    s.create(VNICS, USER, object("VNic", "beside", &spec));
    s.until("the address is shared", |s| is_shared(s, "10.20.0.200")).await?;
    let mut machine = life::machine("bm-01", 7);
    let interface = json!({"name": "eth1", "vnic": {"name": "vip"}});
    machine["spec"]["interfaces"].as_array_mut().expect("a list").push(interface);
    s.create(life::MACHINES, USER, machine);
    s.until("the machine has the address alone", |s| {
        let rows = s.scene.north_bound.rows();
        runs(s, "bm-01") && port(s, &rows, "vip").is_some_and(is_bound) && says(s, "beside", "AllowedAddressTaken")
    })
    .await?;
    s.delete(life::MACHINES, USER, "bm-01");
    s.until("the address is shared again", |s| s.machine("bm-01").is_none() && is_shared(s, "10.20.0.200")).await
}
