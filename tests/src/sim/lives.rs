//! What others than one machine go through: an image, a Dpu, two machines with one disk.

use super::csi::Manners;
use super::host::{FOREIGN, serial_number};
use super::life::{
    MACHINES, Record, condition, create, delete, expand, is_clean, machine, plug, plug_blank, runs, settled, start,
    stop, unplug,
};
use super::simulation::{Simulation, USER};
use super::web::golden;
use serde_json::{Value, json};
use std::time::Duration;

const IMAGES: &str = "metalplane.io/machineimages";
const DPUS: &str = "metalplane.io/dpus";

/// An image from the web.
pub fn create_image(s: &Simulation) {
    let http = json!({"url": golden().url, "checksum": golden().checksum});
    s.create(
        IMAGES,
        USER,
        json!({
            "apiVersion": "metalplane.io/v1alpha1", "kind": "MachineImage", "metadata": {"name": "imported"},
            "spec": {"source": {"http": http}, "size": "4Mi", "storageClassName": "fast"},
        }),
    );
}

pub async fn image_is_ready(s: &Simulation) -> Result<(), String> {
    s.until("the image is ready", |s| {
        s.scene.server.get(IMAGES, USER, "imported").is_some_and(|image| condition(&image, "Ready") == "True")
    })
    .await
}

pub async fn delete_image(s: &Simulation) -> Result<(), String> {
    s.delete(IMAGES, USER, "imported");
    s.until("nothing is left", |s| {
        let gone = s.scene.server.get(IMAGES, USER, "imported").is_none();
        gone && is_clean(s) && s.scene.server.list("snapshot.storage.k8s.io/volumesnapshots").len() == 1
    })
    .await
}

/// An image is imported from the web by an agent, and deleted.
pub async fn import(s: &Simulation) -> Result<Record, String> {
    let mut record = Record::default();
    create_image(s);
    image_is_ready(s).await?;
    let volume = s.scene.server.list("persistentvolumes").into_iter().next().ok_or("the image has no volume")?;
    let handle = volume["spec"]["csi"]["volumeHandle"].as_str().unwrap_or_default().to_owned();
    let written = std::fs::read(s.scene.blocks(handle.as_ref())).map_err(|error| error.to_string())?;
    let (image, rest) = written.split_at(golden().bytes.len());
    if image != golden().bytes || rest.iter().any(|byte| *byte != 0) {
        return Err("the volume does not hold the image".to_owned());
    }
    record.states.push(("imported", settled(s).await));
    delete_image(s).await?;
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

/// A machine whose disks are all of storage that only kubelet can connect, while its driver behaves like this; `said`: a
/// word of kubelet's that has to be told while the machine is made.
pub async fn on_foreign_storage(s: &Simulation, manners: Manners, said: Option<&str>) -> Result<(), String> {
    s.scene.driver.behave(manners);
    let mut machine = machine("bm-01", 7);
    machine["spec"]["disks"][0]["storageClassName"] = json!("foreign");
    s.create(MACHINES, USER, machine);
    if let Some(said) = said {
        s.until("what kubelet says is told", |s| {
            let machine = s.machine("bm-01").unwrap_or_default();
            let all = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let told = |c: &Value| c["message"].as_str().is_some_and(|message| message.contains(said));
            all.iter().any(|c| c["reason"] == "HolderPodStarting" && told(c))
        })
        .await?;
    }
    s.until("the machine runs", |s| runs(s, "bm-01")).await?;
    s.change(MACHINES, USER, "bm-01", |machine| {
        plug_blank(machine);
        machine["spec"]["disks"][1]["storageClassName"] = json!("foreign");
    });
    s.until("the disk is plugged", |s| {
        let machine = s.machine("bm-01").unwrap_or_default();
        let rows = machine["status"]["disks"].as_array().cloned().unwrap_or_default();
        runs(s, "bm-01") && rows.iter().any(|row| row["name"] == "data" && row["phase"] == "Attached")
    })
    .await?;
    if s.scene.server.list("pods").len() != 2 {
        return Err(format!("{} holder pods", s.scene.server.list("pods").len()));
    }
    let actions = s.scene.hosts[0].actions().len();
    expand(s, "bm-01").await?;
    unplug(s, "bm-01").await?;
    if s.scene.hosts[0].actions().len() != actions {
        return Err(format!("power actions for a disk: {:?}", s.scene.hosts[0].actions()));
    }
    stop(s, "bm-01").await?;
    start(s, "bm-01").await?;
    delete(s, "bm-01").await
}

/// A claim on foreign storage, bound.
async fn foreign_claim(s: &Simulation) -> Result<String, String> {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": "foreign",
            "resources": {"requests": {"storage": "1Gi"}}}});
    s.create("persistentvolumeclaims", USER, claim);
    let volume = |s: &Simulation| {
        let claim = s.scene.server.get("persistentvolumeclaims", USER, "shared")?;
        Some(claim["spec"]["volumeName"].as_str()?.to_owned())
    };
    s.until("the claim is bound", |s| volume(s).is_some()).await?;
    Ok(volume(s).unwrap_or_default())
}

/// A volume is attached to a node that is none of ours: before a machine wants it, or once its hold is taken and kubelet is
/// still connecting it. It is waited for by name, for as long as it takes, and nothing is forced.
pub async fn attached_elsewhere(s: &Simulation, after_the_hold: bool) -> Result<(), String> {
    const ATTACHMENTS: &str = "storage.k8s.io/volumeattachments";
    let volume = foreign_claim(s).await?;
    let elsewhere = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "csi-elsewhere"},
        "spec": {"attacher": FOREIGN, "nodeName": "node-9", "source": {"persistentVolumeName": volume}},
    });
    if after_the_hold {
        s.scene.driver.behave(Manners::Slow(Duration::from_secs(60)));
    } else {
        s.create(ATTACHMENTS, "", elsewhere.clone());
    }
    create(s, "bm-01", 7).await?;
    let shared = json!({"name": "shared", "source": {"persistentVolumeClaim": {"claimName": "shared"}}});
    s.change(MACHINES, USER, "bm-01", |machine| machine["spec"]["disks"].as_array_mut().expect("a list").push(shared));
    if after_the_hold {
        s.until("kubelet connects it", |s| !s.scene.server.list("pods").is_empty()).await?;
        s.create(ATTACHMENTS, "", elsewhere);
    }
    s.until("who has it is told", |s| {
        let machine = s.machine("bm-01").unwrap_or_default();
        let all = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let named = |c: &Value| {
            c["message"].as_str().is_some_and(|text| text.contains("csi-elsewhere") && text.contains("node-9"))
        };
        all.iter().any(|c| c["reason"] == "VolumeInUse" && named(c))
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let granted = s
        .scene
        .server
        .list("metalplane.io/diskattachments")
        .into_iter()
        .any(|attachment| attachment["spec"]["diskName"] == "shared" && attachment["spec"].get("grant").is_some());
    if granted || s.scene.server.get(ATTACHMENTS, "", "csi-elsewhere").is_none() {
        return Err(format!("it was taken\n{}", s.story()));
    }
    s.delete(ATTACHMENTS, "", "csi-elsewhere");
    s.until("the machine has it", |s| runs(s, "bm-01") && s.scene.hosts[0].dpu().disks().len() == 3).await?;
    s.delete(MACHINES, USER, "bm-01");
    s.until("the machine is gone", |s| s.machine("bm-01").is_none()).await?;
    s.delete("persistentvolumeclaims", USER, "shared");
    s.until("nothing is left", is_clean).await
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
        let mut machine = machine(name, number + 10);
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
