//! `MachineMigration`: a machine to another server, without copying a byte.

use super::OperationStatus;
use crate::machine::HardwareChoice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Moves a machine to another server: stop, take its disks and NICs there, start.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "MachineMigration",
    plural = "machinemigrations",
    shortname = "mmig",
    category = "metal",
    namespaced,
    status = "MachineMigrationStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A cold move of a machine to another server, with its disks, NICs and identity.",
    crates(kube_core = "::kube_core"),
    selectable = ".spec.machineName",
    printcolumn(name = "Machine", type_ = "string", json_path = ".spec.machineName"),
    printcolumn(name = "From", type_ = "string", json_path = ".status.sourceHardwareName"),
    printcolumn(name = "To", type_ = "string", json_path = ".status.targetHardwareName"),
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
    validation = Rule::new("self == oldSelf").message("spec is immutable: delete the migration, which cancels it while the machine has its disks, and create another MachineMigration")
)]
pub struct MachineMigrationSpec {
    /// The BareMetalMachine in this namespace.
    #[schemars(length(min = 1, max = 63))]
    pub machine_name: String,
    /// Which server. Left out: any free one that fits, that a HardwarePolicy allows, and that the machine's own
    /// spec.hardware.selector selects. A machine that is bound to one server by spec.hardware.name moves only by a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<HardwareChoice>,
}

/// What is observed of the migration.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineMigrationStatus {
    #[serde(flatten)]
    pub operation: OperationStatus,
    /// The Hardware that the machine leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_hardware_name: Option<String>,
    /// The Hardware that it moves to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_hardware_name: Option<String>,
    /// When the target was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// When the guest was asked to power off, or its power was taken. Left out: the machine was off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_off_sent_at: Option<MicroTime>,
    /// When the source was seen off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub powered_off_at: Option<MicroTime>,
    /// When nothing of the machine was left on the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_at: Option<MicroTime>,
    /// When power-on was sent to the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_on_sent_at: Option<MicroTime>,
    /// When the machine was there as it was asked to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<MicroTime>,
}

impl AsRef<OperationStatus> for MachineMigrationStatus {
    fn as_ref(&self) -> &OperationStatus {
        &self.operation
    }
}
