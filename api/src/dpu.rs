//! `Dpu`: one data processing unit and the server it sits in; `HardwarePolicy`: who may claim which Hardware.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One DPU. The spec is written by an administrator or the controller only, the status by its agent.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "Dpu",
    plural = "dpus",
    shortname = "dpu",
    category = "metal",
    status = "DpuStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A DPU, named after its node, and the server whose disks and NICs it presents.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type", priority = "1"),
    printcolumn(name = "Hardware", type_ = "string", json_path = ".spec.hardwareRef.name"),
    printcolumn(name = "Power-Domain", type_ = "string", json_path = ".spec.powerDomain"),
    printcolumn(name = "Approved", type_ = "boolean", json_path = ".spec.approved"),
    printcolumn(name = "Boot-ID", type_ = "string", json_path = ".status.bootID", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!has(oldSelf.hardwareRef) || has(self.hardwareRef)")
        .message("spec.hardwareRef cannot be removed: delete the Dpu to take the DPU out of the inventory"),
    validation = Rule::new("self.type == oldSelf.type").message("spec.type is immutable: delete the Dpu, its agent registers it anew"),
    validation = Rule::new("self.type == 'DPU' || (!has(self.hardwareRef) && !has(self.bmcRef) && !self.approved)")
        .message("a Dpu of type NIC or SmartNIC is an ordinary node, which presents nothing to a host: leave hardwareRef, bmcRef and approved out")
)]
pub struct DpuSpec {
    /// DPU: presents disks and NICs to the server that it sits in. NIC: an ordinary node, whose agent gives NICs to the node's own
    /// pods, as veth devices. SmartNIC: the same, as virtual functions of the node's NIC. Those two need no approval, for their kubelet runs those pods anyway, and are never granted anything for a host.
    #[serde(rename = "type", default)]
    pub type_: DpuType,
    /// The Hardware (in the inventory namespace) whose host sees what this DPU presents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_ref: Option<HardwareReference>,
    /// Standby: the DPU keeps its power while the host is off. Host: it goes down and comes up with the host.
    #[serde(default)]
    pub power_domain: PowerDomain,
    /// The DPU's own BMC. A DPU that has fallen silent and is read off there gives up what it held. It is read only, never
    /// told anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_ref: Option<BmcReference>,
    /// Only an approved DPU gets a namespace, an identity and attachments. An ordinary node (type NIC) needs no approval.
    #[serde(default)]
    pub approved: bool,
    /// None: in service. Drain: no machine is put or started here, and those with maintenancePolicy: Stop are stopped.
    /// OutOfService: all are. In either case those with maintenancePolicy: ColdMigrate are moved.
    #[serde(default)]
    pub maintenance: Maintenance,
    /// An administrator's word that this boot of the DPU is down and stays down (bmctl dpu confirm-down). Void once the
    /// DPU reports another bootID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_down: Option<ConfirmedDown>,
    /// UIDs of status.orphans that the agent detaches from the host at once, running or not (bmctl dpu forget).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "set"))]
    pub forget: Vec<String>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareReference {
    /// The Hardware's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The serial number of the server that this DPU sits in, as its BMC reports it. Where the BMC reports another one,
    /// nothing is claimed, granted or powered through this Dpu. Left out: what the DPU's agent reports is expected
    /// (status.hostSerialNumber), if it knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub serial_number: Option<String>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BmcReference {
    /// A bmc.tinkerbell.org Machine in the inventory namespace. What is read is the power state of its system, or of the one
    /// that providerOptions.redfish.systemName names (Bluefield).
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The serial number of the DPU, as this BMC reports it. Where it reports another one, or none, its readings prove nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub serial_number: Option<String>,
}

/// What the BMC of a server said of its serial number.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedHost {
    /// The Hardware of the BMC, as in spec.hardwareRef.
    pub hardware_name: String,
    /// The serial number that was expected.
    pub serial_number: String,
    /// True: the BMC reported that serial number. False: the BMC reported none.
    pub reported: bool,
}

/// A BMC that showed the DPU powered on while the DPU's agent answered.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedBmc {
    /// As in spec.bmcRef.
    pub name: String,
    /// As in spec.bmcRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
    /// A digest of the UID and the connection of the bmc.tinkerbell.org Machine. Another digest means another BMC.
    pub identity: String,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, Hash, JsonSchema)]
