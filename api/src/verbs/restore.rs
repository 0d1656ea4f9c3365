//! `MachineRestore`: the disks of a machine back to a snapshot.

use super::OperationStatus;
use crate::machine::DeletionPolicy;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Puts the disks of a machine that is off back to what they were in a snapshot.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "MachineRestore",
    plural = "machinerestores",
    shortname = "mrestore",
    category = "metal",
    namespaced,
    status = "MachineRestoreStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "The disks of a machine that is off back to what they were in a MachineSnapshot.",
    crates(kube_core = "::kube_core"),
    selectable = ".spec.machineName",
    printcolumn(name = "Machine", type_ = "string", json_path = ".spec.machineName"),
    printcolumn(name = "Snapshot", type_ = "string", json_path = ".spec.snapshotName"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Complete")].reason"#,
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self == oldSelf").message("spec is immutable: a MachineRestore is done once; create another MachineRestore")
)]
pub struct MachineRestoreSpec {
    /// The BareMetalMachine in this namespace. It must be stopped.
    #[schemars(length(min = 1, max = 63))]
    pub machine_name: String,
    /// The MachineSnapshot in this namespace, of a machine of that name.
    #[schemars(length(min = 1, max = 253))]
    pub snapshot_name: String,
}

/// What is observed of the restore.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineRestoreStatus {
    #[serde(flatten)]
    pub operation: OperationStatus,
    /// The UID of the machine.
    #[serde(rename = "machineUID", default, skip_serializing_if = "Option::is_none")]
    pub machine_uid: Option<String>,
    /// When it was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// When the machine was given the new claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_at: Option<MicroTime>,
    /// The disks that are put back.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub disks: Vec<RestoreDisk>,
    /// Disks of the machine, or of the snapshot, that the other one does not have: they are left as they are.
    #[serde(default)]
    pub left_out: Vec<String>,
}

impl AsRef<OperationStatus> for MachineRestoreStatus {
    fn as_ref(&self) -> &OperationStatus {
        &self.operation
    }
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreDisk {
    /// The disk's name in the machine.
    pub name: String,
    /// What the new claim is made from.
    pub volume_snapshot_name: String,
    /// The new PersistentVolumeClaim.
    pub claim_name: String,
    /// Its StorageClass: that of the claim that the snapshot was taken of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// The claim that the machine had before.
    pub previous_claim_name: String,
    /// Its UID. Left out: it was not there any more.
    #[serde(rename = "previousClaimUID", default, skip_serializing_if = "Option::is_none")]
    pub previous_claim_uid: Option<String>,
    /// What becomes of it: the disk's deletionPolicy. A claim of the user's own is always kept.
    #[serde(default)]
    pub previous_claim_policy: DeletionPolicy,
}
