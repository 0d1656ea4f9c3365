//! The way out of a Vpc, and in; routes by a guest, and addresses beside its own: made in any order, changed, and deleted while they are used.

use super::life::{self, is_clean, runs};
use super::simulation::{Simulation, USER};
use planner::network::rows::{Cell, KIND, Row, Table};
use serde_json::{Value, json};
use std::time::Duration;

const NETWORKS: &str = "metalplane.io/providernetworks";
const GATEWAYS: &str = "metalplane.io/natgateways";
const FLOATING: &str = "metalplane.io/floatingips";
const VNICS: &str = "metalplane.io/vnics";
const VPCS: &str = "metalplane.io/vpcs";

const LONG: Duration = Duration::from_secs(120);
/// In which order the objects are made that do not need each other to be accepted.
pub const ORDERS: [[usize; 5]; 4] = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1], [3, 0, 4, 1, 2]];

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn make(s: &Simulation, which: usize) {
    match which {
        0 => {
            let spec = json!({"physicalNetwork": "physnet1", "cidr": "203.0.113.0/24", "gateway": "203.0.113.1",
                "ipv6Cidr": "2001:db8:1::/64", "addresses": ["203.0.113.10-203.0.113.12", "2001:db8:1::10-2001:db8:1::12"],
                "gatewayNodes": ["dpu-1"]});
            s.create(NETWORKS, "", object("ProviderNetwork", "outside", &spec));
        }
        1 => {
            let spec = json!({"vpc": {"name": "default"}, "providerNetwork": "outside", "addresses": ["203.0.113.10", "2001:db8:1::10"]});
            s.create(GATEWAYS, USER, object("NatGateway", "out", &spec));
        }
        2 => {
            let spec = json!({"providerNetwork": "outside", "address": "203.0.113.11", "vnic": "bm-01-eth0"});
            s.create(FLOATING, USER, object("FloatingIP", "in", &spec));
        }
        3 => s.create(life::MACHINES, USER, life::machine("bm-01", 7)),
        _ => s.create(VNICS, USER, object("VNic", "shared", &json!({"subnet": "blue", "addresses": ["10.20.0.200"]}))),
    }
}

/// What a running machine may have beside its own, and what its Vpc sends to it.
fn widen(s: &Simulation, wide: bool) {
    s.change(VNICS, USER, "bm-01-eth0", |vnic| {
        vnic["spec"]["allowedAddresses"] = if wide { json!(["10.20.0.200", "10.90.0.0/16"]) } else { json!([]) };
        vnic["spec"]["qos"] = if wide { json!({"egressMbps": 100}) } else { Value::Null };
    });
    s.change(VPCS, USER, "default", |vpc| {
        let routes = json!([{"destination": "10.90.0.0/16", "nextHops": ["10.20.0.7"]}]);
        vpc["spec"]["routes"] = if wide { routes } else { json!([]) };
    });
}

fn get(s: &Simulation, resource: &str, name: &str) -> Value {
    let namespace = if resource == NETWORKS { "" } else { USER };
    s.scene.server.get(resource, namespace, name).map(|object| Value::clone(&object)).unwrap_or_default()
}

/// Of its newest generation.
fn is(s: &Simulation, resource: &str, name: &str, type_: &str) -> bool {
    let object = get(s, resource, name);
    object["status"]["conditions"].as_array().into_iter().flatten().any(|said| {
        said["type"] == type_
            && said["status"] == "True"
            && said["observedGeneration"] == object["metadata"]["generation"]
    })
}

