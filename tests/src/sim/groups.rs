//! VolumeGroupSnapshots, as the snapshot controller and the CSI driver's sidecar treat them: of which claims it is taken is decided once, by
//! their labels, when the content is made; then it is bound, then all are taken at one moment. Content that was not bound when its
//! VolumeGroupSnapshot was deleted stays, as with the real one.

use super::api::path::Id;
use super::scene::Scene;
use super::storage::{change, text};
use api::labels;
use serde_json::{Value, json};

pub const GROUPS: &str = "groupsnapshot.storage.k8s.io/volumegroupsnapshots";
pub const CONTENTS: &str = "groupsnapshot.storage.k8s.io/volumegroupsnapshotcontents";
pub const CLASSES: &str = "groupsnapshot.storage.k8s.io/volumegroupsnapshotclasses";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io/volumesnapshots";

pub fn work(scene: &Scene) {
    let groups = scene.server.list(GROUPS);
    for group in &groups {
        let name = format!("groupsnapcontent-{}", text(group, "/metadata/uid"));
        match scene.server.get(CONTENTS, "", &name) {
            None if group["status"]["boundVolumeGroupSnapshotContentName"].is_null() => make(scene, group, &name),
            None => {}
            Some(_) if group["status"]["boundVolumeGroupSnapshotContentName"].is_null() => {
                let id = Id::new(GROUPS, text(group, "/metadata/namespace"), text(group, "/metadata/name"));
                change(scene, &id, |group| group["status"] = json!({"boundVolumeGroupSnapshotContentName": name}));
                change(scene, &Id::new(CONTENTS, "", &name), |content| content["status"] = json!({"bound": true}));
            }
            Some(content) => take(scene, group, &content),
        }
    }
    let is_there = |uid: &str| groups.iter().any(|group| text(group, "/metadata/uid") == uid);
    for content in scene.server.list(CONTENTS) {
        if content["status"]["bound"] == true && !is_there(text(&content, "/spec/groupUid")) {
            delete(scene, &Id::new(CONTENTS, "", text(&content, "/metadata/name")));
        }
    }
    for member in scene.server.list(SNAPSHOTS) {
        let owner = text(&member, "/metadata/ownerReferences/0/uid");
        if !owner.is_empty() && !is_there(owner) {
            let (namespace, name) = (text(&member, "/metadata/namespace"), text(&member, "/metadata/name"));
            delete(scene, &Id::new(SNAPSHOTS, namespace, name));
        }
    }
}

fn delete(scene: &Scene, id: &Id) {
    scene.server.write(|store| store.delete(id, &Value::Null).expect("it was listed"));
}

fn make(scene: &Scene, group: &Value, name: &str) {
    let wanted = &group["spec"]["source"]["selector"]["matchLabels"][labels::GROUP_SNAPSHOT];
    let has_label = |claim: &&std::sync::Arc<Value>| claim["metadata"]["labels"][labels::GROUP_SNAPSHOT] == *wanted;
    let claims = scene.server.list("persistentvolumeclaims");
    let found: Vec<&str> = claims.iter().filter(has_label).map(|claim| text(claim, "/metadata/name")).collect();
    if found.is_empty() {
        return;
    }
    let uid = text(group, "/metadata/uid");
    let content = json!({"metadata": {"name": name}, "spec": {"groupUid": uid, "claims": found}});
    scene.server.write(|store| store.create(&Id::new(CONTENTS, "", name), content).expect("its name is new"));
}

fn take(scene: &Scene, group: &Value, content: &Value) {
    let uid = text(group, "/metadata/uid");
    let all = scene.server.list(SNAPSHOTS);
    if all.iter().any(|member| text(member, "/metadata/ownerReferences/0/uid") == uid) {
        return;
    }
    scene.before_group_taken(group, content);
    let (namespace, now) = (text(group, "/metadata/namespace"), runtime::clock::now().to_string());
    let owner = json!({"apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshot",
        "name": text(group, "/metadata/name"), "uid": uid, "controller": true});
    for claim in content["spec"]["claims"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let name = format!("snapshot-{uid}-{claim}");
        let member = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {"source": {"persistentVolumeClaimName": claim}},
            "status": {"boundVolumeSnapshotContentName": format!("snapcontent-{uid}-{claim}"),
                "creationTime": now, "readyToUse": true, "restoreSize": "4Gi"},
        });
        scene
            .server
            .write(|store| store.create(&Id::new(SNAPSHOTS, namespace, &name), member).expect("its name is new"));
    }
}
