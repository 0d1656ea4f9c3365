//! OVN's north-bound database is lost under a machine that runs, and an empty one is in its place.

use super::network::{DEFAULT, GROUPS, LONG, SUBNETS, is_in_force};
use super::simulation::Simulation;
use super::way_out;
use planner::exposure::Exposure;
use planner::host::PowerAction;
use planner::network::rows::Row;
use serde_json::{Value, json};

/// What may not be another afterwards.
#[derive(Debug, PartialEq)]
struct Kept {
    rows: Vec<Row>,
    /// Addresses and MAC address of each VNic.
    vnics: Vec<Value>,
    holds: Vec<Value>,
    nics: Vec<Value>,
    shown: Vec<Exposure>,
    actions: Vec<PowerAction>,
}

fn rows(s: &Simulation) -> Vec<Row> {
    let mut rows = s.scene.north_bound.rows();
    rows.sort_by_key(|row| (row.table, row.id.clone()));
    rows
}

fn kept(s: &Simulation) -> Kept {
    let of = |kind: &str, what: &dyn Fn(&Value) -> Value| {
        let all = s.scene.server.list(&format!("metalplane.io/{kind}"));
        all.iter().map(|object| json!({"name": object["metadata"]["name"], "has": what(object)})).collect()
    };
    let host = &s.scene.hosts[0];
    Kept {
        rows: rows(s),
        vnics: of("vnics", &|vnic| json!([vnic["status"]["addresses"], vnic["status"]["macAddress"]])),
        holds: of("addressholds", &|hold| hold["spec"].clone()),
        nics: of("nicattachments", &|nic| nic["spec"].clone()),
        shown: host.dpu().exposures(),
        actions: host.actions(),
    }
}

/// The network is made anew as it was: the same names, addresses and MAC addresses. The host sees nothing of it.
pub async fn under_a_machine(s: &Simulation) -> Result<(), String> {
    way_out::open(s, &way_out::ORDERS[0]).await?;
    let before = kept(s);
    s.scene.north_bound.replace_by_empty();
    s.until("all is there again, and in force by a number of the new database", |s| {
        let in_force = is_in_force(s, GROUPS, DEFAULT) && is_in_force(s, SUBNETS, "blue");
        in_force && way_out::is_wide(s) && rows(s) == before.rows
    })
    .await?;
    tokio::time::sleep(LONG).await;
    let after = kept(s);
    if after != before {
        return Err(format!("it was {before:#?}\nand is {after:#?}\n{}", s.story()));
    }
    way_out::close(s).await
}
