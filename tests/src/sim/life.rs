//! What a machine goes through, from its creation to nothing left.

use super::scene::is_of_vnic;
use super::simulation::{Simulation, USER};
use api::dpu::PowerDomain;
use api::labels;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub const MACHINES: &str = "metalplane.io/baremetalmachines";

pub fn machine(name: &str, host_number: u8) -> Value {
    json!({
        "apiVersion": "metalplane.io/v1alpha1", "kind": "BareMetalMachine", "metadata": {"name": name},
        "spec": {
            "runStrategy": "Always",
            "disks": [{"name": "root", "bootOrder": 1, "bus": "NVMe", "source": {"image": {"kind": "MachineImage", "name": "debian"}}}],
            "interfaces": [{"name": "eth0", "subnet": "blue", "addresses": [format!("10.20.0.{host_number}")]}],
            "cloudInit": {"userData": "#cloud-config\n{}\n"},
            "terminationGracePeriodSeconds": 30,
        },
    })
}

fn blank(name: &str) -> Value {
    json!({"name": name, "bus": "VirtioBlk", "size": "1Gi", "source": {"blank": {}}})
}

/// One more disk in the spec.
pub fn plug_blank(machine: &mut Value) {
    machine["spec"]["disks"].as_array_mut().expect("a list").push(blank("data"));
}

/// The annotation that asks for a restart.
pub fn restart_now() -> Value {
    json!({ labels::RESTART_REQUESTED_AT: runtime::clock::now() })
}

pub fn condition<'a>(machine: &'a Value, type_: &str) -> &'a str {
    let all = machine["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().find(|c| c["type"] == type_).and_then(|c| c["status"].as_str()).unwrap_or_default()
}

fn is_current(machine: &Value) -> bool {
    machine["metadata"]["generation"] == machine["status"]["observedGeneration"]
}

pub fn runs(s: &Simulation, name: &str) -> bool {
    s.machine(name).is_some_and(|machine| {
        is_current(&machine)
            && machine["status"]["state"] == "Running"
            && condition(&machine, "Ready") == "True"
            && condition(&machine, "GuestReachable") == "True"
    })
}

/// Presented and on, whether or not the guest survived what happened.
/// What the machine says of itself.
pub fn ready(s: &Simulation) -> Value {
    let machine = s.machine("bm-01").unwrap_or_default();
    let all = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default()
}

pub fn is_ready(s: &Simulation, name: &str) -> bool {
    s.machine(name).is_some_and(|machine| is_current(&machine) && condition(&machine, "Ready") == "True")
}

fn has(s: &Simulation, kind: &str, part: &str, name: &str, there: bool) -> bool {
    let field = if kind == "diskattachments" { "diskName" } else { "interfaceName" };
    let all = s.scene.server.list(&format!("metalplane.io/{kind}"));
    all.iter().any(|a| a["spec"]["owner"]["name"] == name && a["spec"][field] == part) == there
}

pub async fn create(s: &Simulation, name: &str, number: u8) -> Result<(), String> {
    s.create(MACHINES, USER, machine(name, number));
    s.until("the machine runs", |s| runs(s, name)).await
}

pub async fn plug(s: &Simulation, name: &str) -> Result<(), String> {
    s.change(MACHINES, USER, name, |machine| {
        machine["spec"]["disks"].as_array_mut().expect("a list").push(blank("data"));
        let eth1 = json!({"name": "eth1", "subnet": "blue", "addresses": ["10.20.0.201"]});
        machine["spec"]["interfaces"].as_array_mut().expect("a list").push(eth1);
    });
    s.until("disk and NIC are plugged", |s| {
        let attached = |list: &str| {
            let machine = s.machine(name).unwrap_or_default();
            let rows = machine["status"][list].as_array().cloned().unwrap_or_default();
            rows.len() == 2 && rows.iter().all(|row| row["phase"] == "Attached")
        };
        runs(s, name) && attached("disks") && attached("interfaces")
    })
    .await
}

