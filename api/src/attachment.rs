//! `DiskAttachment` and `NicAttachment`: what one DPU is told. Written by the controller; the status by that DPU's agent.

use crate::Limits;
use crate::image::ImageFormat;
use crate::machine::{AttachPhase, DiskBus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One volume shown to one host by one DPU (or written by it, for an import). Inert until `grant` is set.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "DiskAttachment",
    shortname = "da",
    category = "metal",
    namespaced,
    status = "DiskAttachmentStatus",
    derive = "PartialEq",
    doc = "One volume that one DPU presents to its host.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Machine", type_ = "string", json_path = ".spec.owner.name"),
    printcolumn(name = "Disk", type_ = "string", json_path = ".spec.diskName"),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".spec.grant.epoch"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self.owner == oldSelf.owner && self.dpuName == oldSelf.dpuName && self.consumer == oldSelf.consumer && self.bus == oldSelf.bus && self.slot == oldSelf.slot && self.serial == oldSelf.serial && self.uuid == oldSelf.uuid && self.readOnly == oldSelf.readOnly && has(self.volume) == has(oldSelf.volume) && (!has(self.volume) || self.volume == oldSelf.volume) && self.diskName == oldSelf.diskName && has(self.seedSecretName) == has(oldSelf.seedSecretName) && (!has(self.seedSecretName) || self.seedSecretName == oldSelf.seedSecretName) && has(self.__import__) == has(oldSelf.__import__) && (!has(self.__import__) || self.__import__ == oldSelf.__import__) && has(self.eraser) == has(oldSelf.eraser) && (!has(self.eraser) || self.eraser == oldSelf.eraser) && has(self.holdDisk) == has(oldSelf.holdDisk) && (!has(self.holdDisk) || self.holdDisk == oldSelf.holdDisk)")
        .message("spec is immutable but for size, qos, grant, holderPodUID and release"),
    validation = Rule::new("!has(oldSelf.grant) || (has(self.grant) && self.grant == oldSelf.grant)").message("grant is set once"),
    validation = Rule::new("!oldSelf.release || self.release").message("release is set once"),
    validation = Rule::new("!has(oldSelf.holderPodUID) || (has(self.holderPodUID) && self.holderPodUID == oldSelf.holderPodUID)").message("holderPodUID is set once"),
    validation = Rule::new("!has(oldSelf.size) || (has(self.size) && quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0)").message("size only grows"),
    validation = Rule::new("!has(self.qos) || (has(self.volume) && self.consumer == 'Host')").message("qos bounds a volume that a host sees: leave it out of a seed, of an eraser, of a hold disk and of an import"),
    validation = Rule::new("[has(self.volume), has(self.seedSecretName), has(self.eraser), has(self.holdDisk)].filter(x, x).size() == 1").message("exactly one of volume, seedSecretName, eraser and holdDisk must be given")
)]
pub struct DiskAttachmentSpec {
    /// Who asked for it: the machine, the image that is imported, or the Dpu whose boot option is looked for.
    pub owner: OwnerReference,
    /// The Dpu that presents it.
    pub dpu_name: String,
    /// The disk's name in the machine.
    pub disk_name: String,
    /// Host: shown to the host. Import: written by the agent from `import`.
    #[serde(default)]
    pub consumer: Consumer,
    /// The volume behind it. A seed disk, an eraser and a hold disk have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeSource>,
    /// The Secret in this namespace (keys meta-data, user-data, network-config) that a cloud-init seed disk is made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed_secret_name: Option<String>,
    /// A disk that the agent makes, from which the host boots the installer to have the server's own disks erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eraser: Option<Eraser>,
    /// A disk that the agent makes, from which nothing starts: the server's firmware is to list it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_disk: Option<HoldDisk>,
    /// What an import reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<ImportSource>,
    /// What the host sees: an NVMe controller or a virtio block device.
    #[serde(default)]
    pub bus: DiskBus,
    /// The fixed slots keep a UEFI device path true; the rest is one pool.
    pub slot: DiskSlot,
    /// The controller's serial number, at most 20 bytes.
    #[schemars(length(max = 20))]
    pub serial: String,
    /// The namespace's UUID.
    pub uuid: String,
    /// The host can read only.
    #[serde(default)]
    pub read_only: bool,
    /// What the host should see; only grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// What the claim's VolumeAttributesClass allows the disk to do. The Dpu's own limits bound it further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<Limits>,
    /// Set once, by the holder of the leader lease, after the VolumeHold names this attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// Set once, with the grant, where the connector is Kubelet: the holder pod by which kubelet connects the volume.
    #[serde(rename = "holderPodUID", default, skip_serializing_if = "Option::is_none")]
    pub holder_pod_uid: Option<String>,
    /// Set once: the agent may take the disk away from the host.
    #[serde(default)]
    pub release: bool,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
pub struct OwnerReference {
    /// BareMetalMachine, MachineImage, ClusterMachineImage, Pod or Dpu.
    pub kind: String,
    /// Its namespace. A ClusterMachineImage and a Dpu have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID: one that was made again under the same name is another owner.
    pub uid: String,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Eraser {
    /// What the server's processors are, as uname -m calls it: x86_64.
    #[schemars(length(min = 1, max = 32))]
    pub machine: String,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HoldDisk {
    /// What the server's processors are, as uname -m calls it: x86_64.
    #[schemars(length(min = 1, max = 32))]
    pub machine: String,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum Consumer {
    #[default]
    Host,
    Import,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema)]
pub enum DiskSlot {
    Boot,
    Seed,
    HotPlug,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSource {
    /// The CSI driver's name.
    pub driver: String,
    /// The CSI volume handle.
    pub volume_handle: String,
    /// The CSI volume context.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
    /// The PersistentVolume.
    pub persistent_volume_name: String,
    /// The PersistentVolumeClaim that the volume is bound to.
    pub claim: ClaimIdentity,
    #[serde(default)]
    pub connector: Connector,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
pub struct ClaimIdentity {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// Native: the agent speaks the storage's protocol. Kubelet: a holder pod makes kubelet connect the volume, with the CSI
/// driver's own node plugin, and the agent takes the block device.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum Connector {
    #[default]
    Native,
    Kubelet,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportSource {
    /// http:// or https://, readable from the DPU.
    pub url: String,
    /// sha256:<hex> of what the URL answers.
    pub checksum: String,
    /// Certificates in PEM of the authorities that vouch for the server of an https URL, instead of the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    /// What the URL answers: Raw, the disk byte by byte; or Qcow2.
    #[serde(default)]
    pub format: ImageFormat,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub struct Grant {
    /// The epoch of the hold.
    pub epoch: u64,
}

/// What the DPU's agent says of the disk.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskAttachmentStatus {
    /// Pending, Waiting (for a grant), Attaching, Attached, Detaching or Failed.
    #[serde(default)]
    pub phase: AttachPhase,
    /// Written before the first write can reach the storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceIdentity>,
    /// The boot of the DPU on which the host can see the disk.
    #[serde(rename = "exposedBootID", default, skip_serializing_if = "Option::is_none")]
    pub exposed_boot_id: Option<String>,
    /// What the host sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Quantity>,
    /// What the storage has: more than the host sees, where only a power cycle shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_capacity: Option<Quantity>,
    /// What the disk's I/O is held to: of spec.qos and the Dpu's own limits the smaller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<Limits>,
    /// The controller's serial number as the host sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The namespace's identity as the host sees it, for example uuid.<uuid>.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwid: Option<String>,
    /// Imports: bytes written, and whether all is verified and synced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<ImportStatus>,
    /// Erasers: what the installer on the host has left there last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eraser: Option<EraserReport>,
    /// Connected, Exposed, Resized, Limited.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FenceIdentity {
    /// The boot of the DPU that the identity was made on.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// As the storage knows it.
    pub identity: String,
    /// The epoch of the grant that it was made for.
    pub epoch: u64,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportStatus {
    /// How far the import is, in bytes of the image.
    pub bytes_written: u64,
    /// True: all is written, verified and synced.
    pub done: bool,
    /// What was verified: sha256:<hex>.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

/// What a host says that erases its disks. Nothing but the form of it is checked by the agent.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EraserReport {
    /// Running, Success or Failed; whether the server is erased the controller judges by the lines of the disks.
    pub state: EraserState,
    /// Which report it is. They are numbered from 1; the installer writes one now and then, even if nothing is new.
    pub number: u64,
    /// Lines: of each disk what became of it, then what was said last.
    #[serde(default)]
    pub message: String,
    /// When the agent first saw this one.
    pub at: MicroTime,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum EraserState {
    Running,
    Success,
    Failed,
}

/// One virtual NIC shown to one host by one DPU, or given to one pod of a node. Inert until `grant` is set.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "NicAttachment",
    shortname = "na",
    category = "metal",
    namespaced,
    status = "NicAttachmentStatus",
    derive = "PartialEq",
    doc = "One virtual NIC that one DPU presents to its host, or that a node gives to one of its pods.",
    crates(kube_core = "::kube_core"),
    selectable = ".spec.vnicUID",
    printcolumn(name = "Owner", type_ = "string", json_path = ".spec.owner.name"),
    printcolumn(name = "Interface", type_ = "string", json_path = ".spec.interfaceName"),
    printcolumn(name = "MAC", type_ = "string", json_path = ".spec.macAddress", priority = "1"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self.owner == oldSelf.owner && self.dpuName == oldSelf.dpuName && self.interfaceName == oldSelf.interfaceName && self.vnicName == oldSelf.vnicName && self.vnicUID == oldSelf.vnicUID && self.macAddress == oldSelf.macAddress && self.functionKind == oldSelf.functionKind && self.logicalPort == oldSelf.logicalPort && self.addresses == oldSelf.addresses && self.mtu == oldSelf.mtu && self.consumer == oldSelf.consumer && has(self.pod) == has(oldSelf.pod) && (!has(self.pod) || self.pod == oldSelf.pod) && has(self.metadata) == has(oldSelf.metadata) && (!has(self.metadata) || self.metadata == oldSelf.metadata)")
        .message("spec is immutable but for grant and release"),
    validation = Rule::new("!has(oldSelf.grant) || (has(self.grant) && self.grant == oldSelf.grant)").message("grant is set once"),
    validation = Rule::new("!oldSelf.release || self.release").message("release is set once"),
    validation = Rule::new("(self.consumer == 'Pod') == has(self.pod)").message("pod is given where consumer is Pod, and nowhere else")
)]
pub struct NicAttachmentSpec {
    /// Who asked for it: the machine, or the pod.
    pub owner: OwnerReference,
    /// The Dpu that presents it.
    pub dpu_name: String,
    /// The interface's name in the machine or the pod.
    pub interface_name: String,
    /// Host: shown to the host; a pod that is the owner runs there. Pod: moved into the pod that is the owner.
    #[serde(default)]
    pub consumer: NicConsumer,
    /// How a pod's NIC is configured in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodInterface>,
    /// The VNic (in the owner's namespace).
    pub vnic_name: String,
    /// The VNic's UID.
    #[serde(rename = "vnicUID")]
    pub vnic_uid: String,
    /// What the logical network knows the port by.
    pub logical_port: String,
    /// The MAC address that the host sees, lower case with colons.
    pub mac_address: String,
    /// The guest's addresses, which the agent asks for to see the guest answer.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// What is shown to the host: a fixed or a hot-plugged physical function, a virtual function or a sub-function. What a pod gets: a
    /// veth device.
    #[serde(default)]
    pub function_kind: FunctionKind,
    /// The maximum transmission unit in bytes.
    pub mtu: u16,
    /// What the guest is told who asks at the metadata address by this NIC. Left out: nobody answers the guest there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<NicMetadata>,
    /// Set once, by the holder of the leader lease, after the VNic names this attachment as its holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// Set once: the agent may take the NIC away from the host.
    #[serde(default)]
    pub release: bool,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum FunctionKind {
    StaticPF,
    #[default]
    HotplugPF,
    VF,
    SF,
    Veth,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum NicConsumer {
    #[default]
    Host,
    Pod,
}

/// What a guest is told at the metadata address.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NicMetadata {
    /// The Secret in this namespace (keys meta-data, user-data, network-config, public-keys) that the answers are made from. It is
    /// written before the grant.
    pub secret_name: String,
    /// The UID of the VNic's Subnet: its metadata port is where the guest asks.
    #[serde(rename = "subnetUID")]
    pub subnet_uid: String,
}

/// How a pod's NIC is configured in the pod.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
pub struct PodInterface {
    /// Its addresses, each with the prefix length of its Subnet.
    pub addresses: Vec<String>,
    /// Its routes, beside those to its own Subnet. A pod's default route is the cluster network's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<PodRoute>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
pub struct PodRoute {
    /// A network, for example 10.30.0.0/24.
    pub destination: String,
    /// The address of the Subnet's router.
    pub gateway: String,
}

/// One NIC of a pod whose node is a machine, as the annotation `metalplane.io/network-status` tells the plugin on that node.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct PodNic {
    /// In the pod.
    pub name: String,
    /// By which the node knows the function that its DPU presents. Lower case with colons.
    pub mac_address: String,
    /// In bytes.
    pub mtu: u16,
    #[serde(flatten)]
    pub interface: PodInterface,
}

/// What the DPU's agent says of the NIC.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NicAttachmentStatus {
    /// Pending, Waiting (for a grant), Attaching, Attached, Detaching or Failed.
    #[serde(default)]
    pub phase: AttachPhase,
    /// Written before the port is plugged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceIdentity>,
    /// The boot of the DPU on which the host can see the NIC.
    #[serde(rename = "exposedBootID", default, skip_serializing_if = "Option::is_none")]
    pub exposed_boot_id: Option<String>,
    /// The network device on the DPU that stands for the host's function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub representor: Option<String>,
    /// What the DPU sees of the guest since the host last started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestStatus>,
    /// Connected, Exposed; MetadataServed, which is only ever false: nobody answers the guest at the metadata address.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What the DPU sees of the guest since the host last started.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestStatus {
    /// When the first packet of the guest was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_packet_at: Option<MicroTime>,
    /// When the guest last began to answer for one of its addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<MicroTime>,
    /// The address that it answered for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_address: Option<String>,
}
