//! The API server forgets what hosts are using: etcd is restored to an earlier revision, or a Dpu is registered anew.

use super::api::store::{Backup, Numbers};
use super::host::Host;
use super::life::{self, runs};
use super::passing;
use super::simulation::{Simulation, USER};
use planner::exposure::Exposure;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const MACHINES: &str = "metalplane.io/baremetalmachines";
const DPUS: &str = "metalplane.io/dpus";

/// Long enough for whatever would be done about it.
const LONG: Duration = Duration::from_secs(300);

fn shown(host: &Host) -> Vec<Exposure> {
    let mut all = host.dpu().exposures();
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

fn dpu(s: &Simulation, host: &Host) -> Arc<Value> {
    s.scene.server.get(DPUS, "", &host.dpu_name).unwrap_or_default()
}

/// The UIDs that the agent reports.
fn reported(s: &Simulation, host: &Host) -> Vec<String> {
    let dpu = dpu(s, host);
    let all = dpu["status"]["orphans"].as_array().cloned().unwrap_or_default();
    all.iter().filter_map(|orphan| orphan["uid"].as_str().map(str::to_owned)).collect()
}

/// A machine runs of which the backup that is restored knows nothing; its agent is started anew.
async fn forgotten_machine(s: &mut Simulation) -> Result<(Arc<Host>, Vec<Exposure>), String> {
    let host = s.scene.hosts[0].clone();
    s.until("the Dpu is ready", |s| life::condition(&dpu(s, &host), "Ready") == "True").await?;
    let before: Backup = s.scene.server.store().backup();
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("the machine runs", |s| runs(s, "bm-01")).await?;
    let running = shown(&host);
    s.scene.server.write(|store| store.restore(before, Numbers::Later));
    s.stop_agent(&host);
    s.start_agent(&host);
    s.until("the agent reports all of it", |s| reported(s, &host).len() == running.len()).await?;
    tokio::time::sleep(LONG).await;
    if shown(&host) != running {
        return Err(format!("a running host lost {running:?}; it has {:?}\n{}", shown(&host), s.story()));
    }
    Ok((host, running))
}

/// Nobody gets the server while its host runs. Once that is reported off, all goes, and the next machine has the server.
pub async fn restored(s: &mut Simulation) -> Result<(), String> {
    let (host, running) = forgotten_machine(s).await?;
    s.create(MACHINES, USER, life::machine("bm-02", 8));
    s.until("the next machine waits, and is told why", |s| {
        let machine = s.machine("bm-02").unwrap_or_default();
        machine["status"]["conditions"].to_string().contains("HardwareHasOrphans")
    })
    .await?;
    tokio::time::sleep(LONG).await;
    if shown(&host) != running {
        return Err(format!("a running host lost what it had to another machine\n{}", s.story()));
    }
    host.goes_off();
    s.until("the orphans are gone", |s| reported(s, &host).is_empty()).await?;
    s.until("the next machine runs", |s| runs(s, "bm-02")).await
}

/// etcd is put back to a time at which a volume was nobody's. The DPU whose host has the volume now does not answer, so nothing in
/// the cluster tells of it; the next machine that asks for the volume has to wait until that DPU has told.
pub async fn shown_by_an_unresponsive_dpu(s: &mut Simulation, numbers: Numbers) -> Result<(), String> {
    s.until("both Dpus are ready", |s| {
        s.scene.hosts.iter().all(|host| life::condition(&dpu(s, host), "Ready") == "True")
    })
    .await?;
    passing::claim(s, "fast");
    s.until("the claim is bound", passing::is_bound).await?;
    let before: Backup = s.scene.server.store().backup();
    s.create(MACHINES, USER, passing::machine("bm-01", 1, true));
    s.until("the machine has the volume", |s| passing::has(s, "bm-01")).await?;
    let host = s.scene.hosts[0].clone();
    let running = shown(&host);
    s.scene.cut(&host.dpu_name, true);
    s.until("the agent does not answer", |s| life::condition(&dpu(s, &host), "Ready") == "Unknown").await?;
    s.scene.server.write(|store| store.restore(before, numbers));
    s.create(MACHINES, USER, passing::machine("bm-02", 2, true));
    s.until("the next machine is told whose report is missing", |s| passing::says(s, "bm-02", "ExposuresUnknown"))
        .await?;
    tokio::time::sleep(LONG).await;
    s.until("the next machine still waits", |s| passing::says(s, "bm-02", "ExposuresUnknown")).await?;
    s.scene.cut(&host.dpu_name, false);
    s.until("the next machine is told where the volume is", |s| passing::says(s, "bm-02", "VolumeShownElsewhere"))
        .await?;
    tokio::time::sleep(LONG).await;
    if shown(&host) != running {
        return Err(format!("a running host lost {running:?}; it has {:?}\n{}", shown(&host), s.story()));
    }
    host.goes_off();
    s.until("the next machine has the volume", |s| passing::has(s, "bm-02")).await
}

/// An administrator takes one of them from the host while it runs; the others stay.
pub async fn forgotten_by_an_administrator(s: &mut Simulation) -> Result<(), String> {
    let (host, running) = forgotten_machine(s).await?;
    let nic = running.iter().find(|exposure| exposure.representor.is_some()).expect("a machine has a NIC");
    let uid = nic.id.uid.clone();
    s.change(DPUS, "", &host.dpu_name, |dpu| dpu["spec"]["forget"] = json!([uid]));
    s.until("the NIC is gone, and nothing else", |_| {
        let left = shown(&host);
        left.len() == running.len() - 1 && left.iter().all(|exposure| exposure.id.uid != uid)
    })
    .await
}

/// A Dpu, its finalizer taken away by force, is deleted with all that was in its namespace, and registers anew.
pub async fn registered_anew(s: &mut Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("the machine runs", |s| runs(s, "bm-01")).await?;
    let running = shown(&host);
    let spec = dpu(s, &host)["spec"].clone();
    s.scene
        .server
        .write(|store| {
            let kinds = ["metalplane.io/diskattachments", "metalplane.io/nicattachments", DPUS];
            let of_it: Vec<_> =
                store.all().map(|(id, _)| id.clone()).filter(|id| kinds.contains(&id.resource.as_str())).collect();
            for id in of_it {
                let mut object = Value::clone(&*store.get(&id)?);
                object["metadata"]["finalizers"] = Value::Null;
                store.update(&id, super::api::store::Part::Main, object)?;
                store.delete(&id, &Value::Null)?;
            }
            Ok::<_, super::api::store::Refusal>(())
        })
        .map_err(|refusal| refusal.message)?;
    s.until("it is registered anew", |s| dpu(s, &host)["metadata"]["uid"].is_string()).await?;
    s.change(DPUS, "", &host.dpu_name, |dpu| dpu["spec"] = spec);
    s.until("the agent reports what it has", |s| !reported(s, &host).is_empty()).await?;
    tokio::time::sleep(LONG).await;
    match shown(&host) == running {
        true => Ok(()),
        false => Err(format!("a running host lost {running:?}; it has {:?}\n{}", shown(&host), s.story())),
    }
}

/// The kubeconfig of an agent is exchanged for that of another cluster, in which its Dpu is registered and approved, and nothing is
/// attached. Nobody there gets the server. With its own kubeconfig back, the agent goes on as if nothing had been.
pub async fn in_another_cluster(s: &mut Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("the machine runs", |s| runs(s, "bm-01")).await?;
    let running = shown(&host);
    s.stop_agent(&host);
    let mut other = s.beside();
    other.start_agent(&host);
    other.until("the agent reports what the host has", |o| reported(o, &host).len() == running.len()).await?;
    other.create(MACHINES, USER, life::machine("bm-09", 7));
    tokio::time::sleep(LONG).await;
    let claimed = other.machine("bm-09").is_some_and(|machine| machine["status"]["hardwareName"].is_string());
    other.stop_agent(&host);
    drop(other);
    s.start_agent(&host);
    s.until("the agent has its attachments again", |s| reported(s, &host).is_empty() && runs(s, "bm-01")).await?;
    match shown(&host) == running && !claimed {
        true => Ok(()),
        false => {
            Err(format!("claimed: {claimed}; the host had {running:?}, and has {:?}\n{}", shown(&host), s.story()))
        }
    }
}