fn says(s: &Simulation, resource: &str, name: &str, type_: &str, reason: &str) -> bool {
    let all = get(s, resource, name)["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().any(|said| said["type"] == type_ && said["reason"] == reason)
}

fn rows(s: &Simulation, table: Table) -> Vec<Row> {
    s.scene.north_bound.rows().into_iter().filter(|row| row.table == table).collect()
}

fn text(row: &Row, column: &str) -> String {
    match row.columns.get(column) {
        Some(Cell::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

fn has_row(s: &Simulation, table: Table, column: &str, part: &str) -> bool {
    rows(s, table).iter().any(|row| text(row, column).contains(part))
}

/// All is in OVN, and in force.
fn is_open(s: &Simulation) -> bool {
    let translated = |outer: &str| {
        rows(s, Table::Nat)
            .iter()
            .any(|row| text(row, "external_ip") == outer && text(row, "logical_ip") == "10.20.0.7")
    };
    runs(s, "bm-01")
        && is(s, GATEWAYS, "out", "InForce")
        && is(s, FLOATING, "in", "InForce")
        && is(s, VNICS, "bm-01-eth0", "InForce")
        && translated("203.0.113.11")
}

/// And in its last form, as [`open`] leaves it.
pub(super) fn is_wide(s: &Simulation) -> bool {
    is_open(s)
        && is(s, VPCS, "default", "InForce")
        && is(s, VPCS, "default", "Ready")
        && has_row(s, Table::LogicalSwitchPort, "port_security", "10.20.0.200 10.90.0.0/16")
        && has_row(s, Table::LogicalSwitchPort, "type", "virtual")
        && has_row(s, Table::StaticRoute, "ip_prefix", "10.90.0.0/16")
        && rows(s, Table::Qos).len() == 1
}

/// The rows, each told by what it is of in the place of UIDs.
pub fn told(s: &Simulation) -> Vec<String> {
    let kinds = [
        "vpcs",
        "subnets",
        "securitygroups",
        "vnics",
        "natgateways",
        "floatingips",
        "providernetworks",
        "nicattachments",
    ];
    let objects: Vec<_> = kinds.iter().flat_map(|kind| s.scene.server.list(&format!("metalplane.io/{kind}"))).collect();
    let named = |line: String| {
        objects.iter().fold(line, |line, object| {
            let (uid, name) =
                (object["metadata"]["uid"].as_str().unwrap_or_default(), object["metadata"]["name"].as_str());
            let mac = api::names::mac(uid, 0);
            let name = format!("<{} {}>", object["kind"].as_str().unwrap_or_default(), name.unwrap_or_default());
            line.replace(uid, &name).replace(&uid.replace('-', "_"), &name).replace(&mac, &format!("{name} MAC"))
        })
    };
    let (site, kube_system) = (s.scene.server.get("namespaces", "", "kube-system"), "<site>");
    let site = site.map(|site| site["metadata"]["uid"].as_str().unwrap_or_default().to_owned()).unwrap_or_default();
    let mut all: Vec<String> =
        s.scene.north_bound.rows().iter().map(|row| named(format!("{row:?}").replace(&site, kube_system))).collect();
    all.sort();
    all
}

/// All of it is deleted: what is deleted last has the others to wait for.
pub(super) async fn close(s: &Simulation) -> Result<(), String> {
    s.delete(NETWORKS, "", "outside");
    s.delete(GATEWAYS, USER, "out");
    s.delete(VNICS, USER, "shared");
    s.delete(life::MACHINES, USER, "bm-01");
    s.delete(FLOATING, USER, "in");
    s.until("nothing is left", is_closed).await
}

/// Neither a row nor a hold of it.
fn is_closed(s: &Simulation) -> bool {
    let kinds = ["ProviderNetwork", "NatGateway", "FloatingIP", "VNic"];
    let row = |row: &Row| kinds.contains(&row.external_ids[KIND].as_str());
    let gone = |resource, name| get(s, resource, name).is_null();
    is_clean(s)
        && gone(NETWORKS, "outside")
        && gone(GATEWAYS, "out")
        && gone(FLOATING, "in")
        && !s.scene.north_bound.rows().iter().any(row)
        && rows(s, Table::StaticRoute).is_empty()
}

/// Made in this order; the rows that it ends in.
pub async fn open(s: &Simulation, order: &[usize; 5]) -> Result<Vec<String>, String> {
    s.until("the Subnet is there", |s| is(s, "metalplane.io/subnets", "blue", "Ready")).await?;
    order.iter().for_each(|which| make(s, *which));
    s.until("the machine is let out, and reached", is_open).await?;
    widen(s, true);
    s.until("the machine is a hop, and has another's address", is_wide).await?;
    tokio::time::sleep(LONG).await;
    Ok(told(s))
}

/// All that is made is used, changed under a machine that runs, and deleted while it is used.
pub async fn whole(s: &Simulation, order: &[usize; 5]) -> Result<Vec<String>, String> {
    let rows_then = open(s, order).await?;
    let (before, actions) = (s.scene.hosts[0].dpu().exposures(), s.scene.hosts[0].actions());
    s.delete(NETWORKS, "", "outside");
    s.delete(GATEWAYS, USER, "out");
    s.until("what is used says by whom", |s| {
        says(s, NETWORKS, "outside", "Deletable", "ProviderNetworkInUse")
            && says(s, GATEWAYS, "out", "Deletable", "NatGatewayInUse")
    })
    .await?;
    // Nobody else gets the address before the machine's guest has it no more.
    s.delete(VNICS, USER, "shared");
    s.until("the address is the machine's no more", |s| {
        get(s, VNICS, "shared").is_null() && !has_row(s, Table::LogicalSwitchPort, "port_security", "10.20.0.200")
    })
    .await?;
    s.until("the machine says what is missing", |s| {
        says(s, VNICS, "bm-01-eth0", "Programmed", "AllowedAddressInSubnet")
    })
    .await?;
    s.change(FLOATING, USER, "in", |floating| floating["spec"]["vnic"] = Value::Null);
    s.until("the gateway goes, and what its network has left is the address", |s| {
        get(s, GATEWAYS, "out").is_null() && get(s, FLOATING, "in")["status"]["vnicUID"].is_null()
    })
    .await?;
    widen(s, false);
    s.until("the route and the rate no longer exist", |s| {
        rows(s, Table::StaticRoute).is_empty()
            && rows(s, Table::Qos).is_empty()
            && is(s, VNICS, "bm-01-eth0", "InForce")
    })
    .await?;
    if s.scene.hosts[0].dpu().exposures() != before || s.scene.hosts[0].actions() != actions {
        return Err(format!("the host has seen it\n{}", s.story()));
    }
    s.delete(life::MACHINES, USER, "bm-01");
    s.delete(FLOATING, USER, "in");
    s.until("nothing is left", is_closed).await?;
    Ok(rows_then)
}

/// Deleted at this moment of its making: nothing is left.
pub async fn cut_short(s: &Simulation, order: &[usize; 5]) -> Result<(), String> {
    let mut reached = s.scene.faults.reached.subscribe();
    tokio::select! {
        biased;
        opened = open(s, order) => drop(opened?),
        _ = reached.wait_for(|reached| *reached) => {}
    }
    // What the scene has not made yet it makes now: all is deleted that ever was.
    let missing = |which: usize| match which {
        0 => get(s, NETWORKS, "outside").is_null(),
        1 => get(s, GATEWAYS, "out").is_null(),
        2 => get(s, FLOATING, "in").is_null(),
        3 => s.machine("bm-01").is_none(),
        _ => get(s, VNICS, "shared").is_null(),
    };
    (0..5).filter(|which| missing(*which)).for_each(|which| make(s, which));
    close(s).await
}
