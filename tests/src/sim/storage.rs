//! The storage system with its sidecars: binds claims, clones snapshots, expands, takes over another class, makes snapshots ready, and deletes a
//! volume once its claim is gone and no VolumeAttachment names it (as external-provisioner does).

use super::api::path::Id;
use super::api::store::Part;
use super::csi::Manners;
use super::groups;
use super::host::{DRIVER, FOREIGN};
use super::scene::Scene;
use api::quantity::{bytes, quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use ports::emulation::Backend;
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const TAKES: Duration = Duration::from_millis(150);
/// Between two answers to one question.
const TWICE: Duration = Duration::from_secs(3);

/// For ever.
pub async fn run(scene: Arc<Scene>) {
    loop {
        let turn = scene.server.changed.turn();
        work(&scene);
        scene.server.changed.changed(turn).await;
        tokio::time::sleep(TAKES).await;
    }
}

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn size(object: &Value, pointer: &str) -> u64 {
    bytes(&Quantity(text(object, pointer).to_owned())).unwrap_or_default()
}

fn id(resource: &str, object: &Value) -> Id {
    Id::new(resource, text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// Written over whatever version is there.
pub(super) fn change(scene: &Scene, id: &Id, change: impl FnOnce(&mut Value)) {
    scene.server.write(|store| {
        let mut object = Value::clone(&*store.get(id).expect("it was listed"));
        change(&mut object);
        store.update(id, Part::Main, object).expect("the version is right");
    });
}

fn work(scene: &Arc<Scene>) {
    groups::work(scene);
    let claims = scene.server.list("persistentvolumeclaims");
    for claim in &claims {
        if text(claim, "/spec/volumeName").is_empty() {
            let wanted = claim.pointer("/metadata/deletionTimestamp").is_none() && source_is_ready(scene, claim);
            if wanted && has_its_node(scene, claim) {
                bind(scene, claim);
            }
        } else if size(claim, "/spec/resources/requests/storage") > stored(scene, claim) {
            expand(scene, claim);
        } else {
            modify(scene, claim);
        }
    }
    for volume in scene.server.list("persistentvolumes") {
        let owner = text(&volume, "/spec/claimRef/uid");
        if !owner.is_empty() && !claims.iter().any(|claim| text(claim, "/metadata/uid") == owner) {
            delete(scene, &volume);
        }
    }
    for snapshot in scene.server.list("snapshot.storage.k8s.io/volumesnapshots") {
        if snapshot.pointer("/status/readyToUse") != Some(&json!(true)) {
            ready(scene, &snapshot);
        }
    }
}

/// What the storage has, whatever the claim says.
fn stored(scene: &Scene, claim: &Value) -> u64 {
    let blocks = scene.blocks(&path(text(claim, "/spec/volumeName")));
    std::fs::metadata(blocks).map(|meta| meta.len()).unwrap_or_default()
}

fn source_is_ready(scene: &Scene, claim: &Value) -> bool {
    let name = text(claim, "/spec/dataSourceRef/name");
    let namespace = text(claim, "/metadata/namespace");
    let snapshot = scene.server.get("snapshot.storage.k8s.io/volumesnapshots", namespace, name);
    name.is_empty() || snapshot.is_some_and(|s| s.pointer("/status/readyToUse") == Some(&json!(true)))
}

/// A claim of a late class is bound for the node of its consumer. The first node that is selected is taken away again, as
/// external-provisioner does where it finds no room.
fn has_its_node(scene: &Scene, claim: &Value) -> bool {
    let class = scene.server.get("storage.k8s.io/storageclasses", "", text(claim, "/spec/storageClassName"));
    if class.is_none_or(|class| text(&class, "/volumeBindingMode") != "WaitForFirstConsumer") {
        return true;
    }
    let annotation = claim.pointer("/metadata/annotations").and_then(|all| all.get(api::labels::SELECTED_NODE));
    let Some(node) = annotation.and_then(Value::as_str) else { return false };
    if !scene.hosts.iter().any(|host| host.dpu_name == node) {
        scene.violated(format!("the volume of {} is wanted on '{node}', which is no DPU", claim["metadata"]["name"]));
    }
    if !scene.refuses_node(text(claim, "/metadata/uid")) {
        return true;
    }
    let claim_id = id("persistentvolumeclaims", claim);
    scene.server.write(|store| {
        let mut without = Value::clone(claim);
        without["metadata"]["resourceVersion"] = json!("");
        let annotations = without["metadata"]["annotations"].as_object_mut().expect("it has one");
        annotations.remove(api::labels::SELECTED_NODE);
        store.update(&claim_id, Part::Main, without).expect("it was listed");
    });
    false
}

pub fn path(volume: &str) -> PathBuf {
    PathBuf::from(format!("/memory/{volume}"))
}

fn resize(scene: &Scene, handle: &Path, size_bytes: u64) {
    scene.storage.resize(&Backend::Path(handle.to_owned()), size_bytes);
    let file = File::options().write(true).create(true).truncate(false).open(scene.blocks(handle));
    file.and_then(|file| file.set_len(size_bytes)).expect("the simulation's folder is writable");
}

fn bind(scene: &Scene, claim: &Value) {
    let uid = text(claim, "/metadata/uid");
    let name = format!("pvc-{uid}");
    let asked = size(claim, "/spec/resources/requests/storage");
    resize(scene, &path(&name), asked);
    let capacity = json!({"storage": quantity(asked)});
    let driver = if text(claim, "/spec/storageClassName") == "foreign" { FOREIGN } else { DRIVER };
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": capacity,
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Block",
            "csi": {"driver": driver, "volumeHandle": path(&name)},
            "claimRef": {"namespace": text(claim, "/metadata/namespace"), "name": text(claim, "/metadata/name"), "uid": uid},
        },
    });
    let claim_id = id("persistentvolumeclaims", claim);
    scene.server.write(|store| {
        store.create(&Id::new("persistentvolumes", "", &name), volume).expect("its name is new");
        let mut bound = Value::clone(&*store.get(&claim_id).expect("it was listed"));
        bound["spec"]["volumeName"] = json!(name);
        let mut bound = Value::clone(&*store.update(&claim_id, Part::Main, bound).expect("the version is right"));
        bound["status"] = json!({"phase": "Bound", "capacity": capacity, "accessModes": ["ReadWriteOnce"]});
        store.update(&claim_id, Part::Status, bound).expect("the version is right");
    });
}

