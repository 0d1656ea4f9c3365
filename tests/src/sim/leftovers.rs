//! A machine is gone, and something of it is there.

use super::life;
use super::simulation::{INVENTORY, Simulation, USER};
use planner::host::PowerState;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const MACHINES: &str = "metalplane.io/baremetalmachines";
const HARDWARE: &str = "tinkerbell.org/hardware";

/// What a request that comes too late may make: all that was made for a machine, once more, when that is gone.
pub async fn made_too_late(s: &Simulation) -> Result<(), String> {
    const KINDS: [&str; 5] = [
        "metalplane.io/diskattachments",
        "metalplane.io/nicattachments",
        "metalplane.io/vnics",
        "metalplane.io/volumeholds",
        "storage.k8s.io/volumeattachments",
    ];
    life::create(s, "bm-01", 7).await?;
    let made: Vec<(&str, Value)> = KINDS
        .iter()
        .flat_map(|kind| s.scene.server.list(kind).into_iter().map(|o| (*kind, Value::clone(&o))))
        .collect();
    let server = s.scene.hosts[0].name.clone();
    let hardware = s.scene.server.get(HARDWARE, INVENTORY, &server).unwrap_or_default();
    life::delete(s, "bm-01").await?;
    for kind in KINDS {
        let all = made.iter().filter(|(of, _)| *of == kind);
        if all.clone().count() == 0 {
            return Err(format!("none of {kind} was made"));
        }
        for (_, object) in all {
            let mut object = object.clone();
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let meta = object["metadata"].as_object_mut().expect("an object");
            meta.retain(|key, _| ["name", "namespace", "labels", "annotations", "finalizers"].contains(&key.as_str()));
            s.create(kind, &namespace, object);
        }
    }
    s.change(HARDWARE, INVENTORY, &server, |there| {
        there["metadata"]["annotations"] = hardware["metadata"]["annotations"].clone();
    });
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
