//! `VolumeHold`: the cluster-wide record of who may write one volume. The protocol is `docs/design/fencing.md`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Written by the controller only, by Update with resourceVersion; never deleted while the volume exists.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "VolumeHold",
    shortname = "vh",
    category = "metal",
    derive = "PartialEq",
    derive = "Default",
    doc = "Who may write one volume, cluster-wide.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Driver", type_ = "string", json_path = ".spec.driver", priority = "1"),
    printcolumn(name = "Dpu", type_ = "string", json_path = ".spec.holder.dpuName"),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".spec.epoch"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self.driver == oldSelf.driver && self.volumeHandle == oldSelf.volumeHandle").message("the volume of a hold is immutable"),
    validation = Rule::new("self.epoch >= oldSelf.epoch").message("epoch only grows"),
    validation = Rule::new("!has(self.holder) || (has(oldSelf.holder) && self.holder == oldSelf.holder) || (!has(oldSelf.holder) && self.epoch > oldSelf.epoch)")
        .message("a hold passes to another holder only through an empty hold, with a larger epoch")
)]
pub struct VolumeHoldSpec {
    /// The CSI driver.
    pub driver: String,
    /// The CSI volume handle.
    pub volume_handle: String,
    /// The PersistentVolume, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_name: Option<String>,
    /// Empty: nobody may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// Grows by one with every new holder.
    #[serde(default)]
    pub epoch: u64,
    /// Identities that the storage was told, or known, to refuse, newest last.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub fences: Vec<FenceRecord>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The UID of the attachment that holds.
    #[serde(rename = "attachmentUID")]
    pub attachment_uid: String,
    /// The attachment's namespace: that of its DPU.
    pub attachment_namespace: String,
    /// The attachment's name.
    pub attachment_name: String,
    /// The UID of the Dpu that presents it.
    #[serde(rename = "dpuUID")]
    pub dpu_uid: String,
    /// The name of that Dpu.
    pub dpu_name: String,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FenceRecord {
    /// The UID of the attachment that held.
    #[serde(rename = "attachmentUID")]
    pub attachment_uid: String,
    /// The epoch of its grant.
    pub epoch: u64,
    /// The UID of the Dpu that presented it.
    #[serde(rename = "dpuUID")]
    pub dpu_uid: String,
    /// The boot of the DPU that the proof is about.
    #[serde(rename = "bootID", default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// StorageFenced, DpuPoweredOff, HostPoweredOff or ConfirmedDown (fencing.md: the three proofs).
    pub proof: FenceProof,
    /// When the proof was taken.
    pub at: Time,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema)]
pub enum FenceProof {
    StorageFenced,
    DpuPoweredOff,
    HostPoweredOff,
    ConfirmedDown,
}
