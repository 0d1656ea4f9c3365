//! Condition types and how they are set. True is good; `Ready` is computed from the others by one function in `planner`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Conditions of a BareMetalMachine, in the order in which they become true.
pub const HARDWARE_CLAIMED: &str = "HardwareClaimed";
pub const VOLUMES_READY: &str = "VolumesReady";
pub const DISKS_ATTACHED: &str = "DisksAttached";
pub const NICS_ATTACHED: &str = "NicsAttached";
/// Only of a machine that a workflow installs.
pub const INSTALLED: &str = "Installed";
pub const BOOT_CONFIGURED: &str = "BootConfigured";
pub const POWERED_ON: &str = "PoweredOn";
pub const GUEST_REACHABLE: &str = "GuestReachable";
pub const READY: &str = "Ready";
pub const PAUSED: &str = "Paused";
pub const RESTART_REQUIRED: &str = "RestartRequired";
/// Every disk is held to what its VolumeAttributesClass says. Only of a machine with such a disk.
pub const DISKS_LIMITED: &str = "DisksLimited";

/// Conditions of a DiskAttachment or NicAttachment: the volume is connected / the port is plugged; the host can see it.
pub const CONNECTED: &str = "Connected";
pub const EXPOSED: &str = "Exposed";
/// The host sees the size that was asked for.
pub const RESIZED: &str = "Resized";
/// The disk is held to the limits that were asked for. Only of a disk that has some.
pub const LIMITED: &str = "Limited";
/// All of the image is in the volume, verified and synced.
pub const IMPORTED: &str = "Imported";
/// Of a NicAttachment whose guest asks for its metadata, and of its VNic. Only ever false: nobody answers the guest.
pub const METADATA_SERVED: &str = "MetadataServed";
/// The storage refuses the identity that was granted. The one condition of which true is bad.
pub const FENCED: &str = "Fenced";

/// Of a Dpu, and of the HardwareReport of a server that was discovered: an administrator has said that it may be used.
pub const APPROVED: &str = "Approved";
/// Of a HardwareReport: a Workflow was made for the server's agent by a WorkflowRuleSet.
pub const ENROLLED: &str = "Enrolled";
/// Of a HardwareReport whose Hardware has fields of Tinkerbell's that nothing serves: then it is there, and false.
pub const FIELDS_SERVED: &str = "FieldsServed";
/// Of a HardwareReport whose server DHCP does not serve: then it is there, and false.
pub const DHCP_SERVED: &str = "DhcpServed";

/// Conditions of a Dpu.
pub const PARKED: &str = "Parked";
/// The host's BMC reports the serial number that is expected of the server that the DPU sits in.
pub const HOST_VERIFIED: &str = "HostVerified";
/// The boot option of the DPU's disk was found in the list of the server's firmware. Only where it is looked for before a machine is there.
pub const BOOT_OPTION_KNOWN: &str = "BootOptionKnown";
/// Of a Dpu whose server a machine has claimed to be installed by a workflow: then it is there, and false.
pub const SERVES_HOST: &str = "ServesHost";
/// The BMC that `spec.bmcRef` names was read on while the DPU's agent answered, with the serial number that is expected.
pub const BMC_VERIFIED: &str = "BmcVerified";
/// The host can do nothing to its DPU.
pub const HOST_RESTRICTED: &str = "HostRestricted";
/// What the DPU has to reach the storage reaches the volumes of other DPUs, too: true is what to know before the DPU's root is
/// given to anybody.
pub const SHARED_STORAGE_CREDENTIAL: &str = "SharedStorageCredential";

/// The host has disks or NICs that no attachment explains (`status.orphans`): true is what to look into.
pub const ORPHANS_HELD: &str = "OrphansHeld";
/// After a boot of the DPU its switch could forward for NICs of the boot before, until the agent took their ports out: true is what to
/// order the start of the switch for.
pub const BOOT_WINDOW: &str = "BootWindow";
/// False: the API server was put back to an earlier state, and what the DPU's host has been shown since is not known yet.
pub const EXPOSURES_KNOWN: &str = "ExposuresKnown";

/// Of a VNic: each of its addresses, and a MAC address that it asks for, has an AddressHold that names this VNic.
pub const ADDRESSES_ASSIGNED: &str = "AddressesAssigned";
/// Of a VNic: OVN's north-bound database has its port, in its groups, for whoever holds the VNic. Of a Subnet or SecurityGroup: the
/// database has its rows, for the generation that the condition names.
pub const PROGRAMMED: &str = "Programmed";
/// Of a Vpc, Subnet or SecurityGroup: every chassis with a port of it has installed its rows; no packet is judged by older ones. Of a
/// VNic: its port works on the chassis of whoever holds the VNic, by the rows of the generation that the condition names.
pub const IN_FORCE: &str = "InForce";
/// Of a ProviderNetwork: each of its gateway nodes may carry gateways. Ready asks for one of them.
pub const GATEWAY_NODES_USED: &str = "GatewayNodesUsed";
/// Of an object of the network that is being deleted: nothing uses it any more.
pub const DELETABLE: &str = "Deletable";

/// Of a MachineRestore: the machine has its old content. Of a MachineMigration: it is on the other server.
pub const COMPLETE: &str = "Complete";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

/// Sets or adds a condition; `lastTransitionTime` moves only when the status changes.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let Some(old) = conditions.iter_mut().find(|c| c.type_ == type_) else {
        return conditions.push(Condition {
            type_: type_.to_owned(),
            status: status.as_str().to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: generation,
            last_transition_time: Time(now),
        });
    };
    if old.status != status.as_str() {
        old.last_transition_time = Time(now);
    }
    // Most say what they said before.
    for (there, said) in [(&mut old.status, status.as_str()), (&mut old.reason, reason), (&mut old.message, message)] {
        if there != said {
            said.clone_into(there);
        }
    }
    old.observed_generation = generation;
}

/// Takes away what no longer says anything.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}

pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    get(conditions, type_).is_some_and(|c| c.status == "True")
}