pub async fn expand(s: &Simulation, name: &str) -> Result<(), String> {
    s.change(MACHINES, USER, name, |machine| machine["spec"]["disks"][1]["size"] = json!("2Gi"));
    s.until("the disk has grown", |s| {
        let machine = s.machine(name).unwrap_or_default();
        let rows = machine["status"]["disks"].as_array().cloned().unwrap_or_default();
        runs(s, name) && rows.iter().any(|row| row["name"] == "data" && row["capacity"] == "2Gi")
    })
    .await
}

pub async fn unplug(s: &Simulation, name: &str) -> Result<(), String> {
    s.change(MACHINES, USER, name, |machine| {
        machine["spec"]["disks"].as_array_mut().expect("a list").truncate(1);
        machine["spec"]["interfaces"].as_array_mut().expect("a list").truncate(1);
    });
    s.until("disk and NIC are unplugged", |s| {
        let gone = has(s, "diskattachments", "data", name, false) && has(s, "nicattachments", "eth1", name, false);
        gone && runs(s, name) && is_let_go(s, &format!("{name}-data"))
    })
    .await?;
    // A disk that was taken out of the list is kept: its claim is the user's to delete.
    s.delete("persistentvolumeclaims", USER, &format!("{name}-data"));
    s.until("the volume was deleted", |s| {
        ["persistentvolumes", "metalplane.io/volumeholds"].iter().all(|kind| s.scene.server.list(kind).len() == 1)
    })
    .await
}

fn is_let_go(s: &Simulation, claim: &str) -> bool {
    let claim = s.scene.server.get("persistentvolumeclaims", USER, claim);
    claim.is_none_or(|claim| claim["metadata"].get("finalizers").is_none())
}

pub async fn stop(s: &Simulation, name: &str) -> Result<(), String> {
    s.change(MACHINES, USER, name, |machine| machine["spec"]["runStrategy"] = json!("Halted"));
    s.until("the machine is stopped", |s| {
        s.machine(name).is_some_and(|m| is_current(&m) && m["status"]["state"] == "Stopped")
    })
    .await
}

pub async fn start(s: &Simulation, name: &str) -> Result<(), String> {
    s.change(MACHINES, USER, name, |machine| machine["spec"]["runStrategy"] = json!("Always"));
    s.until("the machine runs again", |s| runs(s, name)).await
}

/// Nothing of a machine is left at the server. Where its firmware finds the DPU's disk, and what it is made of, is the server's, whoever
/// has it next.
pub fn is_unclaimed(hardware: &Value) -> bool {
    let of_server =
        [labels::BOOT_PATH, labels::BOOT_DISCOVERY, labels::NETBOOT_BY, labels::ERASE_REPORT, labels::HAD_DPU];
    let ours = |key: &&String| key.starts_with("metalplane.io/");
    hardware["metadata"]["annotations"]
        .as_object()
        .is_none_or(|all| all.keys().filter(ours).all(|key| of_server.contains(&key.as_str())))
}

/// Nothing of any machine is left, but what users made.
pub fn is_clean(s: &Simulation) -> bool {
    let left = |kind: &str| s.scene.server.list(kind).len();
    let none = [
        "metalplane.io/baremetalmachines",
        "metalplane.io/diskattachments",
        "metalplane.io/nicattachments",
        "metalplane.io/volumeholds",
        "metalplane.io/vnics",
        "persistentvolumeclaims",
        "persistentvolumes",
        "storage.k8s.io/volumeattachments",
        "pods",
    ];
    let subnets = s.scene.server.list("metalplane.io/subnets");
    let of_subnet =
        |hold: &Value| subnets.iter().any(|subnet| subnet["metadata"]["uid"] == hold["spec"]["owner"]["uid"]);
    none.iter().all(|kind| left(kind) == 0)
        && s.scene.server.list("metalplane.io/addressholds").iter().all(|hold| of_subnet(hold))
        && !s.scene.north_bound.rows().iter().any(is_of_vnic)
        && s.scene.server.list("tinkerbell.org/hardware").iter().all(|hardware| is_unclaimed(hardware))
        && s.scene.hosts.iter().all(|host| host.dpu().exposures().is_empty())
}

