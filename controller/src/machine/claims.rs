//! Claims: made, expanded, protected, deleted; and snapshots of cluster images in a user's namespace.

use crate::Controller;
use crate::error::{Error, call, found};
use crate::objects;
use crate::snapshots::{
    ContentSource, SnapshotSource, VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotContentSpec, VolumeSnapshotSpec,
};
use api::{VolumeHold, labels};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use planner::machine::observed::label;
use planner::machine::plan::{ImportSnapshot, SelectNode, Target};
use serde_json::json;
use std::sync::Arc;

/// Conditions of a claim that is being expanded.
const GROWING: [&str; 2] = ["Resizing", "FileSystemResizePending"];

/// `owner_label`: which of its labels names whom it is made for.
pub(crate) async fn create(c: &Controller, claim: &PersistentVolumeClaim, owner_label: &str) -> Result<(), Error> {
    let namespace = claim.metadata.namespace.clone().unwrap_or_default();
    let owner = label(&claim.metadata, owner_label).map(str::to_owned);
    let ours = |there: &PersistentVolumeClaim| label(&there.metadata, owner_label) == owner.as_deref();
    objects::create(&c.objects.namespaced(&namespace), &c.world.claims, claim, ours).await.map(drop)
}

pub(super) async fn expand(c: &Controller, target: &Target, size: &Quantity) -> Result<(), Error> {
    let change = json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let api = c.objects.namespaced::<PersistentVolumeClaim>(&target.namespace);
    objects::patch(&api, &c.world.claims, &target.name, &target.uid, None, change).await.map(drop)
}

pub(super) async fn modify(c: &Controller, target: &Target, class: &str) -> Result<(), Error> {
    let change = json!({"spec": {"volumeAttributesClassName": class}});
    let api = c.objects.namespaced::<PersistentVolumeClaim>(&target.namespace);
    let there = objects::patch(&api, &c.world.claims, &target.name, &target.uid, None, change).await?;
    // An API server that does not know the field leaves it out, and would be told for ever.
    match there.spec.and_then(|spec| spec.volume_attributes_class_name).as_deref() == Some(class) {
        true => Ok(()),
        false => Err(Error::Refused {
            what: format!("patch PersistentVolumeClaim '{}'", target.name),
            message: format!("it does not take volumeAttributesClassName '{class}': Kubernetes 1.34 does"),
        }),
    }
}

/// As kube-scheduler does it for a pod. Only while nobody is faster: in the version that was seen.
pub(crate) async fn select_node(c: &Controller, select: &SelectNode) -> Result<(), Error> {
    let claim = seen(c, &select.target)?;
    let annotations = json!({labels::SELECTED_NODE: select.node, labels::NODE_SELECTED_AT: select.at});
    patch(c, &claim, json!({"metadata": {"annotations": annotations}})).await
}

/// As kubelet does when it has grown a volume on its node.
pub(super) async fn complete_expansion(c: &Controller, target: &Target, size: &Quantity) -> Result<(), Error> {
    let claim = seen(c, target)?;
    let conditions = claim.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let left: Vec<_> =
        conditions.into_iter().filter(|condition| !GROWING.contains(&condition.type_.as_str())).collect();
    let change = json!({
        "metadata": {"uid": target.uid, "resourceVersion": claim.metadata.resource_version},
        "status": {
            "capacity": {"storage": size},
            "allocatedResourceStatuses": {"storage": null},
            "conditions": left,
        },
    });
    let what = format!("patch status of PersistentVolumeClaim '{}'", target.name);
    let api = c.objects.namespaced::<PersistentVolumeClaim>(&target.namespace);
    let (params, patch) = (PatchParams::default(), Patch::Merge(&change));
    c.world.claims.put(call(&what, api.patch_status(&target.name, &params, &patch)).await?);
    Ok(())
}

fn seen(c: &Controller, target: &Target) -> Result<Arc<PersistentVolumeClaim>, Error> {
    let what = format!("PersistentVolumeClaim '{}'", target.name);
    let claim = c.world.claims.get(&target.namespace, &target.name);
    claim.filter(|claim| claim.metadata.uid.as_deref() == Some(&target.uid)).ok_or(Error::NotFound { what })
}

/// The mark and the finalizer in one write.
pub(crate) async fn protect(c: &Controller, owner_uid: &str, target: &Target) -> Result<(), Error> {
    let claim = seen(c, target)?;
    let finalizers = objects::finalizers(&claim.metadata, labels::FINALIZER_IN_USE, true);
    let mark = format!("{}{owner_uid}", labels::IN_USE_BY);
    patch(c, &claim, json!({"metadata": {"finalizers": finalizers, "annotations": {mark: ""}}})).await
}

