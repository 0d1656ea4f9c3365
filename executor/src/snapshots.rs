//! The part of the CSI snapshot API that is needed (`snapshot.storage.k8s.io/v1` and `groupsnapshot.storage.k8s.io/v1`). Its CRDs
//! belong to the cluster.

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference, Time};
use kube::{CustomResource, Resource};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

#[derive(CustomResource, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "snapshot.storage.k8s.io",
    version = "v1",
    kind = "VolumeSnapshot",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    status = "VolumeSnapshotStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSpec {
    pub source: SnapshotSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

impl VolumeSnapshot {
    /// The VolumeGroupSnapshot that it is a member of.
    pub fn group(&self) -> Option<&OwnerReference> {
        let is_group = |owner: &&OwnerReference| owner.kind == VolumeGroupSnapshot::kind(&());
        self.metadata.owner_references.iter().flatten().find(is_group)
    }
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotSource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    #[serde(default)]
    pub bound_volume_snapshot_content_name: Option<String>,
    /// When it was cut: from then on writes to the volume are not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(default)]
    pub ready_to_use: Option<bool>,
    #[serde(default)]
    pub restore_size: Option<Quantity>,
    #[serde(default)]
    pub error: Option<SnapshotError>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
pub struct SnapshotError {
    #[serde(default)]
    pub message: Option<String>,
}

#[derive(CustomResource, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "snapshot.storage.k8s.io",
    version = "v1",
    kind = "VolumeSnapshotContent",
    schema = "disabled",
    derive = "PartialEq",
    status = "VolumeSnapshotContentStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentSpec {
    pub deletion_policy: String,
    pub driver: String,
    pub source: ContentSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    pub volume_snapshot_ref: ObjectReference,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct ContentSource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_handle: Option<String>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentStatus {
    #[serde(default)]
    pub snapshot_handle: Option<String>,
    #[serde(default)]
    pub ready_to_use: Option<bool>,
}

#[derive(CustomResource, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "groupsnapshot.storage.k8s.io",
    version = "v1",
    kind = "VolumeGroupSnapshot",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    status = "VolumeGroupSnapshotStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeGroupSnapshotSpec {
    pub source: GroupSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_class_name: Option<String>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
pub struct GroupSource {
    /// The claims whose volumes are taken: those of the namespace with these labels, when the content is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct VolumeGroupSnapshotStatus {
    /// From then on it is decided which volumes are taken.
    #[serde(default)]
    pub bound_volume_group_snapshot_content_name: Option<String>,
    #[serde(default)]
    pub error: Option<SnapshotError>,
}

/// By hand: it has no `spec`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
pub struct VolumeGroupSnapshotClass {
    #[serde(default)]
    pub metadata: ObjectMeta,
    pub driver: String,
}

impl Resource for VolumeGroupSnapshotClass {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "VolumeGroupSnapshotClass".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "groupsnapshot.storage.k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "volumegroupsnapshotclasses".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