pub async fn delete(s: &Simulation, name: &str) -> Result<(), String> {
    if s.machine(name).is_some() {
        s.delete(MACHINES, USER, name);
    }
    s.until("nothing is left", is_clean).await
}

/// The agent has told once what its DPU can do; then its host goes off, and it with it.
pub async fn park(s: &Simulation) -> Result<(), String> {
    s.until("the agent has told what it can do", |s| {
        s.scene.server.get("metalplane.io/dpus", "", "dpu-1").is_some_and(|dpu| condition(&dpu, "Ready") == "True")
    })
    .await?;
    s.scene.hosts[0].goes_off();
    s.until("the DPU is parked", is_parked).await
}

fn is_parked(s: &Simulation) -> bool {
    s.scene.server.get("metalplane.io/dpus", "", "dpu-1").is_some_and(|dpu| condition(&dpu, "Parked") == "True")
}

/// The states in which a run is compared with the reference.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    pub states: Vec<(&'static str, BTreeMap<String, Value>)>,
    pub power: Vec<planner::host::PowerAction>,
}

/// All of it. With a DPU that shares its host's power, which is off before and after.
pub async fn whole(s: &Simulation) -> Result<Record, String> {
    let mut record = Record::default();
    let shares_power = s.scene.hosts[0].power_domain == PowerDomain::Host;
    if shares_power {
        park(s).await?;
    }
    create(s, "bm-01", 7).await?;
    record.states.push(("created", settled(s).await));
    plug(s, "bm-01").await?;
    record.states.push(("plugged", settled(s).await));
    expand(s, "bm-01").await?;
    unplug(s, "bm-01").await?;
    record.states.push(("unplugged", settled(s).await));
    stop(s, "bm-01").await?;
    if shares_power {
        s.until("the DPU is parked again", is_parked).await?;
    }
    record.states.push(("stopped", settled(s).await));
    start(s, "bm-01").await?;
    record.states.push(("started", settled(s).await));
    delete(s, "bm-01").await?;
    record.states.push(("deleted", settled(s).await));
    record.power = s.scene.hosts.iter().flat_map(|host| host.actions()).collect();
    Ok(record)
}

/// What still comes is awaited: processes that were away are back, statuses are written. For so long that a controller that has
/// just died is back, leads (15 s) and has found out who is silent (5 s).
pub async fn settled(s: &Simulation) -> BTreeMap<String, Value> {
    let mut before = s.state();
    for _ in 0..6 {
        tokio::time::sleep(std::time::Duration::from_secs(25)).await;
        let now = s.state();
        if now == before {
            break;
        }
        before = now;
    }
    before
}

/// [`difference`] of the end alone: for faults that last, and show in between.
pub fn difference_at_end(reference: &Record, run: &Record) -> Option<String> {
    let last =
        |record: &Record| Record { states: record.states.last().cloned().into_iter().collect(), ..record.clone() };
    difference(&last(reference), &last(run))
}

/// The first difference, in words; `None`: equal.
pub fn difference(reference: &Record, run: &Record) -> Option<String> {
    for ((stage, expected), (_, found)) in reference.states.iter().zip(&run.states) {
        let keys: std::collections::BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
        for key in keys {
            let (expected, found) = (expected.get(key), found.get(key));
            if expected != found {
                let word = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
                return Some(format!("{stage}: {key}\n  expected {}\n  found    {}", word(expected), word(found)));
            }
        }
    }
    (run.power.len() > reference.power.len())
        .then(|| format!("power actions: expected {:?}, found {:?}", reference.power, run.power))
}
