//! A Lease that a restore of etcd has put back, and a north-bound database that knows a later leader.

use super::api::store::Numbers;
use super::life::{self, condition};
use super::network::{LONG, SUBNETS, create_subnet, is_ready, port};
use super::simulation::{SYSTEM, Simulation};
use planner::network::rows::KIND;
use ports::NorthBound;

/// etcd is put back to a time before a machine that runs, and before the last leaders, while no controller runs: the database knows a
/// later leader than the Lease. The next one raises itself above that before it writes anything, and the port of the NIC that the
/// host alone still knows stays as it is, until the host is off.
pub async fn after_a_restore(s: &mut Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    let dpu = |s: &Simulation| s.scene.server.get("metalplane.io/dpus", "", &host.dpu_name).unwrap_or_default();
    s.until("the Dpu is ready", |s| condition(&dpu(s), "Ready") == "True" && is_ready(s, SUBNETS, "blue")).await?;
    let before = s.scene.server.store().backup();
    let first = token(s);
    for _ in 0..3 {
        s.stop_controllers();
        s.start_controller("controller-1", SYSTEM);
        tokio::time::sleep(LONG).await;
    }
    life::create(s, "bm-01", 7).await?;
    let (own, known) = (port(s, "bm-01"), token(s));
    if own.is_none() || known < first + 3 {
        return Err(format!("the port {own:?}, and token {known} after {first}"));
    }
    s.stop_controllers();
    s.scene.server.write(|store| store.restore(before, Numbers::Later));
    s.stop_agent(&host);
    s.start_agent(&host);
    // There is something to write.
    create_subnet(s, "green", "default", "10.60.0.0/24");
    let seen = s.scene.journal().len();
    s.start_controller("controller-1", SYSTEM);
    s.until("the agent reports the NIC", |s| {
        let dpu = dpu(s);
        dpu["status"]["orphans"].as_array().is_some_and(|all| all.iter().any(|orphan| orphan["kind"] == "Nic"))
    })
    .await?;
    s.until("the Subnet is there", |s| is_ready(s, SUBNETS, "green")).await?;
    tokio::time::sleep(LONG).await;
    if token(s) <= known {
        return Err(format!("the database has token {}, and had {known}\n{}", token(s), s.story()));
    }
    let journal = s.scene.journal();
    let of_ovn = |what: &str| what.contains("OVN") || what.contains("nb_cfg");
    let effects =
        journal[seen..].iter().filter(|effect| effect.process.starts_with("controller") && of_ovn(&effect.what));
    let effects: Vec<(&str, &str)> = effects.map(|effect| (effect.process.as_str(), effect.what.as_str())).collect();
    let is_taking = |what: &str| what.contains("take the token");
    let first_write = effects.iter().position(|(_, what)| !is_taking(what));
    let leader = effects.first().filter(|(_, what)| is_taking(what)).map(|(process, _)| *process);
    if first_write.is_none()
        || leader == Some("controller-1 life 1")
        || effects.iter().any(|(by, _)| Some(*by) != leader)
    {
        return Err(format!(
            "the first one raises the Lease and ends, the next one takes the token, then writes: {effects:?}"
        ));
    }
    let is_there = |s: &Simulation| s.scene.north_bound.rows().into_iter().any(|row| own.as_ref() == Some(&row));
    if !is_there(s) {
        return Err(format!(
            "the port of a NIC that a running host has: {:#?}\n{}",
            s.scene.north_bound.rows(),
            s.story()
        ));
    }
    host.goes_off();
    s.until("the port was deleted behind the NIC", |s| {
        let gone = dpu(s)["status"]["orphans"].as_array().is_none_or(Vec::is_empty);
        gone && !s.scene.north_bound.rows().iter().any(|row| row.external_ids[KIND] == "VNic")
    })
    .await
}

/// How often the Lease had changed hands, as the database knows it.
fn token(s: &Simulation) -> u64 {
    let site = s.scene.server.get("namespaces", "", "kube-system").unwrap_or_default();
    let handle = s.scene.north_bound.open(site["metadata"]["uid"].as_str().unwrap_or_default());
    handle.token().ok().flatten().map_or(0, |token| token.transitions)
}
