//! What others than one machine go through: an image, a Dpu, two machines with one disk.

use super::host::serial_number;
use super::life::{MACHINES, Record, condition, create, delete, is_clean, machine, plug, runs, settled};
use super::simulation::{Simulation, USER};
use super::web::golden;
use serde_json::json;

const IMAGES: &str = "metalplane.io/machineimages";
const DPUS: &str = "metalplane.io/dpus";

/// An image is imported from the web by an agent, and deleted.
pub async fn import(s: &Simulation) -> Result<Record, String> {
    let mut record = Record::default();
    let http = json!({"url": golden().url, "checksum": golden().checksum});
    s.create(
        IMAGES,
        USER,
        json!({
            "apiVersion": "metalplane.io/v1alpha1", "kind": "MachineImage", "metadata": {"name": "imported"},
            "spec": {"source": {"http": http}, "size": "4Mi", "storageClassName": "fast"},
        }),
    );
    s.until("the image is ready", |s| {
        s.scene.server.get(IMAGES, USER, "imported").is_some_and(|image| condition(&image, "Ready") == "True")
    })
    .await?;
    let volume = s.scene.server.list("persistentvolumes").into_iter().next().ok_or("the image has no volume")?;
    let handle = volume["spec"]["csi"]["volumeHandle"].as_str().unwrap_or_default().to_owned();
    let written = std::fs::read(s.scene.blocks(handle.as_ref())).map_err(|error| error.to_string())?;
    let (image, rest) = written.split_at(golden().bytes.len());
    if image != golden().bytes || rest.iter().any(|byte| *byte != 0) {
        return Err("the volume does not hold the image".to_owned());
    }
    record.states.push(("imported", settled(s).await));
    s.delete(IMAGES, USER, "imported");
    s.until("nothing is left", |s| {
        let gone = s.scene.server.get(IMAGES, USER, "imported").is_none();
        gone && is_clean(s) && s.scene.server.list("snapshot.storage.k8s.io/volumesnapshots").len() == 1
    })
    .await?;
    record.states.push(("deleted", settled(s).await));
    Ok(record)
}

/// A Dpu is deleted under a running machine: nothing happens to that. Afterwards the agent registers again.
pub async fn delete_dpu(s: &Simulation) -> Result<(), String> {
    create(s, "bm-01", 7).await?;
    let uid = |s: &Simulation| s.scene.server.get(DPUS, "", "dpu-1").map(|dpu| dpu["metadata"]["uid"].clone());
    let before = uid(s);
    s.delete(DPUS, "", "dpu-1");
    plug(s, "bm-01").await?;
    if uid(s) != before || s.scene.hosts[0].actions().len() != 1 {
        return Err(format!("the Dpu went under its machine: {:?}", s.scene.hosts[0].actions()));
    }
    s.delete(MACHINES, USER, "bm-01");
    s.until("the agent has registered again", |s| uid(s).is_some_and(|now| Some(now) != before)).await?;
    s.until("the machine is gone", |s| s.machine("bm-01").is_none()).await?;
    s.change(DPUS, "", "dpu-1", |dpu| {
        dpu["spec"] = json!({"hardwareRef": {"name": "server-1", "serialNumber": serial_number("server-1")}, "powerDomain": "Standby", "approved": true});
    });
    create(s, "bm-02", 8).await?;
    delete(s, "bm-02").await
}

/// Two machines want one claim. What the second waits for is said; it gets it when the first lets go.
pub async fn hand_over(s: &Simulation, class: &str) -> Result<(), String> {
    s.create(
        "persistentvolumeclaims",
        USER,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}}},
        }),
    );
    let shared = json!({"name": "shared", "source": {"persistentVolumeClaim": {"claimName": "shared"}}});
    for (number, name) in [(1, "bm-01"), (2, "bm-02")] {
        let mut machine = machine(name, number);
        machine["spec"]["hardware"] = json!({"name": format!("server-{number}")});
        machine["spec"]["disks"].as_array_mut().expect("a list").push(shared.clone());
        s.create(MACHINES, USER, machine);
    }
    let holder = |s: &Simulation| ["bm-01", "bm-02"].into_iter().find(|name| runs(s, name));
    s.until("one of them runs", |s| holder(s).is_some()).await?;
    let first = holder(s).unwrap_or_default();
    let second = if first == "bm-01" { "bm-02" } else { "bm-01" };
    s.until("the other waits for the volume", |s| {
        let machine = s.machine(second).unwrap_or_default();
        let all = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|c| c["reason"] == "VolumeHeld" || c["reason"] == "VolumeInUse")
    })
    .await?;
    s.change(MACHINES, USER, first, |machine| {
        machine["spec"]["disks"].as_array_mut().expect("a list").truncate(1);
    });
    s.until("the other has it", |s| runs(s, second) && runs(s, first)).await?;
    let there: Vec<bool> = s.scene.hosts.iter().map(|host| host.dpu().disks().len() == 3).collect();
    if there.iter().filter(|there| **there).count() != 1 {
        return Err(format!("who has the volume: {there:?}"));
    }
    s.delete(MACHINES, USER, "bm-01");
    s.delete(MACHINES, USER, "bm-02");
    s.until("both are gone", |s| s.machine("bm-01").is_none() && s.machine("bm-02").is_none()).await?;
    s.delete("persistentvolumeclaims", USER, "shared");
    s.until("nothing is left", is_clean).await
}
