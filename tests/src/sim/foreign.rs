//! What somebody else has in OVN's north-bound database: another cluster's Metalplane, and a program that knows nothing of it.

use super::scene::Scene;
use planner::network::rows::{Group, Membership, Row, RowId, SITE, Table, Vpc};
use std::collections::{BTreeMap, BTreeSet};

const OTHER_SITE: &str = "another-site";

fn of_other_cluster() -> Vec<Row> {
    let vpc = Vpc { uid: "router-elsewhere".to_owned(), hops: Vec::new() }.rows(OTHER_SITE);
    vpc.into_iter().chain(Group { uid: "group-elsewhere".to_owned(), rules: Vec::new() }.rows(OTHER_SITE)).collect()
}

/// A switch with a port, as those of a cluster network.
fn of_other_program() -> [Row; 2] {
    let row = |table: Table, uid: &str| Row {
        table,
        id: RowId::of(uid),
        external_ids: BTreeMap::from([("vendor".to_owned(), "another".to_owned())]),
        columns: BTreeMap::new(),
        member_of: BTreeSet::new(),
    };
    let switch = row(Table::LogicalSwitch, "cluster-network");
    let mut port = row(Table::LogicalSwitchPort, "pod-of-cluster-network");
    port.member_of.insert(Membership { row: switch.id.clone(), table: Table::LogicalSwitch, column: "ports" });
    [switch, port]
}

/// There before any controller is.
pub fn put(scene: &Scene) {
    let mut database = scene.north_bound.backup();
    database.rows.extend(of_other_cluster().into_iter().chain(of_other_program()));
    scene.north_bound.restore(database);
    scene.keep(others(scene));
}

/// All rows that are not this cluster's.
fn others(scene: &Scene) -> Vec<Row> {
    let site = scene.server.get("namespaces", "", "kube-system").unwrap_or_default();
    let site = site["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    scene.north_bound.rows().into_iter().filter(|row| row.external_ids.get(SITE) != Some(&site)).collect()
}

/// Nobody has written, or deleted, what is somebody else's.
pub fn touched(scene: &Scene, there: &[Row]) -> Option<String> {
    let now = others(scene);
    (now != there).then(|| format!("rows of others are {now:?}, and were {there:?}"))
}
