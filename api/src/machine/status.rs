//! What is observed of a machine.

use super::BootStrategy;
use crate::Limits;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is observed of the machine.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalMachineStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// HardwareClaimed, VolumesReady, DisksAttached, NicsAttached, Installed (only of a machine that a workflow installs),
    /// BootConfigured, PoweredOn, GuestReachable; Ready is computed from them. Outside Ready: Paused, RestartRequired, DisksLimited.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// One word for people; programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<MachineState>,
    /// The Hardware that is claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_name: Option<String>,
    /// What Auto became; decided once, at the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_strategy: Option<BootStrategy>,
    /// The last installation, as the Hardware has it on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallStatus>,
    /// The host's power as its BMC last said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerStatus>,
    /// The machine's addresses.
    #[serde(default)]
    pub addresses: Vec<MachineAddress>,
    /// Each disk of the spec, and those that are still being taken away.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub disks: Vec<DiskStatus>,
    /// Each interface of the spec, and those that are still being taken away.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub interfaces: Vec<InterfaceStatus>,
    /// When each step of the last start began and ended. What changes while the machine runs is not in it. Bounded.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub timeline: Vec<TimelineEntry>,
    /// The last restart request that was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_restart_at: Option<Time>,
    /// Power-ons of a machine that runs Always but was found off, since it last stayed on for ten minutes.
    #[serde(default)]
    pub power_on_attempts: u32,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema)]
pub enum MachineState {
    Stopped,
    Provisioning,
    Starting,
    Running,
    Stopping,
    Migrating,
    Releasing,
    Terminating,
    Waiting,
    Failed,
    Unknown,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PowerStatus {
    /// On, Off, PoweringOn, PoweringOff or Unknown.
    pub state: String,
    /// Since when it was seen so.
    pub observed_at: MicroTime,
    /// The last power action that was sent; a new one is not sent before a reading that is younger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_action: Option<String>,
    /// When it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_action_at: Option<MicroTime>,
    /// When the BMC last accepted a power action. Earlier than lastActionAt: whether it has that one is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_action_accepted_at: Option<MicroTime>,
    /// The boot of the DPU on which the host was last started with everything presented.
    #[serde(rename = "startedBootID", default, skip_serializing_if = "Option::is_none")]
    pub started_boot_id: Option<String>,
    /// The UID of the Workflow for which the host was last powered on from the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_for: Option<String>,
    /// By what the BMC was asked to boot the host from the network for that Workflow: Once (a boot source override for one boot), Continuous (one
    /// for every boot), BootOption (the option of the NIC first in the boot order) or VirtualMedia (the installer's ISO in the BMC's virtual CD drive).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netboot_by: Option<String>,
    /// What the DPU's agent had told of reads of the boot disk when the host was last powered on, as on the agent's Lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_disk_reads: Option<String>,
    /// The host had not read its boot disk and was powered off; it stays off until it is stopped, or a restart is asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub booted_elsewhere: bool,
    /// The host was powered on into its firmware's setup, and was not off since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_setup: bool,
    /// How often that was done since the last start from the boot disk.
    #[serde(default, skip_serializing_if = "crate::dpu::is_zero")]
    pub setup_starts: u32,
    /// How often the host was powered off because the agent of the Workflow in startedFor was no longer heard, or reset because that agent was heard long
    /// after the Workflow had ended.
    #[serde(default, skip_serializing_if = "crate::dpu::is_zero")]
    pub agent_resets: u32,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallStatus {
    /// Counts the installations of this machine, from 1.
    pub number: u32,
    /// Begun or Done.
    pub phase: String,
    /// The Workflow in the inventory namespace.
    pub workflow_name: String,
    /// Its UID.
    #[serde(rename = "workflowUID")]
    pub workflow_uid: String,
    /// The request that it carries out (annotation metalplane.io/reinstall-requested-at).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The disk that it put the system on, as the installer tells; absent where it tells of none, or of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<InstalledDisk>,
}

/// The disk of an installed system, by what the firmware's boot options are compared with.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstalledDisk {
    /// Its serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
    /// Its World Wide Identifier as Linux has it: eui.…, nvme.…, naa.…
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwid: Option<String>,
    /// Its device path (UEFI 2.10, section 10.6), by where it is plugged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uefi_device_path: Option<String>,
    /// The GUIDs of its partitions that no other disk of the server had.
    #[serde(default, rename = "partitionGUIDs", skip_serializing_if = "Vec::is_empty")]
    pub partition_guids: Vec<String>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
pub struct MachineAddress {
    /// The interface's name in the spec; of a server's own NIC its MAC address.
    pub interface: String,
    /// The address, without a prefix length.
    pub address: String,
}

/// How far a disk or NIC is on its way to the host.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, Hash, JsonSchema)]
pub enum AttachPhase {
    /// The claim or VNic is not ready.
    #[default]
    Pending,
    /// The attachment exists, without a grant.
    Waiting,
    /// Granted; the DPU connects and presents it.
    Attaching,
    /// The host can see it.
    Attached,
    Detaching,
    Failed,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskStatus {
    /// The disk's name in the spec.
    pub name: String,
    /// The PersistentVolumeClaim behind the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// The Dpu that presents the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpu_name: Option<String>,
    /// The controller's serial number as the guest sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The namespace's identity as the guest sees it, for example uuid.<uuid>.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwid: Option<String>,
    /// What the host sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Quantity>,
    /// What its I/O is held to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<Limits>,
    /// Pending, Waiting (for a grant), Attaching, Attached, Detaching or Failed.
    #[serde(default)]
    pub phase: AttachPhase,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceStatus {
    /// The interface's name in the spec.
    pub name: String,
    /// The VNic behind the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnic_name: Option<String>,
    /// The Dpu that presents the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpu_name: Option<String>,
    /// The MAC address that the guest sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// Pending, Waiting (for a grant), Attaching, Attached, Detaching or Failed.
    #[serde(default)]
    pub phase: AttachPhase,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// A condition type, or PowerOnSent, FirstPacket.
    pub step: String,
    /// When the step began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// When the step was done. Left out: not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<MicroTime>,
    /// Of Installed: the actions of the Workflow that have begun, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub actions: Vec<TimelineAction>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimelineAction {
    /// The action's name in the Template.
    pub name: String,
    /// RUNNING, from when it was served until the next one is; SUCCESS, FAILED or TIMEOUT.
    pub state: String,
    /// When the controller saw that it was served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// How long it took, of one that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}
