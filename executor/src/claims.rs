//! Claims: made, expanded, protected, deleted; and snapshots of cluster images in a user's namespace.

use crate::snapshots::{
    ContentSource, SnapshotSource, VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotContentSpec, VolumeSnapshotSpec,
};
use crate::verbs::what;
use crate::writes;
use crate::{Error, Shell, found, get, put, seen};
use api::{VolumeHold, labels};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::late::SelectNode;
use planner::machine::plan::ImportSnapshot;
use planner::meta::{Target, label};
use serde_json::json;

/// Conditions of a claim that is being expanded.
const GROWING: [&str; 2] = ["Resizing", "FileSystemResizePending"];

/// `owner_label`: which of its labels names whom it is made for.
pub async fn create(c: &impl Shell, claim: &PersistentVolumeClaim, owner_label: &str) -> Result<(), Error> {
    let owner = label(&claim.metadata, owner_label).map(str::to_owned);
    let ours = |there: &PersistentVolumeClaim| label(&there.metadata, owner_label) == owner.as_deref();
    writes::create(c, claim, ours).await.map(drop)
}

pub async fn expand(c: &impl Shell, target: &Target, size: &Quantity) -> Result<(), Error> {
    let change = json!({"spec": {"resources": {"requests": {"storage": size}}}});
    writes::patch::<PersistentVolumeClaim>(c, &writes::by_uid(target), change).await.map(drop)
}

pub async fn modify(c: &impl Shell, target: &Target, class: &str) -> Result<(), Error> {
    let change = json!({"spec": {"volumeAttributesClassName": class}});
    let there = writes::patch::<PersistentVolumeClaim>(c, &writes::by_uid(target), change).await?;
    // An API server that does not know the field leaves it out, and would be told for ever.
    match there.spec.and_then(|spec| spec.volume_attributes_class_name).as_deref() == Some(class) {
        true => Ok(()),
        false => Err(Error::Refused {
            what: what::<PersistentVolumeClaim>("patch", &target.name),
            message: format!("it does not take volumeAttributesClassName '{class}': Kubernetes 1.34 does"),
        }),
    }
}

/// As kube-scheduler does it for a pod. Only while nobody is faster: in the version that was seen.
pub async fn select_node(c: &impl Shell, select: &SelectNode) -> Result<(), Error> {
    let claim = seen::<PersistentVolumeClaim>(c, &select.target)?;
    let annotations = json!({labels::SELECTED_NODE: select.node, labels::NODE_SELECTED_AT: select.at});
    patch(c, &claim, json!({"metadata": {"annotations": annotations}})).await
}

/// As kubelet does when it has grown a volume on its node.
pub async fn complete_expansion(c: &impl Shell, target: &Target, size: &Quantity) -> Result<(), Error> {
    let claim = seen::<PersistentVolumeClaim>(c, target)?;
    let conditions = claim.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let left: Vec<_> =
        conditions.into_iter().filter(|condition| !GROWING.contains(&condition.type_.as_str())).collect();
    let status = json!({
        "capacity": {"storage": size},
        "allocatedResourceStatuses": {"storage": null},
        "conditions": left,
    });
    writes::patch_status::<PersistentVolumeClaim>(c, &claim.metadata, status).await.map(drop)
}

/// The mark and the finalizer in one write.
pub async fn protect(c: &impl Shell, owner_uid: &str, target: &Target) -> Result<(), Error> {
    let claim = seen::<PersistentVolumeClaim>(c, target)?;
    let finalizers = writes::finalizers(&claim.metadata, labels::FINALIZER_IN_USE, true);
    let mark = format!("{}{owner_uid}", labels::IN_USE_BY);
    patch(c, &claim, json!({"metadata": {"finalizers": finalizers, "annotations": {mark: ""}}})).await
}

/// Only once the hold, read from quorum, is not this owner's any more, and no attachment of it is there. The finalizer goes
/// with the last mark.
pub async fn unprotect(
    c: &impl Shell,
    owner_uid: &str,
    owner_label: &str,
    target: &Target,
    hold: Option<&str>,
) -> Result<(), Error> {
    if let Some(hold) = hold {
        let there = found(get::<VolumeHold>(c, "", hold).await)?;
        let ours = |hold: &VolumeHold| label(&hold.metadata, owner_label) == Some(owner_uid);
        if let Some(there) = there.filter(|hold| hold.spec.holder.is_some() && ours(hold)) {
            put(c, there);
            let what = what::<VolumeHold>("get", hold);
            return Err(Error::NotConfirmed { what, message: "it is still held".to_owned() });
        }
    }
    let claim = seen::<PersistentVolumeClaim>(c, target)?;
    if let Some(volume) = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()) {
        crate::disks::confirm_unused(c, owner_label, owner_uid, volume).await?;
    }
    let mark = format!("{}{owner_uid}", labels::IN_USE_BY);
    let marks = claim.metadata.annotations.iter().flatten().filter(|(key, _)| key.starts_with(labels::IN_USE_BY));
    let others = marks.filter(|(key, _)| **key != mark).count() > 0;
    let finalizers = writes::finalizers(&claim.metadata, labels::FINALIZER_IN_USE, others);
    patch(c, &claim, json!({"metadata": {"finalizers": finalizers, "annotations": {mark: null}}})).await
}

async fn patch(c: &impl Shell, claim: &PersistentVolumeClaim, change: serde_json::Value) -> Result<(), Error> {
    writes::patch::<PersistentVolumeClaim>(c, &claim.metadata, change).await.map(drop)
}

pub async fn delete(c: &impl Shell, target: &Target) -> Result<(), Error> {
    match seen::<PersistentVolumeClaim>(c, target) {
        Ok(claim) => writes::delete::<PersistentVolumeClaim>(c, &claim.metadata, true).await,
        Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A pre-provisioned content with the same handle, kept when the snapshot goes, and the snapshot bound to it.
pub async fn import(c: &impl Shell, import: &ImportSnapshot) -> Result<(), Error> {
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
    writes::create(c, &content, |there: &VolumeSnapshotContent| ours(&there.metadata)).await?;
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
    writes::create(c, &snapshot, |there: &VolumeSnapshot| ours(&there.metadata)).await.map(drop)
}
