//! What a controller tells Prometheus of the network.

use super::network::{SUBNETS, VNICS, create_subnet, create_vpc, is_there, object};
use super::simulation::{Simulation, USER};
use serde_json::json;

/// Of the north-bound database.
pub(super) fn transactions(s: &Simulation, what: &str, result: &str) -> f64 {
    let name = format!("metalplane_ovn_transactions_total{{what=\"{what}\",result=\"{result}\"}}");
    s.metric("controller-1", &name).unwrap_or_default()
}

pub(super) fn repaired(s: &Simulation) -> f64 {
    s.metric("controller-1", "metalplane_ovn_repaired_rows_total").unwrap_or_default()
}

fn free(s: &Simulation, subnet: &str) -> Option<f64> {
    let labels = format!("namespace=\"{USER}\",subnet=\"{subnet}\",family=\"IPv4\"");
    s.metric("controller-1", &format!("metalplane_subnet_free_addresses{{{labels}}}"))
}

/// What is held is not free; what is deleted has no number.
pub async fn free_addresses(s: &Simulation) -> Result<(), String> {
    create_vpc(s, "one", &[]);
    create_subnet(s, "small", "one", "10.40.0.0/29");
    s.until("all but the router's is free", |s| free(s, "small") == Some(5.0)).await?;
    let vnic = |name: &str| object("VNic", name, &json!({"subnet": "small"}));
    ["a", "b"].iter().for_each(|name| s.create(VNICS, USER, vnic(name)));
    s.until("two are taken", |s| free(s, "small") == Some(3.0)).await?;
    s.delete(VNICS, USER, "a");
    s.until("one is free again", |s| free(s, "small") == Some(4.0)).await?;
    s.delete(VNICS, USER, "b");
    s.delete(SUBNETS, USER, "small");
    s.until("a Subnet that was deleted has no number", |s| {
        !is_there(s, SUBNETS, "small") && free(s, "small").is_none() && free(s, "blue").is_some()
    })
    .await
}
