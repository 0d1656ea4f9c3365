//! `BareMetalMachine`: a machine as its user declares it.

mod status;

pub use status::{
    AttachPhase, BareMetalMachineStatus, DiskStatus, InstallStatus, InstalledDisk, InterfaceStatus, MachineAddress,
    MachineState, PowerStatus, TimelineAction, TimelineEntry,
};

use crate::Named;
use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A bare-metal machine: which server, which disks and network interfaces, and whether it runs.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "BareMetalMachine",
    plural = "baremetalmachines",
    shortname = "bmm",
    category = "metal",
    namespaced,
    status = "BareMetalMachineStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A bare-metal machine: it boots from cloud disks that its server's DPU presents, or a workflow installs it on the server's own disk.",
    crates(kube_core = "::kube_core"),
    selectable = ".status.state",
    selectable = ".status.hardwareName",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.addresses[0].address"),
    printcolumn(name = "Hardware", type_ = "string", json_path = ".status.hardwareName"),
    printcolumn(name = "Power", type_ = "string", json_path = ".status.power.state", priority = "1"),
    printcolumn(name = "DPU", type_ = "string", json_path = ".status.disks[0].dpuName", priority = "1"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("has(self.hardware) == has(oldSelf.hardware) && (!has(self.hardware) || self.hardware == oldSelf.hardware)")
        .message("spec.hardware is immutable: delete the machine and create it with the other hardware (disks with deletionPolicy Retain are kept)"),
    validation = Rule::new("self.boot.strategy == 'Workflow' || self.disks.exists_one(d, has(d.bootOrder) && d.bootOrder == 1) || self.interfaces.exists_one(i, has(i.bootOrder) && i.bootOrder == 1)")
        .message("spec.disks: exactly one disk must have bootOrder: 1; write it at the disk that holds the operating system"),
    validation = Rule::new("self.disks.all(d, !has(d.bootOrder) || d.bootOrder != 1 || d.bus == 'NVMe')")
        .message("spec.disks: the disk with bootOrder: 1 must have bus: NVMe, for the firmware boots from the fixed NVMe slot"),
    validation = Rule::new("self.boot.strategy != 'Workflow' || self.disks.size() == 0")
        .message("spec.disks must be left out with boot.strategy: Workflow: no DPU presents a disk; the Template names the server's own disks"),
    validation = Rule::new("self.boot.strategy != 'Workflow' || self.interfaces.size() == 0")
        .message("spec.interfaces must be left out with boot.strategy: Workflow: no DPU presents an interface; the machine has its server's NICs"),
    validation = Rule::new("self.boot.strategy != 'Workflow' || !has(self.nodeName)")
        .message("spec.nodeName must be left out with boot.strategy: Workflow: no DPU presents NICs for the pods of that node"),
    validation = Rule::new("self.boot.strategy != 'Workflow' || !has(self.readinessProbe)")
        .message("spec.readinessProbe must be left out with boot.strategy: Workflow: no DPU watches for an answer of the guest"),
    validation = Rule::new("self.boot.strategy != 'Workflow' || self.maintenancePolicy == 'Wait'")
        .message("spec.maintenancePolicy must be Wait with boot.strategy: Workflow: there is no DPU that could be drained"),
    validation = Rule::new("(has(self.cloudInit) ? self.cloudInit.source : 'Disk') == (has(oldSelf.cloudInit) ? oldSelf.cloudInit.source : 'Disk')")
        .message("spec.cloudInit.source is immutable: make another BareMetalMachine"),
    validation = Rule::new("self.boot.strategy == 'Workflow' || !has(self.cloudInit) || self.cloudInit.source != 'Metadata' || self.interfaces.size() > 0")
        .message("spec.cloudInit.source Metadata needs an interface, by which the guest asks: add one, or write source: Disk")
)]
pub struct BareMetalMachineSpec {
    /// Whether the machine runs. Always: kept on; a guest that powers itself off is powered on again, with back-off.
    /// Halted: kept off. Manual: power follows the annotation metalplane.io/power-requested (On or Off) and respects the
    /// guest's own shutdown.
    #[serde(default)]
    pub run_strategy: RunStrategy,

    /// Which server. Left out: any free one that fits and that a HardwarePolicy allows. Immutable; a MachineMigration that
    /// names its target moves the machine all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareChoice>,