fn expand(scene: &Arc<Scene>, claim: &Value) {
    let volume = text(claim, "/spec/volumeName");
    let asked = size(claim, "/spec/resources/requests/storage");
    resize(scene, &path(volume), asked);
    let mut grown = Value::clone(claim);
    grown["metadata"]["resourceVersion"] = json!("");
    grown["status"]["capacity"]["storage"] = json!(quantity(asked));
    let claim_id = id("persistentvolumeclaims", claim);
    let tell = |scene: &Scene, claim_id: &Id, said: Value| {
        // Deleted meanwhile: then there is nothing to say.
        let _ = scene.server.write(|store| store.update(claim_id, Part::Status, said));
    };
    tell(scene, &claim_id, grown.clone());
    if scene.driver.manners() == Manners::Twice {
        // An answer from before comes late, and then the right one once more.
        let mut before = Value::clone(claim);
        before["metadata"]["resourceVersion"] = json!("");
        let scene = scene.clone();
        tokio::spawn(async move {
            for said in [before, grown] {
                tokio::time::sleep(TWICE).await;
                tell(&scene, &claim_id, said);
            }
        });
    }
}

/// A class that is there is taken over, as external-resizer does once the driver has.
fn modify(scene: &Scene, claim: &Value) {
    let class = text(claim, "/spec/volumeAttributesClassName");
    let there = || scene.server.get("storage.k8s.io/volumeattributesclasses", "", class).is_some();
    if class.is_empty() || class == text(claim, "/status/currentVolumeAttributesClassName") || !there() {
        return;
    }
    let mut modified = Value::clone(claim);
    modified["metadata"]["resourceVersion"] = json!("");
    modified["status"]["currentVolumeAttributesClassName"] = json!(class);
    // Deleted meanwhile: then there is nothing to say.
    let _ = scene.server.write(|store| store.update(&id("persistentvolumeclaims", claim), Part::Status, modified));
}

fn delete(scene: &Scene, volume: &Value) {
    let name = text(volume, "/metadata/name");
    let attached = scene.server.list("storage.k8s.io/volumeattachments");
    if attached.iter().any(|va| text(va, "/spec/source/persistentVolumeName") == name) {
        return;
    }
    scene.before_volume_deleted(&path(name));
    std::fs::remove_file(scene.blocks(&path(name))).expect("it was made when the claim was bound");
    scene
        .server
        .write(|store| store.delete(&Id::new("persistentvolumes", "", name), &Value::Null).expect("it was listed"));
}

fn ready(scene: &Scene, snapshot: &Value) {
    let given = text(snapshot, "/spec/source/volumeSnapshotContentName").to_owned();
    let made = format!("snapcontent-{}", text(snapshot, "/metadata/uid"));
    let content = if given.is_empty() { made } else { given };
    let snapshot_id = id("snapshot.storage.k8s.io/volumesnapshots", snapshot);
    scene.before_cut(snapshot);
    let mut done = Value::clone(snapshot);
    done["status"] = json!({
        "boundVolumeSnapshotContentName": content,
        "creationTime": runtime::clock::now().to_string(),
        "readyToUse": true,
        "restoreSize": "4Gi",
    });
    scene.server.write(|store| store.update(&snapshot_id, Part::Main, done).expect("it was listed"));
}