/// Only once the hold, read from quorum, is not this owner's any more, and no attachment of it is there. The finalizer goes
/// with the last mark.
pub(crate) async fn unprotect(
    c: &Controller,
    owner_uid: &str,
    owner_label: &str,
    target: &Target,
    hold: Option<&str>,
) -> Result<(), Error> {
    if let Some(hold) = hold {
        let what = format!("get VolumeHold '{hold}'");
        let there = found(call(&what, c.objects.cluster::<VolumeHold>().get(hold)).await)?;
        let ours = |hold: &VolumeHold| label(&hold.metadata, owner_label) == Some(owner_uid);
        if let Some(there) = there.filter(|hold| hold.spec.holder.is_some() && ours(hold)) {
            c.world.holds.put(there);
            return Err(Error::NotConfirmed { what, message: "it is still held".to_owned() });
        }
    }
    let claim = seen(c, target)?;
    if let Some(volume) = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()) {
        super::disks::confirm_unused(c, owner_label, owner_uid, volume).await?;
    }
    let mark = format!("{}{owner_uid}", labels::IN_USE_BY);
    let marks = claim.metadata.annotations.iter().flatten().filter(|(key, _)| key.starts_with(labels::IN_USE_BY));
    let others = marks.filter(|(key, _)| **key != mark).count() > 0;
    let finalizers = objects::finalizers(&claim.metadata, labels::FINALIZER_IN_USE, others);
    patch(c, &claim, json!({"metadata": {"finalizers": finalizers, "annotations": {mark: null}}})).await
}

async fn patch(c: &Controller, claim: &PersistentVolumeClaim, change: serde_json::Value) -> Result<(), Error> {
    let meta = &claim.metadata;
    let api = c.objects.namespaced(meta.namespace.as_deref().unwrap_or_default());
    let (name, uid) = (meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref().unwrap_or_default());
    objects::patch(&api, &c.world.claims, name, uid, meta.resource_version.as_deref(), change).await.map(drop)
}

pub(crate) async fn delete(c: &Controller, target: &Target) -> Result<(), Error> {
    let claim = match seen(c, target) {
        Ok(claim) => claim,
        Err(Error::NotFound { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let api = c.objects.namespaced(&target.namespace);
    objects::delete(&api, &c.world.claims, &claim.metadata, true).await?;
    c.volumes.forget(&target.uid);
    Ok(())
}

/// A pre-provisioned content with the same handle, kept when the snapshot goes, and the snapshot bound to it.
pub(super) async fn import(c: &Controller, import: &ImportSnapshot) -> Result<(), Error> {
    let content_name = format!("{}-{}", import.name, api::names::short(&import.namespace, 8));
    let own = |namespace: Option<&str>, name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(
            [(labels::MANAGED_BY, labels::MANAGED_BY_VALUE), (labels::IMAGE_UID, import.image_uid.as_str())]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        ),
        ..ObjectMeta::default()
    };
    let content = VolumeSnapshotContent {
        metadata: own(None, &content_name),
        spec: VolumeSnapshotContentSpec {
            deletion_policy: "Retain".to_owned(),
            driver: import.content.driver.clone(),
            source: ContentSource { snapshot_handle: Some(import.content.handle.clone()), volume_handle: None },
            source_volume_mode: Some("Block".to_owned()),
            volume_snapshot_class_name: import.content.class.clone(),
            volume_snapshot_ref: ObjectReference {
                api_version: Some("snapshot.storage.k8s.io/v1".to_owned()),
                kind: Some("VolumeSnapshot".to_owned()),
                name: Some(import.name.clone()),
                namespace: Some(import.namespace.clone()),
                ..ObjectReference::default()
            },
        },
        status: None,
    };
    let ours = |meta: &ObjectMeta| label(meta, labels::IMAGE_UID) == Some(&import.image_uid);
    let contents = crate::cache::Cache::new(|_| Vec::new());
    objects::create(&c.objects.cluster(), &contents, &content, |there: &VolumeSnapshotContent| ours(&there.metadata))
        .await?;
    let snapshot = VolumeSnapshot {
        metadata: own(Some(&import.namespace), &import.name),
        spec: VolumeSnapshotSpec {
            source: SnapshotSource {
                persistent_volume_claim_name: None,
                volume_snapshot_content_name: Some(content_name),
            },
            volume_snapshot_class_name: import.content.class.clone(),
        },
        status: None,
    };
    let api = c.objects.namespaced(&import.namespace);
    objects::create(&api, &c.world.snapshots, &snapshot, |there: &VolumeSnapshot| ours(&there.metadata)).await.map(drop)
}