    /// How the operating system gets onto the machine.
    #[serde(default)]
    pub boot: Boot,

    /// The firmware's settings that the machine asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,

    /// The disks that the DPU presents. A disk taken out of the list is unplugged; its claim is kept. None with boot.strategy:
    /// Workflow.
    #[serde(default)]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub disks: Vec<Disk>,

    /// The network interfaces that the DPU presents, in order.
    #[serde(default)]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub interfaces: Vec<Interface>,

    /// The Kubernetes node that the machine is, where the machine is a worker of this cluster: pods on that node get their NICs from the
    /// machine's DPU. The Node has to say the same: its kubelet runs with --provider-id=metalplane://NAMESPACE/NAME of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub node_name: Option<String>,

    /// What cloud-init in the guest reads (NoCloud, on a small disk or partition labelled CIDATA).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,

    /// Whether an answer of the guest counts for Ready. Left out: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<ReadinessProbe>,

    /// What happens when the machine's DPU is drained. Stop: it is stopped, and starts again afterwards. Wait: it runs
    /// until somebody stops or moves it. ColdMigrate: it is moved to another server that its spec.hardware selects, by a
    /// MachineMigration that is made for it; while there is none it runs on.
    #[serde(default)]
    pub maintenance_policy: MaintenancePolicy,

    /// How long the guest may take to power itself off before its power is taken, in seconds.
    #[serde(default = "default_grace")]
    #[schemars(range(min = 0, max = 3600))]
    pub termination_grace_period_seconds: i64,
}

fn default_grace() -> i64 {
    120
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum RunStrategy {
    #[default]
    Always,
    Halted,
    Manual,
}

/// A server by name, or any whose labels match.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("has(self.name) != has(self.selector)").message("hardware must have exactly one of name and selector")
)]
pub struct HardwareChoice {
    /// Exactly this Hardware (in the inventory namespace).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Any Hardware whose labels match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self.strategy == oldSelf.strategy")
        .message("boot.strategy is immutable: delete the machine and create it with the other strategy"),
    validation = Rule::new("self.strategy == 'CloudDisk' || has(self.workflow)")
        .message("boot.workflow must be given with boot.strategy: Workflow or Auto, for example workflow: {templateName: ubuntu}"),
    validation = Rule::new("self.strategy != 'CloudDisk' || !has(self.workflow)")
        .message("boot.workflow must be left out with boot.strategy: CloudDisk; or write strategy: Workflow")
)]
pub struct Boot {
    /// CloudDisk: from a disk that the DPU presents. Workflow: a Tinkerbell workflow installs the system on the server's own
    /// disk, over the network; a server with a DPU only where spec.hardware.name names it. Auto: CloudDisk, or Workflow on a server
    /// that no Dpu names, where the machine asks for nothing that only a DPU gives: one disk, from an image with an HTTP source,
    /// and no interface. Immutable, and decided once, at the claim.
    #[serde(default)]
    pub strategy: BootStrategy,
    /// What is installed; for Workflow and Auto. A change counts from the next installation on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<BootWorkflow>,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum BootStrategy {
    #[default]
    CloudDisk,
    Workflow,
    Auto,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!has(self.parameters) || !self.parameters.exists(k, k in ['device_1', 'machine_name', 'image_url', 'image_checksum', 'image_ca_bundle', 'hardware', 'Hardware', 'references'])")
        .message("boot.workflow.parameters: device_1, machine_name, image_url, image_checksum, image_ca_bundle, hardware, Hardware and references are set by Metalplane: write another name")
)]
pub struct BootWorkflow {
    /// The tinkerbell.org Template in this namespace. Its last action must restart the server: reboot or kexec.
    #[schemars(length(min = 1, max = 253))]
    pub template_name: String,
    /// What the template's placeholders become, by name. Beside them a template reads device_1 (the server's agent), machine_name
    /// and, of an Auto machine, image_url, image_checksum and image_ca_bundle (PEM in base64; empty: the public authorities).
    #[serde(default)]
    #[schemars(schema_with = "parameters")]
    pub parameters: BTreeMap<String, String>,
}

