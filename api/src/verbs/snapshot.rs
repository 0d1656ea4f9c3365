//! `MachineSnapshot`: the disks of a machine at one moment.

use super::OperationStatus;
use crate::machine::DeletionPolicy;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A snapshot of all disks of one machine.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "MachineSnapshot",
    plural = "machinesnapshots",
    shortname = "msnap",
    category = "metal",
    namespaced,
    status = "MachineSnapshotStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A snapshot of all disks that a machine writes to, as after a power failure.",
    crates(kube_core = "::kube_core"),
    selectable = ".spec.machineName",
    printcolumn(name = "Machine", type_ = "string", json_path = ".spec.machineName"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Consistency", type_ = "string", json_path = ".status.consistency", priority = "1"),
    printcolumn(name = "Disks", type_ = "string", json_path = ".status.disks[*].name", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!has(self.volumeGroupSnapshotClassName) || !has(self.consistency) || self.consistency == 'Machine'")
        .message("with consistency: PerDisk no VolumeGroupSnapshot is made: take volumeGroupSnapshotClassName away"),
    validation = Rule::new("self.machineName == oldSelf.machineName && self.consistency == oldSelf.consistency && has(self.volumeSnapshotClassName) == has(oldSelf.volumeSnapshotClassName) && (!has(self.volumeSnapshotClassName) || self.volumeSnapshotClassName == oldSelf.volumeSnapshotClassName) && has(self.volumeGroupSnapshotClassName) == has(oldSelf.volumeGroupSnapshotClassName) && (!has(self.volumeGroupSnapshotClassName) || self.volumeGroupSnapshotClassName == oldSelf.volumeGroupSnapshotClassName)")
        .message("spec is immutable but for deletionPolicy: a MachineSnapshot is taken once; create another MachineSnapshot")
)]
pub struct MachineSnapshotSpec {
    /// The BareMetalMachine in this namespace. Immutable.
    #[schemars(length(min = 1, max = 63))]
    pub machine_name: String,
    /// What the disks are to each other. Machine: all at the same moment, as after a power failure. That is so for one
    /// disk, and for a machine that is off. Of a machine that runs with several disks it takes one VolumeGroupSnapshot:
    /// refused where the disks' CSI driver has no VolumeGroupSnapshotClass. PerDisk: each disk as after a power failure of
    /// its own, one after the other. Immutable.
    #[serde(default)]
    pub consistency: Consistency,
    /// The VolumeSnapshotClass of disks that have a VolumeSnapshot each. Default: the default class of each disk's driver.
    /// Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub volume_snapshot_class_name: Option<String>,
    /// The VolumeGroupSnapshotClass for several disks of a machine that runs. Default: the default class of the
    /// disks' driver. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub volume_group_snapshot_class_name: Option<String>,
    /// What becomes of the VolumeSnapshots when this object is deleted. Retain: they are kept.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum Consistency {
    #[default]
    Machine,
    PerDisk,
}

/// What is observed of the snapshot.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSnapshotStatus {
    #[serde(flatten)]
    pub operation: OperationStatus,
    /// The UID of the machine that it was taken of.
    #[serde(rename = "machineUID", default, skip_serializing_if = "Option::is_none")]
    pub machine_uid: Option<String>,
    /// What was got: one disk, or a machine that was off, is Machine whatever was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
    /// The VolumeGroupSnapshotClass, where one VolumeGroupSnapshot of this object's name is taken of all disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_class_name: Option<String>,
    /// Whether the machine was off.
    #[serde(default)]
    pub machine_was_off: bool,
    /// When it was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// When the snapshot of the last disk was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<MicroTime>,
    /// The disks that are in it: all that the machine could write to.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub disks: Vec<SnapshotDisk>,
}

impl AsRef<OperationStatus> for MachineSnapshotStatus {
    fn as_ref(&self) -> &OperationStatus {
        &self.operation
    }
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotDisk {
    /// The disk's name in the machine.
    pub name: String,
    /// The PersistentVolumeClaim that it was taken of.
    pub claim_name: String,
    /// The VolumeSnapshot, in this namespace. Of a VolumeGroupSnapshot: empty until the storage has taken it.
    #[serde(default)]
    pub volume_snapshot_name: String,
    /// The StorageClass of that claim: what is made of the snapshot gets the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// The size of the claim when the snapshot was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// The disk's content is what it was at that moment, whatever is written now.
    #[serde(default)]
    pub taken: bool,
    /// The VolumeSnapshot can be restored.
    #[serde(default)]
    pub ready: bool,
}
