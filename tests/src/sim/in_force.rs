//! What an object says to be in force no chassis is without that has a port which the object concerns. A chassis that has stopped has what it had
//! installed; the others have everything.

use super::scene::{Scene, is_of_vnic};
use planner::network::rows::{CHASSIS, Cell, Row, Table};
use serde_json::Value;
use std::collections::BTreeSet;

/// Those that say so.
const KINDS: [&str; 6] = ["securitygroups", "vnics", "subnets", "vpcs", "natgateways", "floatingips"];

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Of its newest generation.
fn is_said(object: &Value) -> bool {
    let generation = &object["metadata"]["generation"];
    let mut all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.any(|said| said["type"] == "InForce" && said["status"] == "True" && said["observedGeneration"] == *generation)
}

fn is_bound(row: &Row, chassis: &str) -> bool {
    match row.columns.get("options") {
        Some(Cell::Pairs(options)) => options.get(CHASSIS).is_some_and(|name| name == chassis),
        _ => false,
    }
}

fn cell<'a>(row: &'a Row, column: &str) -> &'a str {
    match row.columns.get(column) {
        Some(Cell::Text(text)) => text,
        _ => "",
    }
}

fn is_in(row: &Row, table: Table, uid: &str) -> bool {
    row.member_of.iter().any(|set| set.table == table && set.row.uid == uid)
}

/// UIDs of the Subnets of a Vpc.
fn subnets_of(scene: &Scene, namespace: &str, vpc: &str) -> BTreeSet<String> {
    let of_vpc = |subnet: &Value| {
        let named = Some(text(subnet, "/spec/vpc/name")).filter(|named| !named.is_empty()).unwrap_or("default");
        text(subnet, "/metadata/namespace") == namespace && named == vpc
    };
    let all = scene.server.list("metalplane.io/subnets");
    all.iter().filter(|subnet| of_vpc(subnet)).map(|subnet| text(subnet, "/metadata/uid").to_owned()).collect()
}

/// Whether it matters to the guest of this port.
fn concerns(scene: &Scene, kind: &str, object: &Value, port: &Row, rows: &[&Row]) -> bool {
    let (namespace, uid) = (text(object, "/metadata/namespace"), text(object, "/metadata/uid"));
    let in_vpc =
        |vpc: &str| subnets_of(scene, namespace, vpc).iter().any(|subnet| is_in(port, Table::LogicalSwitch, subnet));
    match kind {
        "securitygroups" => is_in(port, Table::PortGroup, uid),
        "vnics" => port.id.uid == uid,
        "subnets" => is_in(port, Table::LogicalSwitch, uid),
        "vpcs" => in_vpc(text(object, "/metadata/name")),
        "natgateways" => in_vpc(text(object, "/spec/vpc/name")),
        // What is translated is the guest's.
        _ => rows.iter().any(|row| {
            let inner = cell(row, "logical_ip");
            !inner.is_empty() && cell(port, "addresses").split_whitespace().any(|known| known == inner)
        }),
    }
}

/// What an object is there. Of a group the rules: who is in it is its members' own.
fn told(kind: &str, uid: &str, rows: &[Row]) -> BTreeSet<String> {
    let of_it = rows.iter().filter(|row| row.id.uid == uid && (kind != "securitygroups" || row.table == Table::Acl));
    of_it.map(|row| format!("{:?} {:?} {:?}", row.id, row.columns, row.member_of)).collect()
}

/// `rows`: as they are now.
pub fn not_installed(scene: &Scene, rows: &[Row]) -> Vec<String> {
    let stopped = scene.north_bound.stopped();
    let mut wrong = Vec::new();
    for kind in KINDS.iter().filter(|_| !stopped.is_empty()) {
        for object in scene.server.list(&format!("metalplane.io/{kind}")).iter().filter(|object| is_said(object)) {
            let uid = text(object, "/metadata/uid");
            for (chassis, installed) in &stopped {
                if told(kind, uid, rows) == told(kind, uid, &installed.rows) {
                    continue;
                }
                let of_it: Vec<&Row> = rows.iter().chain(&installed.rows).filter(|row| row.id.uid == uid).collect();
                let ports = rows.iter().filter(|row| is_of_vnic(row) && is_bound(row, chassis));
                if ports.into_iter().any(|port| concerns(scene, kind, object, port, &of_it)) {
                    let name = text(object, "/metadata/name");
                    wrong.push(format!("{kind} '{name}' is said to be in force on {chassis}"));
                }
            }
        }
    }
    wrong
}
