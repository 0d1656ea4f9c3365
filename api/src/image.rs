//! `MachineImage` and `ClusterMachineImage`: golden images, and the snapshots that clones start from.

use crate::Named;
use crate::machine::{Blank, ClaimReference};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A golden image in one namespace.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "MachineImage",
    shortname = "mi",
    category = "metal",
    namespaced,
    status = "MachineImageStatus",
    derive = "PartialEq",
    doc = "A golden image that machines of this namespace boot clones of.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.virtualSize"),
    printcolumn(name = "Snapshot", type_ = "string", json_path = ".status.snapshotName"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self == oldSelf").message("spec is immutable: a changed image is a new image; create one with another name"),
    validation = Rule::new("!has(self.source.http) || has(self.size)").message("size must be given with source.http: the volume is made before the image is read")
)]
pub struct MachineImageSpec {
    #[serde(flatten)]
    pub import: ImageImport,
}

/// A golden image for every namespace.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "ClusterMachineImage",
    shortname = "cmi",
    category = "metal",
    status = "MachineImageStatus",
    derive = "PartialEq",
    doc = "A golden image that machines of every namespace may boot clones of.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.virtualSize"),
    printcolumn(name = "Snapshot", type_ = "string", json_path = ".status.snapshotName"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self == oldSelf").message("spec is immutable: a changed image is a new image; create one with another name"),
    validation = Rule::new("has(self.source.http)")
        .message("source: a ClusterMachineImage must have source.http: claims and snapshots belong to a namespace; use a MachineImage for those"),
    validation = Rule::new("!has(self.source.http) || has(self.size)").message("size must be given with source.http: the volume is made before the image is read")
)]
pub struct ClusterMachineImageSpec {
    #[serde(flatten)]
    pub import: ImageImport,
}

/// What both kinds have in common.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageImport {
    /// Where the image comes from: exactly one.
    pub source: ImageSource,
    /// The size of the volume, at least the image's virtual size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// The StorageClass of the golden volume and, by default, of its clones. Default: the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// The VolumeSnapshotClass. Default: the default class of the StorageClass's driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub volume_snapshot_class_name: Option<String>,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("[has(self.http), has(self.persistentVolumeClaim), has(self.snapshot), has(self.upload)].filter(x, x).size() == 1")
        .message("source must have exactly one of http, persistentVolumeClaim and snapshot"),
    validation = Rule::new("!has(self.upload)").message("source.upload is not served yet: write http, persistentVolumeClaim or snapshot")
)]
pub struct ImageSource {
    /// A web server from which an agent reads the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSource>,
    /// A claim in this namespace that holds the image; a snapshot of it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimReference>,
    /// A VolumeSnapshot in this namespace that clones start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Named>,
    /// Not served yet and refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<Blank>,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!has(self.caBundle) || self.url.startsWith('https://')")
        .message("http.caBundle: a server is verified by https alone: write an https URL, or leave caBundle out"),
    validation = Rule::new("!has(self.caBundle) || self.caBundle.contains('-----BEGIN CERTIFICATE-----') && !self.caBundle.contains('PRIVATE KEY')")
        .message("http.caBundle: write the certificates of authorities in PEM, from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----, and no private key")
)]
pub struct HttpSource {
    /// http:// or https://, readable from the DPUs.
    #[schemars(length(max = 2048), regex(pattern = r"^https?://[^\s]+$"))]
    pub url: String,
    /// sha256:<64 hexadecimal digits> of what the URL answers.
    #[schemars(length(max = 71), regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    pub checksum: String,
    /// Certificates in PEM of the authorities that vouch for the server of an https URL, where no public authority does: they take the
    /// place of those. Redirects are verified by the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub ca_bundle: Option<String>,
    /// What the URL answers: Raw, the disk byte by byte; or Qcow2, of versions 2 and 3, without a backing file, encryption or a data file.
    /// The server of a Qcow2 image has to serve HTTP Range. The checksum is of the file as it is sent, the size of the disk in it.
    #[serde(default)]
    pub format: ImageFormat,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum ImageFormat {
    #[default]
    Raw,
    Qcow2,
}

/// What is observed of the image.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineImageStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, once clones can be made.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The VolumeSnapshot that clones start from (for a cluster image: in the controller's namespace).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_name: Option<String>,
    /// The namespace of that VolumeSnapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_namespace: Option<String>,
    /// The size that a clone has at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_size: Option<Quantity>,
    /// What was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// The StorageClass that clones get by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}
