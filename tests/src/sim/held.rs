//! What OVN lets a guest have, or translates, nobody else can get: it has an AddressHold.

use super::scene::Scene;
use api::network::SubnetSpec;
use planner::network::cidr;
use planner::network::rows::{Cell, Row, Table};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Addresses of Subnets that are in rows of OVN, and addresses that it translates, without a hold.
pub fn unheld(scene: &Scene, rows: &[Row]) -> Vec<String> {
    let text = |row: &Row, column: &str| match row.columns.get(column) {
        Some(Cell::Text(text)) => text.clone(),
        _ => String::new(),
    };
    let mut used: Vec<(String, String)> = Vec::new();
    for row in rows {
        let (of, own) = (row.id.name(), |column: &str| text(row, column));
        match row.table {
            // Beside its own, of which `once.rs` has it.
            Table::LogicalSwitchPort => {
                let beside = own("port_security");
                let beside = beside.strip_prefix(&own("addresses")).unwrap_or_default();
                used.extend(beside.split_whitespace().map(|address| (of.clone(), address.to_owned())));
            }
            Table::Nat if own("type") == "snat" => used.push((of, own("external_ip"))),
            Table::Nat => used.extend([own("external_ip"), own("logical_ip")].map(|address| (of.clone(), address))),
            _ => {}
        }
    }
    if used.is_empty() {
        return Vec::new();
    }
    let holds = scene.server.list("metalplane.io/addressholds");
    let held: BTreeSet<&str> = holds.iter().filter_map(|hold| hold["spec"]["address"].as_str()).collect();
    let outside = scene.server.list("metalplane.io/providernetworks");
    let subnets = scene.server.list("metalplane.io/subnets");
    let networks: Vec<_> = subnets
        .iter()
        .chain(&outside)
        .filter_map(|one| {
            let spec = serde_json::json!({"cidr": one["spec"]["cidr"], "ipv6Cidr": one["spec"]["ipv6Cidr"]});
            serde_json::from_value::<SubnetSpec>(spec).ok()
        })
        .flat_map(|spec| cidr::networks(&spec))
        .collect();
    let is_somebodys = |address: &str| {
        let address: Option<IpAddr> = address.parse().ok();
        address.is_some_and(|address| networks.iter().any(|network| network.contains(&address)))
    };
    let free = used.into_iter().filter(|(_, address)| is_somebodys(address) && !held.contains(address.as_str()));
    free.map(|(of, address)| format!("{of} has {address}, which nobody holds")).collect()
}
