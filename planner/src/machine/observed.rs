//! Everything that a plan for one machine rests on, as the controller gathered it.

use super::orphans::OrphanOn;
use super::plan::Target;
use crate::host::HostObserved;
use crate::protocol::Protocol;
use crate::reason::{Blocked, Reason};
use crate::seen::Seen;
use api::machine::{ImageKind, RunStrategy};
use api::tinkerbell::{Hardware, Template, Workflow};
use api::{
    BareMetalMachine, DiskAttachment, Dpu, HardwarePolicy, MachineMigration, NicAttachment, Subnet, VNic, VolumeHold,
    labels,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `Arc` because the controller's caches hold the same objects.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    pub machine: Arc<BareMetalMachine>,
    /// There is no such machine any more: what was made for it too late is given back ([`super::leftovers`]).
    pub gone: bool,
    /// Labels of the machine's namespace, for policies.
    pub namespace_labels: BTreeMap<String, String>,
    /// The Hardware that is claimed by this machine (two while it moves); while there is none, or the machine is gone, the whole inventory.
    pub hardware: Vec<Arc<Hardware>>,
    pub policies: Vec<Arc<HardwarePolicy>>,
    /// The DPUs of that Hardware.
    pub dpus: Vec<DpuSeen>,
    /// Of Hardware that may be claimed: the Workflow that runs there, by the Hardware's name.
    pub busy: BTreeMap<String, String>,
    /// The Template that the spec names, in the machine's namespace.
    pub template: Option<Arc<Template>>,
    /// In the inventory namespace, made for this machine: copies of that Template, and their Workflows.
    pub templates: Vec<Arc<Template>>,
    pub workflows: Vec<Arc<Workflow>>,
    /// The claimed host.
    pub bmc: BmcSeen,
    /// By name: the claims that the spec names or that are marked as used by this machine.
    pub claims: BTreeMap<String, ClaimSeen>,
    pub images: BTreeMap<(ImageKind, String), ImageSeen>,
    /// In the machine's namespace.
    pub snapshots: BTreeMap<String, SnapshotSeen>,
    /// Of the claims' volumes, whoever made them, and all that are labelled with this machine.
    pub volume_attachments: Vec<Arc<VolumeAttachment>>,
    /// Of the claims' volumes, and all that are labelled with this machine.
    pub holds: BTreeMap<String, Arc<VolumeHold>>,
    /// Of this machine (by owner UID), in whatever namespace.
    pub disk_attachments: Vec<Arc<DiskAttachment>>,
    pub nic_attachments: Vec<Arc<NicAttachment>>,
    /// Of this machine.
    pub holder_pods: Vec<HolderPodSeen>,
    /// Of the claims' volumes, whatever DPU reports them.
    pub orphans: Vec<OrphanOn>,
    /// Why nothing may be granted on any DPU now (*TimeWentBack*).
    pub no_grants: Option<Reason>,
    /// By CSI driver: how its storage can be told to refuse a silent holder, in the words of `Dpu.status.connectors`.
    pub fences: BTreeMap<String, String>,
    /// By the UID of an attachment: why its storage could not be told to let it in, or to refuse it.
    pub fence_problems: BTreeMap<String, String>,
    /// The image of a holder pod's only container.
    pub holder_image: String,
    pub subnets: BTreeMap<String, Arc<Subnet>>,
    /// All of the machine's namespace.
    pub vnics: BTreeMap<String, Arc<VNic>>,
    pub cloud_init: CloudInitSeen,
    /// Of this machine, whoever asked for them.
    pub migrations: Vec<Arc<MachineMigration>>,
    /// The operation that has the machine's lock is gone.
    pub lock_is_void: bool,
}

#[derive(Debug, Clone, Default)]
pub struct DpuSeen {
    pub dpu: Arc<Dpu>,
    /// Its agent's Lease has not changed for five seconds of the controller's monotonic clock.
    pub silent: bool,
    /// When its agent was last heard.
    pub heard_at: Option<Timestamp>,
    /// Its Node carries the out-of-service taint.
    pub out_of_service: bool,
    /// Its own BMC, which `spec.bmcRef` names.
    pub bmc: BmcSeen,
    /// The machines that have something attached to its host, by UID, with their names.
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

    /// Way out 13 of docs/design/fencing.md: an administrator's word, both halves of it, about the boot that was last seen.
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
pub struct ImageSeen {
    pub uid: String,
    pub ready: bool,
    /// Why not: the reason of its condition Ready.
    pub why: String,
    pub snapshot_name: String,
    pub snapshot_namespace: String,
    pub size_bytes: u64,
    pub storage_class: Option<String>,
    /// URL and checksum of an image that is fetched by HTTP.
    pub http: Option<(String, String)>,
    /// Of a cluster image: the snapshot's content, from which a snapshot in another namespace is made.
    pub content: Option<ContentSeen>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentSeen {
    pub driver: String,
    pub handle: String,
    pub class: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotSeen {
    pub ready: bool,
    pub restore_size_bytes: Option<u64>,
    pub error: Option<String>,
}

/// What the seed disk, or what the guest is told at the metadata address, is made from. Read only while that is not granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudInitSeen {
    pub user_data: Option<String>,
    pub network_data: Option<String>,
    /// The Secret and key that is asked for and not there.
    pub missing: Option<(String, String)>,
}

impl Observed {
    pub fn uid(&self) -> &str {
        uid(&self.machine.metadata)
    }

    pub fn name(&self) -> &str {
        name(&self.machine.metadata)
    }

    pub fn namespace(&self) -> &str {
        self.machine.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn deleting(&self) -> bool {
        self.machine.metadata.deletion_timestamp.is_some()
    }

    /// Everything goes away from its Hardware: deleted, or on the way to another.
    pub fn gives_back(&self) -> bool {
        self.deleting() || super::claim::moves_to(self).is_some()
    }

    pub fn paused(&self) -> bool {
        annotation(&self.machine.metadata, labels::PAUSED).is_some_and(|value| value != "false")
    }

    pub fn run_strategy(&self) -> RunStrategy {
        self.machine.spec.run_strategy
    }
}

pub fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.as_ref().is_some_and(|all| all.iter().any(|f| f == finalizer))
}

/// Marked as used by the machine with this UID, and kept by the finalizer.
pub fn in_use_by(meta: &ObjectMeta, machine_uid: &str) -> bool {
    has_finalizer(meta, labels::FINALIZER_IN_USE)
        && annotation(meta, &format!("{}{machine_uid}", labels::IN_USE_BY)).is_some()
}
