//! A machine is gone, and something of it is there.

use super::simulation::{INVENTORY, Simulation, USER};
use super::{life, lives};
use api::labels;
use planner::host::PowerState;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const MACHINES: &str = "metalplane.io/baremetalmachines";
const HARDWARE: &str = "tinkerbell.org/hardware";
const CLAIMS: &str = "persistentvolumeclaims";
const VOLUME_ATTACHMENTS: &str = "storage.k8s.io/volumeattachments";

/// What a request that comes too late may make: all that was made for a machine, once more, when that is gone.
pub async fn made_too_late(s: &Simulation) -> Result<(), String> {
    const KINDS: [&str; 5] = [
        "metalplane.io/diskattachments",
        "metalplane.io/nicattachments",
        "metalplane.io/vnics",
        "metalplane.io/volumeholds",
        VOLUME_ATTACHMENTS,
    ];
    life::create(s, "bm-01", 7).await?;
    let made = all_of(s, &KINDS)?;
    let server = s.scene.hosts[0].name.clone();
    let hardware = s.scene.server.get(HARDWARE, INVENTORY, &server).unwrap_or_default();
    life::delete(s, "bm-01").await?;
    make_again(s, &made);
    s.change(HARDWARE, INVENTORY, &server, |there| {
        there["metadata"]["annotations"] = hardware["metadata"]["annotations"].clone();
    });
    s.until("it is given back all the same", life::is_clean).await
}

/// Objects of these kinds, at least one of each.
fn all_of(s: &Simulation, kinds: &[&'static str]) -> Result<Vec<(&'static str, Value)>, String> {
    let mut made = Vec::new();
    for kind in kinds {
        let there = s.scene.server.list(kind);
        if there.is_empty() {
            return Err(format!("none of {kind} was made"));
        }
        made.extend(there.iter().map(|object| (*kind, Value::clone(object))));
    }
    Ok(made)
}

fn make_again(s: &Simulation, made: &[(&'static str, Value)]) {
    for (kind, object) in made {
        let mut object = object.clone();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let meta = object["metadata"].as_object_mut().expect("an object");
        meta.retain(|key, _| ["name", "namespace", "labels", "annotations", "finalizers"].contains(&key.as_str()));
        s.create(kind, &namespace, object);
    }
}

/// A user's claim, and the protection of it that a request which comes too late makes for a machine that is gone.
pub async fn protected_too_late(s: &Simulation) -> Result<(), String> {
    life::create(s, "bm-01", 7).await?;
    let machine = s.machine("bm-01").ok_or("no machine")?["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    life::delete(s, "bm-01").await?;
    let mark = format!("{}{machine}", labels::IN_USE_BY);
    let meta = json!({"name": "own", "annotations": {mark: ""}, "finalizers": [labels::FINALIZER_IN_USE]});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Gi"}}});
    s.create(
        CLAIMS,
        USER,
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}),
    );
    s.until("the claim is free", |s| {
        s.scene.server.get(CLAIMS, USER, "own").is_some_and(|claim| {
            let marks = claim["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            let kept = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            !marks.keys().any(|key| key.starts_with(labels::IN_USE_BY))
                && !kept.contains(&json!(labels::FINALIZER_IN_USE))
        })
    })
    .await?;
    s.delete(CLAIMS, USER, "own");
    s.until("nothing is left", life::is_clean).await
}

/// What was lent for an import, once more: while the image is there, and when it is gone.
pub async fn image_made_too_late(s: &Simulation) -> Result<(), String> {
    const LENT: [&str; 2] = ["metalplane.io/diskattachments", VOLUME_ATTACHMENTS];
    lives::create_image(s);
    s.until("the import is under way", |s| !s.scene.server.list(VOLUME_ATTACHMENTS).is_empty()).await?;
    let made = all_of(s, &[LENT[0], LENT[1], "metalplane.io/volumeholds"])?;
    lives::image_is_ready(s).await?;
    for late in LENT {
        make_again(s, &made.iter().filter(|(kind, _)| *kind == late).cloned().collect::<Vec<_>>());
        s.until("it is given back", |s| LENT.iter().all(|kind| s.scene.server.list(kind).is_empty())).await?;
    }
    lives::delete_image(s).await?;
    make_again(s, &made);
    s.until("it is given back all the same", life::is_clean).await
}

/// A machine's finalizer is taken away by force, under a running host: nothing is taken from that, until somebody switches it off.
pub async fn let_go_by_force(s: &Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    life::create(s, "bm-01", 7).await?;
    let (shown, sent) = (host.dpu().disks().len(), host.actions().len());
    s.change(MACHINES, USER, "bm-01", |machine| machine["metadata"]["finalizers"] = json!([]));
    s.delete(MACHINES, USER, "bm-01");
    s.until("the machine is gone", |s| s.machine("bm-01").is_none()).await?;
    tokio::time::sleep(Duration::from_secs(600)).await;
    if host.dpu().disks().len() != shown || host.actions().len() != sent || host.power() != PowerState::On {
        return Err(format!("a host that runs was touched: {:?}, {:?}", host.power(), host.actions()));
    }
    let told = |event: &Arc<Value>| event["reason"] == "HostLeftOn" && event["regarding"]["name"] == json!(host.name);
    if !s.scene.server.list("events.k8s.io/events").iter().any(told) {
        let all = s.scene.server.list("events.k8s.io/events");
        return Err(format!(
            "nobody is told: {:?}",
            all.iter().map(|e| (&e["reason"], &e["regarding"])).collect::<Vec<_>>()
        ));
    }
    // Not even if its Hardware goes, too.
    let hardware = Value::clone(&s.scene.server.get(HARDWARE, INVENTORY, &host.name).unwrap_or_default());
    s.delete(HARDWARE, INVENTORY, &host.name);
    tokio::time::sleep(Duration::from_secs(60)).await;
    if host.dpu().disks().len() != shown {
        return Err("a disk was taken from a host of which nobody knows".to_owned());
    }
    let mut again = json!({"apiVersion": hardware["apiVersion"], "kind": hardware["kind"], "spec": hardware["spec"]});
    again["metadata"] = json!({"name": host.name, "annotations": hardware["metadata"]["annotations"]});
    again["metadata"]["labels"] = hardware["metadata"].get("labels").cloned().unwrap_or_else(|| json!({}));
    s.create(HARDWARE, INVENTORY, again);
    host.goes_off();
    s.until("its disks are given back", |s| {
        s.scene.server.list("metalplane.io/diskattachments").is_empty() && host.dpu().disks().is_empty()
    })
    .await?;
    // Nobody knows any more whether it was to be deleted.
    s.delete("persistentvolumeclaims", USER, "bm-01-root");
    s.until("nothing is left", life::is_clean).await
}