fn parameters(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 16384},
    })
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self.secureBoot == 'Unmanaged'")
        .message("firmware.secureBoot: Enabled and Disabled are not served yet: write Unmanaged")
)]
pub struct Firmware {
    /// Unmanaged: left as it is. Enabled and Disabled are not served yet and refused.
    #[serde(default)]
    pub secure_boot: SecureBoot,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum SecureBoot {
    #[default]
    Unmanaged,
    Enabled,
    Disabled,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self.source == oldSelf.source")
        .message("disks[].source is immutable: take the disk out of the list (its claim is kept) and add one with another name"),
    validation = Rule::new("has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)")
        .message("disks[].storageClassName is immutable: add a disk with another name"),
    validation = Rule::new("self.bus == oldSelf.bus && self.readOnly == oldSelf.readOnly")
        .message("disks[].bus and readOnly are immutable while the disk is in the list: take it out, then add it again"),
    validation = Rule::new("!has(self.size) || !has(oldSelf.size) || quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0")
        .message("disks[].size only grows: write at least the present size"),
    validation = Rule::new("!has(self.source.persistentVolumeClaim) || (!has(self.size) && !has(self.storageClassName) && !has(self.volumeAttributesClassName))")
        .message("disks[].size, storageClassName and volumeAttributesClassName must be left out with source.persistentVolumeClaim: the claim has its own; change the claim instead"),
    validation = Rule::new("!has(self.bootOrder) || self.bootOrder == 1")
        .message("disks[].bootOrder above 1 is not served yet: leave it out; the firmware boots from the disk with bootOrder: 1"),
    validation = Rule::new("!has(self.source.blank) || has(self.size)").message("disks[].size must be given with source.blank, for example size: 10Gi"),
    validation = Rule::new("!has(oldSelf.volumeAttributesClassName) || has(self.volumeAttributesClassName)")
        .message("disks[].volumeAttributesClassName may change but not go, as that of a claim: write another class, for example one without limits")
)]
pub struct Disk {
    /// Unique in the machine; becomes part of the claim's name.
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// 1: the disk from which the firmware boots. Above 1 is not served yet and refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub boot_order: Option<u8>,
    /// What the host sees: an NVMe controller or a virtio block device.
    #[serde(default)]
    pub bus: DiskBus,
    /// The host can read only, and many machines may share the volume.
    #[serde(default)]
    pub read_only: bool,
    /// What the disk holds at first. Immutable.
    pub source: DiskSource,
    /// Not below the image's; only grows, online where the back end and the bus can. Default: the image's size. Where boot.strategy Auto
    /// installs the machine on a server without a DPU: a server whose local disks are all smaller, as its agent reported, is not chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // The length bounds what the API server expects the rules to cost; without it it refuses the definition.
    #[schemars(extend("maxLength" = 32))]
    #[x_kube(validation = Rule::new("isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))").message("size must be a positive quantity such as 40Gi"))]
    pub size: Option<Quantity>,
    /// The StorageClass of the claim. Immutable. Default: with source.image the image's, else the cluster's default
    /// class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// The VolumeAttributesClass (QoS) of the claim; may change. Left out: the claim keeps what it has. Not with
    /// source.persistentVolumeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub volume_attributes_class_name: Option<String>,
    /// What becomes of the claim when the machine is deleted. A disk taken out of the list is always kept; a claim of
    /// the user's own is never deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, Hash, JsonSchema)]
pub enum DiskBus {
    #[default]
    NVMe,
    VirtioBlk,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum DeletionPolicy {
    #[default]
    Delete,
    Retain,
}

/// Exactly one of the four.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("[has(self.image), has(self.snapshot), has(self.persistentVolumeClaim), has(self.blank)].filter(x, x).size() == 1")
        .message("source must have exactly one of image, snapshot, persistentVolumeClaim and blank")
)]
pub struct DiskSource {
    /// A copy-on-write clone of a golden image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageReference>,
    /// A clone of a VolumeSnapshot in this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Named>,
    /// A claim of the user's own in this namespace, with volumeMode: Block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimReference>,
    /// A new, empty volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blank: Option<Blank>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
pub struct Blank {}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReference {
    /// The PersistentVolumeClaim's name.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
pub struct ImageReference {
    /// MachineImage (in the machine's namespace) or ClusterMachineImage.
    #[serde(default)]
    pub kind: ImageKind,
    /// The image's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, JsonSchema)]
pub enum ImageKind {
    #[default]
    MachineImage,
    ClusterMachineImage,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("has(self.subnet) != has(self.vnic)").message("interfaces[] must have exactly one of subnet and vnic"),
    validation = Rule::new("!has(self.vnic) || (!has(self.addresses) && !has(self.macAddress) && !has(self.securityGroups))")
        .message("interfaces[].addresses, macAddress and securityGroups must be left out with vnic: the VNic has its own"),
    validation = Rule::new("!has(self.bootOrder)").message("interfaces[].bootOrder is not served yet: leave it out"),
    validation = Rule::new("has(self.subnet) == has(oldSelf.subnet) && (!has(self.subnet) || (self.subnet == oldSelf.subnet && has(self.addresses) == has(oldSelf.addresses) && (!has(self.addresses) || self.addresses == oldSelf.addresses) && has(self.macAddress) == has(oldSelf.macAddress) && (!has(self.macAddress) || self.macAddress == oldSelf.macAddress))) && has(self.vnic) == has(oldSelf.vnic) && (!has(self.vnic) || self.vnic == oldSelf.vnic)")
        .message("interfaces[].subnet, addresses, macAddress and vnic are immutable while the interface is in the list: take it out, then add it again")
)]
pub struct Interface {
    /// Unique in the machine; the guest's name for it where network-config can set it.
    #[schemars(length(min = 1, max = 15), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Boot from the network. Not served yet and refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub boot_order: Option<u8>,
    /// The Subnet (same namespace) in which a VNic is made for this interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub subnet: Option<String>,
    /// A VNic that exists, instead of a subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnic: Option<Named>,
    /// The SecurityGroups, in this namespace, of the VNic that is made; may change while the machine runs. Left out: those of the
    /// Vpc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub security_groups: Option<Vec<String>>,
    /// IPv4 or IPv6 addresses in the subnet. Left out: the controller chooses one of each family that the subnet has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8), inner(length(max = 45)))]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a))").message("addresses must be IP addresses such as 10.20.0.7, without a prefix length"))]
    pub addresses: Option<Vec<String>>,
    /// The MAC address, lower case with colons. Default: made from the VNic's UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 17), regex(pattern = r"^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$"))]
    pub mac_address: Option<String>,
}

/// How cloud-init in the guest gets its data.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum CloudInitSource {
    #[default]
    Disk,
    Metadata,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!(has(self.userData) && has(self.userDataSecretRef))")
        .message("cloudInit must have at most one of userData and userDataSecretRef")
)]
pub struct CloudInit {
    /// How cloud-init in the guest gets what stands here. Disk: from a small disk (NoCloud) that the DPU presents. Metadata: from
    /// http://169.254.169.254 or http://[fe80::a9fe:a9fe] (as EC2's, and NoCloud below /nocloud/), which the machine's DPU answers;
    /// then the host sees no such disk. On a server without a DPU: Disk, from a partition that the Template's action `seed` makes;
    /// Metadata, from network boot at its own address, in the clear. Immutable.
    #[serde(default)]
    pub source: CloudInitSource,
    /// cloud-config or a script. Readable by all who can read the machine: secrets belong in userDataSecretRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub user_data: Option<String>,
    /// A Secret in this namespace with the key userData.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data_secret_ref: Option<LocalObjectReference>,
    /// A Secret in this namespace with the key networkData (network-config version 2). Default: made from the
    /// interfaces; on a server without a DPU: DHCP on the NIC by which it boots from the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data_secret_ref: Option<LocalObjectReference>,
    /// OpenSSH public keys for the image's default user.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(max = 8192)))]
    pub ssh_public_keys: Vec<String>,
}

#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("has(self.icmp) || has(self.tcpSocket)").message("readinessProbe must have a probe: write icmp: {} or leave readinessProbe out"),
    validation = Rule::new("!has(self.tcpSocket)").message("readinessProbe.tcpSocket is not served yet: write icmp: {} or leave readinessProbe out")
)]
pub struct ReadinessProbe {
    /// The guest answers on its first address (ARP or neighbour discovery is enough).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<Blank>,
    /// Not served yet and refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocket>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
pub struct TcpSocket {
    /// The port, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum MaintenancePolicy {
    Stop,
    #[default]
    Wait,
    ColdMigrate,
}
