//! In one Vpc no address, and in one Subnet no MAC address, is in two VNics' statuses, or on two ports. And of each address that a VNic says
//! to have it has the AddressHold, as long as its port may be in OVN.

use super::scene::{Scene, is_of_vnic};
use planner::network::rows::{Cell, Row, Table};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// That of a Subnet.
fn vpc_of(subnet: &Value) -> String {
    let vpc = Some(text(subnet, "/spec/vpc/name")).filter(|named| !named.is_empty()).unwrap_or("default");
    format!("Vpc '{}/{vpc}'", text(subnet, "/metadata/namespace"))
}

/// The VNics' own, not those of an address that several guests share: these have ports beside.
fn ports(rows: &[Row]) -> impl Iterator<Item = &Row> {
    let of_vnic = |row: &&Row| row.table == Table::LogicalSwitchPort && is_of_vnic(row);
    rows.iter().filter(of_vnic).filter(|row| !row.id.part.starts_with("virtual-"))
}

fn known(row: &Row) -> impl Iterator<Item = &str> {
    let known = row.columns.get("addresses").and_then(|known| match known {
        Cell::Text(known) => Some(known.as_str()),
        _ => None,
    });
    known.unwrap_or_default().split_whitespace()
}

pub fn on_ports(scene: &Scene, rows: &[Row]) -> Vec<String> {
    let subnets = scene.server.list("metalplane.io/subnets");
    let vpcs: BTreeMap<&str, String> =
        subnets.iter().map(|subnet| (text(subnet, "/metadata/uid"), vpc_of(subnet))).collect();
    let (mut owners, mut wrong) = (BTreeMap::new(), Vec::new());
    for row in ports(rows) {
        let switch = row.member_of.iter().find(|set| set.table == Table::LogicalSwitch);
        let (Some(switch), Some(_)) = (switch, known(row).next()) else {
            wrong.push(format!("{} is in no switch, or says no address,", row.id.name()));
            continue;
        };
        for known in known(row) {
            let is_address = known.parse::<IpAddr>().is_ok();
            // Of a Subnet that no longer exists nobody knows the Vpc.
            let vpc = vpcs.get(switch.row.uid.as_str()).filter(|_| is_address).cloned();
            let place = vpc.unwrap_or_else(|| switch.row.name());
            if let Some(other) = owners.insert((place, known), row.id.name()) {
                wrong.push(format!("{known} is on the ports {other} and {}", row.id.name()));
            }
        }
    }
    wrong
}

/// By its owner's UID, what each AddressHold holds.
fn held(holds: &[Arc<Value>]) -> BTreeSet<(&str, &str)> {
    let mut all = BTreeSet::new();
    for hold in holds {
        all.extend(["/spec/address", "/spec/macAddress"].map(|what| (text(hold, "/spec/owner/uid"), text(hold, what))));
    }
    all
}

/// What a VNic that is being deleted holds no more is anybody's, although its status still says it.
pub fn in_statuses(scene: &Scene, rows: &[Row]) -> Vec<String> {
    let vnics = scene.server.list("metalplane.io/vnics");
    if vnics.is_empty() {
        return Vec::new();
    }
    let [holds, subnets] = ["addressholds", "subnets"].map(|kind| scene.server.list(&format!("metalplane.io/{kind}")));
    let held = held(&holds);
    let vpcs: BTreeMap<(&str, &str), String> = subnets
        .iter()
        .map(|subnet| ((text(subnet, "/metadata/namespace"), text(subnet, "/metadata/name")), vpc_of(subnet)))
        .collect();
    let on_ports: BTreeSet<(&str, &str)> =
        ports(rows).flat_map(|row| known(row).map(|known| (row.id.uid.as_str(), known))).collect();
    let (mut owners, mut wrong) = (BTreeMap::new(), Vec::new());
    for vnic in &vnics {
        let (namespace, name) = (text(vnic, "/metadata/namespace"), text(vnic, "/metadata/name"));
        let uid = text(vnic, "/metadata/uid");
        let is_deleted = vnic.pointer("/metadata/deletionTimestamp").is_some();
        let subnet = (namespace, text(vnic, "/spec/subnet"));
        let of_subnet = format!("Subnet '{}/{}'", subnet.0, subnet.1);
        for address in vnic["status"]["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let holds = held.contains(&(uid, address));
            if !holds && (!is_deleted || on_ports.contains(&(uid, address))) {
                wrong.push(format!("VNic '{name}' has {address}, and no AddressHold of it,"));
            }
            let place = vpcs.get(&subnet).unwrap_or(&of_subnet).clone();
            if (holds || !is_deleted)
                && let Some(other) = owners.insert((place, address), name)
            {
                wrong.push(format!("{address} is in the status of the VNics '{other}' and '{name}'"));
            }
        }
        let mac = text(vnic, "/status/macAddress");
        let has_mac = !mac.is_empty() && (!is_deleted || held.contains(&(uid, mac)));
        if has_mac && let Some(other) = owners.insert((of_subnet, mac), name) {
            wrong.push(format!("{mac} is in the status of the VNics '{other}' and '{name}'"));
        }
    }
    wrong
}
