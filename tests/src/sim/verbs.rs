//! What is done to a whole machine: snapshots, restores, migrations.

use super::groups::{CLASSES, CONTENTS, GROUPS};
use super::host::DRIVER;
use super::life::{self, runs};
use super::simulation::{Simulation, USER};
use serde_json::{Value, json};
use std::time::Duration;

const MACHINES: &str = "metalplane.io/baremetalmachines";
const SNAPSHOTS: &str = "metalplane.io/machinesnapshots";
const DPUS: &str = "metalplane.io/dpus";
const MIGRATIONS: &str = "metalplane.io/machinemigrations";
const RESTORES: &str = "metalplane.io/machinerestores";
const VOLUME_SNAPSHOTS: &str = "snapshot.storage.k8s.io/volumesnapshots";

fn operation(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

pub fn phase(s: &Simulation, resource: &str, name: &str) -> String {
    let object = s.scene.server.get(resource, USER, name).unwrap_or_default();
    object["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

fn reason(s: &Simulation, resource: &str, name: &str) -> String {
    let object = s.scene.server.get(resource, USER, name).unwrap_or_default();
    object["status"]["conditions"][0]["reason"].as_str().unwrap_or_default().to_owned()
}

fn is_free(s: &Simulation, name: &str) -> bool {
    s.machine(name).is_some_and(|machine| machine["metadata"]["annotations"][api::labels::OPERATION].is_null())
}

/// A machine with two disks that runs.
pub async fn two_disks(s: &Simulation, name: &str) -> Result<(), String> {
    let mut machine = life::machine(name, 7);
    let data = json!({"name": "data", "bus": "VirtioBlk", "size": "1Gi", "source": {"blank": {}}});
    machine["spec"]["disks"].as_array_mut().expect("a list").push(data);
    s.create(MACHINES, USER, machine);
    s.until("the machine runs", |s| runs(s, name)).await
}

/// Both disks are cut while the machine is off, though it is asked to start meanwhile; then it starts.
pub async fn snapshot(s: &Simulation, machine: &str, name: &str) -> Result<(), String> {
    s.create(SNAPSHOTS, USER, operation("MachineSnapshot", name, &json!({"machineName": machine})));
    s.until("a running machine with two disks is not cut", |s| reason(s, SNAPSHOTS, name) == "SeveralDisksRun").await?;
    life::stop(s, machine).await?;
    life::start(s, machine).await?;
    s.until("the snapshot waits for the next stop, or is taken", |s| {
        let (phase, reason) = (phase(s, SNAPSHOTS, name), reason(s, SNAPSHOTS, name));
        phase == "Succeeded" || reason == "SeveralDisksRun"
    })
    .await?;
    life::stop(s, machine).await?;
    s.until("the snapshot is taken", |s| phase(s, SNAPSHOTS, name) == "Succeeded" && is_free(s, machine)).await
}

/// Both disks are taken while the machine runs, once there is a VolumeGroupSnapshotClass of its storage.
pub async fn snapshot_running(s: &Simulation, machine: &str, name: &str) -> Result<(), String> {
    s.create(SNAPSHOTS, USER, operation("MachineSnapshot", name, &json!({"machineName": machine})));
    s.until("no class of the storage's is there yet", |s| reason(s, SNAPSHOTS, name) == "SeveralDisksRun").await?;
    let class = json!({"apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshotClass",
        "metadata": {"name": "together", "annotations": {"groupsnapshot.storage.kubernetes.io/is-default-class": "true"}},
        "driver": DRIVER, "deletionPolicy": "Delete"});
    s.create(CLASSES, "", class);
    s.until("the snapshot is taken", |s| {
        phase(s, SNAPSHOTS, name) == "Succeeded" && is_free(s, machine) && !is_any_claim_labelled(s)
    })
    .await?;
    let status = s.scene.server.get(SNAPSHOTS, USER, name).unwrap_or_default()["status"].clone();
    let disks = status["disks"].as_array().cloned().unwrap_or_default();
    let moment = |disk: &Value| {
        let snapshot = disk["volumeSnapshotName"].as_str().unwrap_or_default();
        s.scene.server.get(VOLUME_SNAPSHOTS, USER, snapshot).unwrap_or_default()["status"]["creationTime"].clone()
    };
    let moments: Vec<Value> = disks.iter().map(moment).collect();
    let at_once = moments.len() == 2 && moments[0].is_string() && moments[0] == moments[1];
    match at_once && runs(s, machine) && status["machineWasOff"] == false && status["consistency"] == "Machine" {
        true => Ok(()),
        false => Err(format!("taken at {moments:?}: {status}")),
    }
}

/// Asked for and taken back at once, however far it is.
pub async fn snapshot_taken_back(s: &Simulation, machine: &str, name: &str, after: Duration) -> Result<(), String> {
    s.create(SNAPSHOTS, USER, operation("MachineSnapshot", name, &json!({"machineName": machine})));
    tokio::time::sleep(after).await;
    delete_snapshot(s, name).await?;
    s.until("the machine is free and runs", |s| is_free(s, machine) && runs(s, machine) && !is_any_claim_labelled(s))
        .await
}

fn is_any_claim_labelled(s: &Simulation) -> bool {
    let claims = s.scene.server.list("persistentvolumeclaims");
    claims.iter().any(|claim| !claim["metadata"]["labels"][api::labels::GROUP_SNAPSHOT].is_null())
}

/// Of a machine that is off.
pub async fn snapshot_stopped(s: &Simulation, machine: &str, name: &str) -> Result<(), String> {
    s.create(SNAPSHOTS, USER, operation("MachineSnapshot", name, &json!({"machineName": machine})));
    s.until("the snapshot is taken", |s| phase(s, SNAPSHOTS, name) == "Succeeded" && is_free(s, machine)).await
}

/// The snapshot goes, and what it holds.
pub async fn delete_snapshot(s: &Simulation, name: &str) -> Result<(), String> {
    s.delete(SNAPSHOTS, USER, name);
    s.until("only the golden snapshot is left", |s| {
        let none = |resource| s.scene.server.list(resource).is_empty();
        let golden = s.scene.server.list(VOLUME_SNAPSHOTS).len() == 1;
        golden && none(SNAPSHOTS) && none(GROUPS) && none(CONTENTS)
    })
    .await
}

/// The machine's claims now, by disk.
fn claims(s: &Simulation, machine: &str) -> Vec<String> {
    let machine = s.machine(machine).unwrap_or_default();
    let rows = machine["status"]["disks"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row["claimName"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A stopped machine is put back; the user is impatient and asks for the start at once.
pub async fn restore(s: &Simulation, machine: &str, snapshot: &str, name: &str) -> Result<(), String> {
    let before = claims(s, machine);
    let spec = json!({"machineName": machine, "snapshotName": snapshot});
    s.create(RESTORES, USER, operation("MachineRestore", name, &spec));
    s.until("the restore has the machine", |s| {
        let status = s.scene.server.get(RESTORES, USER, name).unwrap_or_default()["status"].clone();
        status["disks"].as_array().is_some_and(|disks| !disks.is_empty())
    })
    .await?;
    life::start(s, machine).await?;
    s.until("the restore is done", |s| phase(s, RESTORES, name) == "Succeeded" && is_free(s, machine)).await?;
    s.until("the old claims are gone, and their volumes", |s| {
        let there = |claim: &String| s.scene.server.get("persistentvolumeclaims", USER, claim).is_some();
        !before.iter().any(there) && s.scene.server.list("persistentvolumes").len() == before.len()
    })
    .await?;
    let now = claims(s, machine);
    match now.iter().any(|claim| before.contains(claim)) {
        true => Err(format!("the claims are {now:?}, before {before:?}")),
        false => Ok(()),
    }
}

pub async fn delete_restore(s: &Simulation, name: &str) -> Result<(), String> {
    s.delete(RESTORES, USER, name);
    s.until("the restore is gone", |s| s.scene.server.list(RESTORES).is_empty()).await
}

/// Where the machine is, and what it has there: to be the same on the other server.
fn identity(s: &Simulation, machine: &str) -> (String, Value) {
    let machine = s.machine(machine).unwrap_or_default();
    let of = |list: &str, key: &str| -> Vec<Value> {
        let rows = machine["status"][list].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row[key].clone()).collect()
    };
    // The boot disk's serial number is its DPU's, by which the firmware's boot option is found.
    let boots = |disk: &Value| disk["bootOrder"] == 1;
    let boot_disk = machine["spec"]["disks"].as_array().into_iter().flatten().find(|disk| boots(disk));
    let boot_disk = boot_disk.map_or(Value::Null, |disk| disk["name"].clone());
    let disks = machine["status"]["disks"].as_array().into_iter().flatten();
    let serials: Vec<Value> =
        disks.filter(|disk| disk["name"] != boot_disk).map(|disk| disk["serial"].clone()).collect();
    let own = json!([
        of("disks", "claimName"),
        serials,
        of("disks", "wwid"),
        of("interfaces", "macAddress"),
        of("addresses", "address")
    ]);
    (machine["status"]["hardwareName"].as_str().unwrap_or_default().to_owned(), own)
}

/// To the other of two servers; nothing of the machine is left on the first.
pub async fn migrate(s: &Simulation, machine: &str, name: &str) -> Result<(), String> {
    let (from, own) = identity(s, machine);
    s.create(MIGRATIONS, USER, operation("MachineMigration", name, &json!({"machineName": machine})));
    s.until("the machine has moved and runs", |s| {
        phase(s, MIGRATIONS, name) == "Succeeded" && is_free(s, machine) && runs(s, machine)
    })
    .await?;
    let (to, now) = identity(s, machine);
    if to == from || now != own {
        return Err(format!("moved from {from} to {to}, with {now} for {own}"));
    }
    let left = s.scene.hosts.iter().find(|host| host.name == from).map(|host| host.dpu().exposures().len());
    let claim = s.scene.server.get("tinkerbell.org/hardware", super::simulation::INVENTORY, &from).unwrap_or_default();
    match (left, life::is_unclaimed(&claim)) {
        (Some(0), true) => Ok(()),
        (left, _) => Err(format!("on {from} are left {left:?} functions and {}", claim["metadata"])),
    }
}

/// The DPU under the machine is drained: it moves by itself. Its server comes back, the other one is drained, and it comes
/// back; then both are, and it runs on until it may stay.
pub async fn drained(s: &Simulation, machine: &str) -> Result<(), String> {
    s.change(MACHINES, USER, machine, |machine| machine["spec"]["maintenancePolicy"] = json!("ColdMigrate"));
    for _ in 0..2 {
        let (from, own) = identity(s, machine);
        let dpu = maintain(s, &from, "Drain");
        s.until("the machine has moved off the drained DPU and runs", |s| {
            let (to, now) = identity(s, machine);
            to != from && now == own && is_free(s, machine) && runs(s, machine) && open_migrations(s).is_empty()
        })
        .await?;
        s.change(DPUS, "", &dpu, |dpu| dpu["spec"]["maintenance"] = json!("None"));
    }
    let (here, _) = identity(s, machine);
    let other = s.scene.hosts.iter().find(|host| host.name != here).map(|host| host.name.clone()).unwrap_or_default();
    maintain(s, &other, "Drain");
    maintain(s, &here, "Drain");
    s.until("the migration says that no server is free, and the machine runs on", |s| {
        let says = |name: &String| reason(s, MIGRATIONS, name) == "NoFreeHardware";
        open_migrations(s).iter().any(says) && runs(s, machine)
    })
    .await?;
    maintain(s, &here, "None");
    s.until("nothing is to move it any more", |s| open_migrations(s).is_empty()).await?;
    maintain(s, &other, "None");
    // A dead controller's write may still come, and is put right.
    s.until("the machine runs on", |s| runs(s, machine) && is_free(s, machine) && open_migrations(s).is_empty())
        .await?;
    match identity(s, machine).0 == here {
        true => Ok(()),
        false => Err("it moved, though it may stay".to_owned()),
    }
}

/// The DPU in that server, told so.
fn maintain(s: &Simulation, hardware: &str, maintenance: &str) -> String {
    let host = s.scene.hosts.iter().find(|host| host.name == hardware).expect("racked");
    s.change(DPUS, "", &host.dpu_name, |dpu| dpu["spec"]["maintenance"] = json!(maintenance));
    host.dpu_name.clone()
}

fn open_migrations(s: &Simulation) -> Vec<String> {
    let open = |m: &Value| !["Succeeded", "Failed"].contains(&m["status"]["phase"].as_str().unwrap_or_default());
    let all = s.scene.server.list(MIGRATIONS);
    all.iter().filter(|m| open(m)).map(|m| m["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Asked for and taken back at once, whenever that is: the machine runs on one of the two.
pub async fn change_of_mind(s: &Simulation, machine: &str, name: &str) -> Result<(), String> {
    s.create(MIGRATIONS, USER, operation("MachineMigration", name, &json!({"machineName": machine})));
    s.until("the machine migrates", |s| {
        s.machine(machine).is_some_and(|machine| machine["status"]["state"] == "Migrating")
    })
    .await?;
    s.delete(MIGRATIONS, USER, name);
    s.until("the migration is gone", |s| s.scene.server.get(MIGRATIONS, USER, name).is_none()).await?;
    s.until("the machine runs", |s| runs(s, machine) && is_free(s, machine)).await
}

pub async fn delete_migrations(s: &Simulation) -> Result<(), String> {
    for migration in s.scene.server.list(MIGRATIONS) {
        s.delete(MIGRATIONS, USER, migration["metadata"]["name"].as_str().unwrap_or_default());
    }
    s.until("the migrations are gone", |s| s.scene.server.list(MIGRATIONS).is_empty()).await
}