pub enum PowerDomain {
    #[default]
    Standby,
    Host,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum Maintenance {
    #[default]
    None,
    Drain,
    OutOfService,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmedDown {
    /// The bootID that is down.
    #[serde(rename = "bootID")]
    #[schemars(length(min = 1, max = 64))]
    pub boot_id: String,
}

impl DpuSpec {
    /// It gets a namespace and an identity.
    pub fn is_admitted(&self) -> bool {
        self.approved || self.type_.is_node()
    }
}

/// What the DPU's agent says of it; `namespace` and some conditions are the controller's.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DpuStatus {
    /// DPU, SmartNIC or NIC.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<DpuType>,
    /// The namespace of this DPU's attachments. Written by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Changes with every boot of the DPU.
    #[serde(rename = "bootID", default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The version of the DPU's agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The serial number of the server that this DPU sits in, as far as the DPU knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_serial_number: Option<String>,
    /// How much the DPU can present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<DpuCapacity>,
    /// Capacity less what is presented now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<DpuCapacity>,
    /// Buses on which a disk can be presented: NVMe, VirtioBlk.
    #[serde(default)]
    pub buses: Vec<crate::machine::DiskBus>,
    /// The servers, by their processors as uname -m calls them, whose own disks the agent can have erased: x86_64.
    #[serde(default)]
    pub erasers: Vec<String>,
    /// The servers, by their processors as uname -m calls them, for which the agent has a hold disk: x86_64.
    #[serde(default)]
    pub hold_disks: Vec<String>,
    /// Buses on which the host sees a new size without a power cycle.
    #[serde(default)]
    pub online_resize_buses: Vec<crate::machine::DiskBus>,
    /// The NVMe controller whose first disk the host boots: what a boot option of the server's firmware is known by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_controller: Option<BootController>,
    /// CSI drivers whose volumes the agent connects natively, and "*" where kubelet connects those of any other.
    #[serde(default)]
    pub connectors: Vec<ConnectorStatus>,
    /// Disks and NICs that the host was shown and that no attachment explains any more: after a restore of etcd, or of another
    /// cluster. They are kept and served until the host is reported powered off, their storage refuses them, or an
    /// administrator says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orphans: Vec<Orphan>,
    /// Which of the orphans the agent may detach. Written by the controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releasable: Vec<Releasable>,
    /// The BMC that was found to be this DPU's own: what the condition BmcVerified rests on. Written by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_bmc: Option<VerifiedBmc>,
    /// The server that the BMC of the Hardware was read of: what the condition HostVerified rests on. Written by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_host: Option<VerifiedHost>,
    /// What the network knows this DPU by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<DpuNetwork>,
    /// How often the agent has found that the API server went back to an earlier state. Told with what the host has, as of a
    /// list that was read after that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub went_back: u64,
    /// The value of metalplane.io/went-back on the agent's Lease up to which every Dpu was asked for a report. Written by the
    /// controller.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub went_back_handled: u64,
    /// Ready, Approved, Parked, HostVerified, BmcVerified, HostRestricted, SharedStorageCredential, OrphansHeld, BootWindow, ExposuresKnown, BootOptionKnown, ServesHost.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum DpuType {
    #[default]
    #[serde(rename = "DPU")]
    Dpu,
    SmartNIC,
    #[serde(rename = "NIC")]
    Nic,
}

impl DpuType {
    /// An ordinary node: it gives NICs to its own pods, and presents nothing to a host.
    pub fn is_node(self) -> bool {
        matches!(self, Self::Nic | Self::SmartNIC)
    }
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DpuCapacity {
    /// How many disks.
    pub disks: u32,
    /// How many NICs.
    pub nics: u32,
    /// One pool for disks and NICs.
    pub hot_plug_ports: u32,
}

/// As the host's firmware sees it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootController {
    /// The same for every machine on this DPU.
    pub serial_number: String,
    /// The model number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The namespace of the boot disk.
    #[serde(rename = "namespaceID")]
    pub namespace_id: u32,
    /// Of that namespace, 16 hexadecimal digits. Absent: it has none that identifies it.
    #[serde(rename = "eui64", default, skip_serializing_if = "Option::is_none")]
    pub eui64: Option<String>,
    /// The PCIe address of the function in the host, where the DPU knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectorStatus {
    /// The CSI driver's name; "*": any, by kubelet.
    pub driver: String,
    /// How its storage can refuse a silent holder: TargetAcl, CephBlocklist, ScsiPr, OwnDriver or None.
    pub fence: String,
    /// Why no golden image can be imported into its volumes by this DPU. Absent: it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_refusal: Option<String>,
}

/// A disk or NIC that the host was shown and that no attachment explains.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Orphan {
    /// Disk or Nic.
    pub kind: OrphanKind,
    /// The UID of the attachment that it was presented for.
    pub uid: String,
    /// The epoch of its grant.
    pub epoch: u64,
    /// The name of that attachment, if the DPU remembers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment_name: Option<String>,
    /// The volume of a disk. A cloud-init disk has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<OrphanVolume>,
    /// What the logical network knows a NIC by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logical_port: Option<String>,
    /// The MAC address of a NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// The addresses of a NIC's guest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum OrphanKind {
    #[default]
    Disk,
    Nic,
}

impl OrphanKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disk => "Disk",
            Self::Nic => "Nic",
        }
    }
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrphanVolume {
    /// The CSI driver.
    pub driver: String,
    /// The CSI volume handle.
    pub volume_handle: String,
}

pub(crate) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DpuNetwork {
    /// The name of its chassis in OVN: `external_ids:system-id` of Open vSwitch.
    pub chassis: String,
}

/// One of the orphans, by the UID of its attachment and the epoch of its grant.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, JsonSchema)]
pub struct Releasable {
    /// As in status.orphans.
    pub uid: String,
    /// As in status.orphans.
    pub epoch: u64,
}

/// Who may claim which Hardware of this (inventory) namespace, and how it is cleaned. Without a policy nobody may.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "HardwarePolicy",
    plural = "hardwarepolicies",
    shortname = "hp",
    category = "metal",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    doc = "Who may claim which Hardware of this namespace, and how it is cleaned at release.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Local-Disks", type_ = "string", json_path = ".spec.releasePolicy.localDisks"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct HardwarePolicySpec {
    /// The Hardware this policy is about; empty: all of this namespace.
    #[serde(default)]
    pub selector: LabelSelector,
    /// The namespaces whose machines may claim it; empty selector: all namespaces.
    #[serde(default)]
    pub claim_namespaces: LabelSelector,
    /// What is done to the Hardware when its machine gives it back.
    #[serde(default)]
    pub release_policy: ReleasePolicy,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleasePolicy {
    /// Keep: local disks are left as they are. Erase: the server is free when its disks are shown to be erased, by an
    /// installer from the network or, with a DPU, by the DPU's eraser. No machine with boot.strategy: Workflow is placed on
    /// a server with a DPU then, nor any machine where the DPU's agent has no eraser. Of several policies that allow a
    /// claim, one that says Erase counts.
    #[serde(default)]
    pub local_disks: LocalDisks,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
pub enum LocalDisks {
    #[default]
    Keep,
    Erase,
}
