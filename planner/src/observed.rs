//! What is observed of the things that machines, images and Dpus share: DPUs and their BMCs, claims and their volumes, orphans.

use crate::dpu::boot_disk::BootDiskReads;
use crate::host::HostObserved;
use crate::meta::{Target, name, target, uid};
use crate::protocol::Protocol;
use crate::reason::Blocked;
use crate::seen::Seen;
use api::Dpu;
use api::dpu::Orphan;
use api::quantity::{bytes, quantity};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct DpuSeen {
    pub dpu: Arc<Dpu>,
    /// Its agent's Lease has not changed for five seconds of the controller's monotonic clock.
    pub silent: bool,
    /// When its agent was last heard.
    pub heard_at: Option<Timestamp>,
    /// What its agent has counted of its host's reads.
    pub boot_disk_reads: Option<BootDiskReads>,
    /// Its Node carries the out-of-service taint.
    pub out_of_service: bool,
    /// Its own BMC, which `spec.bmcRef` names.
    pub bmc: BmcSeen,
    /// Whose disks and NICs its host has, by UID: machines, and pods that run on one ("machine 'bm-01'").
    pub attached: BTreeMap<String, String>,
}

impl DpuSeen {
    pub fn name(&self) -> &str {
        name(&self.dpu.metadata)
    }

    pub fn uid(&self) -> &str {
        uid(&self.dpu.metadata)
    }

    pub fn namespace(&self) -> Option<&str> {
        self.dpu.status.as_ref()?.namespace.as_deref()
    }

    pub fn boot_id(&self) -> Option<&str> {
        self.dpu.status.as_ref()?.boot_id.as_deref()
    }

    /// *ConfirmedDownIsProof* of docs/design/fencing.md: an administrator's word, both halves of it, about the boot that was last seen.
    pub fn is_confirmed_down(&self) -> bool {
        let confirmed = self.dpu.spec.confirmed_down.as_ref().map(|down| down.boot_id.as_str());
        self.silent && self.out_of_service && confirmed.is_some() && confirmed == self.boot_id()
    }

    pub fn hardware_name(&self) -> Option<&str> {
        self.dpu.spec.hardware_ref.as_ref().map(|reference| reference.name.as_str())
    }
}

/// The last reading of a BMC, the claimed host's or a DPU's own, and what is wrong with it.
#[derive(Debug, Clone, Default)]
pub struct BmcSeen {
    pub host: Seen<HostObserved>,
    /// When the read that gave `host` was begun: an action that was sent later is not in it.
    pub read_at: Option<Timestamp>,
    /// Since which reading the BMC has told the same boot options and the same stage of POST.
    pub listing_since: Option<Timestamp>,
    /// Since when the host's firmware is in POST, where a reading before showed that it was not.
    pub post_since: Option<Timestamp>,
    pub problem: Option<BmcProblem>,
    /// When a power action of ours was last accepted.
    pub accepted_at: Option<Timestamp>,
    /// When a boot order was last sent, and how many have been since the BMC last showed what was sent.
    pub boot_sent_at: Option<Timestamp>,
    pub boot_attempts: u32,
    /// What the BMC said when it refused the last one for now: that was no attempt.
    pub boot_refused: Option<String>,
    /// Which BMC the name stands for (`VerifiedBmc::identity`); `None`: nobody has looked.
    pub identity: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BmcProblem {
    /// There is no object, no Secret or no address.
    Missing(String),
    /// Its bmc.tinkerbell.org Machine asks for a protocol that is not spoken.
    NotSpoken {
        machine: String,
        protocol: Protocol,
    },
    Unreachable(String),
    Unauthorized(String),
    /// Answers, but not usefully.
    Failed(String),
    /// It is the BMC of another server than the DPU sits in: the planner's own finding.
    WrongServer(Blocked),
}

impl BmcProblem {
    pub fn message(&self) -> String {
        match self {
            Self::Missing(message) | Self::Unreachable(message) => message.clone(),
            Self::Unauthorized(message) | Self::Failed(message) => message.clone(),
            Self::NotSpoken { machine, protocol } => format!(
                "bmc.tinkerbell.org Machine '{machine}' asks for {}, which is not supported yet; if that BMC speaks Redfish, write spec.connection.providerOptions.preferredOrder: [gofish]",
                protocol.name()
            ),
            Self::WrongServer(reason) => reason.message(),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct ClaimSeen {
    pub claim: Arc<PersistentVolumeClaim>,
    /// The bound PersistentVolume's CSI source.
    pub volume: Option<VolumeSeen>,
    /// The bound volume is not a CSI volume.
    pub not_csi: bool,
    /// Pods that use the claim.
    pub pods: Vec<String>,
    /// The last event about a claim that does not become Bound.
    pub event: Option<String>,
    /// Of a claim that is not bound: the provisioner of a StorageClass with `volumeBindingMode: WaitForFirstConsumer`,
    /// which waits to be told a node.
    pub binds_late: Option<String>,
    /// The VolumeAttributesClass that its volume has now.
    pub class: Option<ClassSeen>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassSeen {
    pub name: String,
    /// The CSI driver that it is for, and what it says; `None`: there is no class of that name.
    pub found: Option<(String, BTreeMap<String, String>)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeSeen {
    pub name: String,
    pub driver: String,
    pub handle: String,
    pub attributes: BTreeMap<String, String>,
}

impl VolumeSeen {
    pub fn hold_name(&self) -> String {
        api::names::hold(&self.driver, &self.handle)
    }
}

/// A bound claim and its volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound<'a> {
    pub claim: &'a ClaimSeen,
    pub volume: &'a VolumeSeen,
}

impl<'a> Bound<'a> {
    pub fn claim_name(&self) -> &'a str {
        name(&self.claim.claim.metadata)
    }

    pub fn target(&self) -> Target {
        target(&self.claim.claim.metadata)
    }

    /// What the volume has now.
    pub fn capacity(&self) -> Option<u64> {
        bytes(self.claim.claim.status.as_ref()?.capacity.as_ref()?.get("storage")?)
    }

    /// The same, for an attachment's `size`.
    pub fn size(&self) -> Option<Quantity> {
        self.capacity().map(quantity)
    }
}

/// A pod by which kubelet connects a volume of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HolderPodSeen {
    pub target: Target,
    pub attachment_uid: String,
    pub node: String,
    /// kubelet has connected its volume and started it.
    pub running: bool,
    /// It failed, or was refused by its node: kubelet gives up its volume.
    pub ended: bool,
    pub deleting: bool,
    /// Why it does not run.
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotSeen {
    pub ready: bool,
    pub restore_size_bytes: Option<u64>,
    pub error: Option<String>,
}

/// What a host has although no attachment explains it, and the DPU that reports it.
#[derive(Debug, Clone)]
pub struct OrphanOn {
    pub dpu: DpuSeen,
    pub orphan: Orphan,
}
