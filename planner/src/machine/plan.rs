//! A plan is data: what to do, what is awaited, and the status to write.

pub use crate::host::BmcNeed;
pub use crate::late::SelectNode;
pub use crate::meta::Target;
pub use crate::writer::{CreateVolumeAttachment, FenceOrder, TakeHold, rests_on_silence};

use super::observed::ContentSeen;
use super::steps::Steps;
use crate::boot_option::discovery;
use crate::erase::{self, Report};
use crate::host::{BootChange, MediumChange, PowerAction};
use crate::install::Record;
use crate::writer;
use api::dpu::LocalDisks;
use api::hold::{FenceRecord, Holder};
use api::machine::{BareMetalMachineStatus, BootStrategy};
use api::tinkerbell::{Template, Workflow};
use api::{DiskAttachment, Limits, MachineMigration, NicAttachment, VNic};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// What one round decided. `actions` may be done in any order or at the same time; the one disruptive action of a plan
/// comes after them. That there is at most one is a matter of type.
#[derive(Debug, Clone)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub disruptive: Option<Disruptive>,
    pub steps: Steps,
    pub status: BareMetalMachineStatus,
    /// When to plan again if nothing happens before.
    pub wake_at: Option<Timestamp>,
    pub bmc: BmcNeed,
    /// The same of DPUs' own BMCs, each by the name of its bmc.tinkerbell.org Machine.
    pub dpu_bmcs: BTreeMap<String, BmcNeed>,
    /// What is told as an Event.
    pub tell: Vec<Told>,
}

impl Plan {
    /// Nothing to do in this round.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.disruptive.is_none()
    }
}

/// What interrupts, or decides what interrupts, a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disruptive {
    Power(PowerOrder),
    ConfigureBoot(BootChange),
    /// What is in the virtual CD drive of the host's BMC.
    ChangeMedium(MediumChange),
}

/// A power action with the record that is written before it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerOrder {
    pub action: PowerAction,
    /// Set where this starts the host with everything presented.
    pub started_boot_id: Option<String>,
    /// The UID of the Workflow for which this starts the host from the network.
    pub started_for: Option<String>,
    /// The restart request that this action carries out.
    pub restart: Option<Timestamp>,
    pub attempts: u32,
    /// What the DPU's agent had told of reads of the boot disk, where this powers the host on.
    pub boot_disk_reads: Option<String>,
    /// The host has not read its boot disk: that is why this powers it off.
    pub booted_elsewhere: bool,
    /// This powers the host on into its firmware's setup.
    pub into_setup: bool,
    /// By what the BMC is asked to boot the host from the network, in this start or in the next one.
    pub netboot_by: Option<String>,
    /// The agent of the Workflow for which the host was started is no longer heard, or is heard long after that Workflow has ended: that is why this
    /// powers the host off, or resets it.
    pub for_agent: bool,
}

impl PowerOrder {
    pub fn plain(action: PowerAction) -> Self {
        Self {
            action,
            started_boot_id: None,
            started_for: None,
            restart: None,
            attempts: 0,
            boot_disk_reads: None,
            booted_elsewhere: false,
            into_setup: false,
            netboot_by: None,
            for_agent: false,
        }
    }
}

/// Something that went well and is told once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    HardwareClaimed {
        hardware: String,
    },
    /// A workflow has installed the machine.
    Installed {
        hardware: String,
        workflow: String,
    },
    VolumeCloned {
        disk: String,
        claim: String,
    },
    DiskAttached {
        disk: String,
        dpu: String,
    },
    NicAttached {
        interface: String,
        dpu: String,
    },
    /// The same while the host runs.
    NicPlugged {
        interface: String,
        dpu: String,
    },
    Reachable {
        interface: String,
        address: String,
    },
    GuestPoweredOff {
        message: String,
    },
    Migrating {
        hardware: String,
        migration: String,
    },
    /// What became of the disks of a server at its release.
    Released {
        report: Box<Report>,
        hardware: String,
    },
    Waiting {
        reason: &'static str,
        message: String,
    },
    Failed {
        reason: &'static str,
        message: String,
    },
}

impl Told {
    /// Somebody may have to do something.
    pub fn is_warning(&self) -> bool {
        match self {
            Self::GuestPoweredOff { .. } | Self::Waiting { .. } | Self::Failed { .. } => true,
            Self::Released { report, .. } => report.result != "Erased",
            Self::HardwareClaimed { .. }
            | Self::Installed { .. }
            | Self::VolumeCloned { .. }
            | Self::DiskAttached { .. }
            | Self::NicAttached { .. }
            | Self::NicPlugged { .. }
            | Self::Reachable { .. }
            | Self::Migrating { .. } => false,
        }
    }

    /// The Event's reason.
    pub fn name(&self) -> &'static str {
        match self {
            Self::HardwareClaimed { .. } => "HardwareClaimed",
            Self::Installed { .. } => "Installed",
            Self::VolumeCloned { .. } => "VolumeCloned",
            Self::DiskAttached { .. } => "DiskAttached",
            Self::NicAttached { .. } => "NicAttached",
            Self::NicPlugged { .. } => "NicPlugged",
            Self::Reachable { .. } => "Reachable",
            Self::GuestPoweredOff { .. } => "GuestPoweredOff",
            Self::Migrating { .. } => "Migrating",
            Self::Released { report, .. } if report.result == "Erased" => "DisksErased",
            Self::Released { .. } => "ReleasedWithData",
            Self::Waiting { reason, .. } | Self::Failed { reason, .. } => reason,
        }
    }

    pub fn message(&self) -> String {
        match self {
            Self::HardwareClaimed { hardware } => {
                format!("the controller has claimed Hardware '{hardware}' for the machine")
            }
            Self::Installed { hardware, workflow } => {
                format!("Workflow '{workflow}' has installed the machine on Hardware '{hardware}'")
            }
            Self::VolumeCloned { disk, claim } => format!("PersistentVolumeClaim '{claim}' of disk '{disk}' is bound"),
            Self::DiskAttached { disk, dpu } => format!("Dpu '{dpu}' presents disk '{disk}' to the host"),
            Self::NicAttached { interface, dpu } => format!("Dpu '{dpu}' presents interface '{interface}' to the host"),
            Self::NicPlugged { interface, dpu } => {
                format!(
                    "Dpu '{dpu}' has hot-plugged interface '{interface}' into the running host, and its port is in force"
                )
            }
            Self::Reachable { interface, address } => {
                format!("the guest answers on interface '{interface}' as {address}")
            }
            Self::GuestPoweredOff { message } => message.clone(),
            Self::Migrating { hardware, migration } => {
                format!(
                    "the DPU of Hardware '{hardware}' is in maintenance: MachineMigration '{migration}' moves the machine"
                )
            }
            Self::Released { report, hardware } => report.told(hardware),
            Self::Waiting { message, .. } | Self::Failed { message, .. } => message.clone(),
        }
    }
}

/// Everything that interrupts nobody. Each may be carried out again and ends in the same state.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    AddMachineFinalizer,
    RemoveMachineFinalizer,
    /// The operation that had the machine is gone.
    ClearLock,
    CreateMigration(Box<MachineMigration>),
    DeleteMigration {
        target: Target,
    },
    /// The request of a Manual machine was carried out.
    ClearPowerRequest,

    /// Compare-and-swap of the annotations. One for a workflow rests on a list of all Dpus besides ([`super::confirm_bare`]).
    ClaimHardware {
        name: String,
        uid: String,
        resource_version: String,
        strategy: BootStrategy,
        local_disks: LocalDisks,
    },
    /// The copy of the machine's Template that an installation runs.
    CreateTemplate(Box<Template>),
    CreateWorkflow(Box<Workflow>),
    /// Compare-and-swap of what is on record beside the claim.
    RecordInstall {
        name: String,
        uid: String,
        resource_version: String,
        record: Record,
        /// The request that a beginning carries out.
        request: Option<String>,
        /// Of a beginning: what cloud-init in the installed system reads, written before that is on record.
        seed: Option<Seed>,
    },
    /// The disks that installers have told of, beside the claim.
    RecordDisks {
        name: String,
        uid: String,
        resource_version: String,
        disks: Vec<erase::Disk>,
    },
    /// The same of the erasing at release; with what became of the disks where it is over.
    RecordErase {
        name: String,
        uid: String,
        resource_version: String,
        record: erase::Record,
        /// Of a beginning on a server with a DPU: the DiskAttachment that is on record, where a Workflow's UID stands otherwise.
        eraser: Option<Target>,
        report: Option<Box<Report>>,
    },
    DeleteTemplate {
        target: Target,
    },
    DeleteWorkflow {
        target: Target,
    },
    /// The Secret of an installation.
    DeleteInstallSeed {
        target: Target,
    },
    /// Remembers the boot order that was there before; never overwrites one.
    RememberBootOrder {
        name: String,
        order: String,
    },
    /// Where the DPU's boot disk was found, for the next time; `None`: what is on record counts no more.
    RememberBootPath {
        name: String,
        path: Option<String>,
    },
    /// Beside the claim: how the discovery of the boot option ended.
    RecordDiscovery {
        name: String,
        record: discovery::Record,
    },
    /// By what the BMC was asked when the server booted from the network, for the next time; `None`: by what is asked for first.
    RememberNetboot {
        name: String,
        by: Option<String>,
    },
    /// Which server the BMC is of, before that is started from the network; `None`: the BMC does not tell.
    RememberSystemUuid {
        name: String,
        uuid: Option<String>,
    },
    UnclaimHardware {
        name: String,
    },
    /// The machine moves: the first is given up, once the second is read from quorum as still claimed.
    MoveOn {
        from: String,
        to: String,
    },

    CreateClaim(Box<PersistentVolumeClaim>),
    /// A snapshot in the machine's namespace of a cluster image's content.
    ImportSnapshot(ImportSnapshot),
    ExpandClaim {
        target: Target,
        size: Quantity,
    },
    /// Another VolumeAttributesClass.
    ModifyClaim {
        target: Target,
        class: String,
    },
    /// The node for which a late-bound claim's volume is made.
    SelectNode(SelectNode),
    /// The claim's status says that it has grown, as kubelet would.
    CompleteExpansion {
        target: Target,
        size: Quantity,
    },
    /// Finalizer and annotation: *ClaimIsProtected*.
    ProtectClaim {
        target: Target,
    },
    UnprotectClaim {
        target: Target,
        hold: Option<String>,
    },
    DeleteClaim {
        target: Target,
    },

    CreateDiskAttachment(Box<DiskAttachment>),
    /// *HoldIsTakenBySwap*: empty → this holder, epoch + 1.
    TakeHold(TakeHold),
    /// The connector's own claim.
    CreateVolumeAttachment(CreateVolumeAttachment),
    /// The same where the connector is kubelet.
    CreateHolderPod(Box<Pod>),
    DeleteHolderPod {
        target: Target,
        /// Proven: nobody is there to end it.
        node_is_down: bool,
    },
    /// *GrantIsForOneAttachment*. A seed's data are written to its Secret first.
    GrantDisk {
        target: Target,
        epoch: u64,
        seed: Option<Seed>,
        /// Where the connector is kubelet.
        holder_pod_uid: Option<String>,
    },
    ResizeDisk {
        target: Target,
        size: Quantity,
    },
    /// The whole of it: what is left out bounds the disk no more.
    LimitDisk {
        target: Target,
        limits: Limits,
    },
    /// `release`, then delete.
    ReleaseDisk {
        target: Target,
    },
    /// Of an unresponsive agent: the proof into `fences`, then the attachment's finalizer goes. Without a fence: it was never granted.
    AbandonDisk {
        target: Target,
        hold: Option<String>,
        fence: Option<FenceRecord>,
    },
    /// *StorageRefuses*: the storage refuses the identity, which is verified; only then the proof is written and the finalizer goes.
    FenceDisk {
        target: Target,
        hold: String,
        order: Box<FenceOrder>,
    },
    /// *GoneIsSeen*, *PodEndIsSeen*, *HoldIsEmptiedBySwap*: quorum read says gone, the connector's claim goes, then the hold is emptied.
    FreeVolume {
        hold: String,
        holder: Holder,
        /// The connector's claim: one of these two.
        volume_attachment: String,
        holder_pod: Option<String>,
        /// The holder pod's node went down after the agent had let go: the proof goes on record, for by that the pod ends.
        fence: Option<FenceRecord>,
    },
    DeleteVolumeAttachment {
        name: String,
    },

    CreateVNic(Box<VNic>),
    /// The mark names the interface, and so the attachment that may become the holder.
    ProtectVNic {
        target: Target,
        interface: String,
    },
    /// Of a VNic that was created for the machine: those that its interface names.
    SetSecurityGroups {
        target: Target,
        groups: Option<Vec<String>>,
    },
    CreateNicAttachment(Box<NicAttachment>),
    TakeVNic {
        target: Target,
        holder: Holder,
        mac_address: String,
    },
    /// What the guest is told at the metadata address is written to its Secret first.
    GrantNic {
        target: Target,
        epoch: u64,
        metadata: Option<Seed>,
    },
    ReleaseNic {
        target: Target,
    },
    AbandonNic {
        target: Target,
    },
    /// Quorum read says that the holder is gone, then the holder is emptied.
    FreeVNic {
        target: Target,
        holder: Holder,
    },
    UnprotectVNic {
        target: Target,
    },
    DeleteVNic {
        target: Target,
    },
}

impl Action {
    /// What is told once it is done, of actions after which no status of the machine need be written.
    pub fn told(&self) -> Option<Told> {
        match self {
            Self::RecordErase { name, report: Some(report), .. } => {
                Some(Told::Released { report: report.clone(), hardware: name.clone() })
            }
            _ => None,
        }
    }
}

impl From<writer::Action> for Action {
    fn from(action: writer::Action) -> Self {
        match action {
            writer::Action::TakeHold(take) => Self::TakeHold(take),
            writer::Action::CreateVolumeAttachment(create) => Self::CreateVolumeAttachment(create),
            writer::Action::Release { target } => Self::ReleaseDisk { target },
            writer::Action::Abandon { target, hold, fence } => Self::AbandonDisk { target, hold, fence },
            writer::Action::Fence { target, hold, order } => Self::FenceDisk { target, hold, order },
            writer::Action::FreeVolume(writer::FreeVolume { hold, holder, volume_attachment, holder_pod, fence }) => {
                Self::FreeVolume { hold, holder, volume_attachment, holder_pod, fence }
            }
            writer::Action::DeleteVolumeAttachment { name } => Self::DeleteVolumeAttachment { name },
            writer::Action::DeleteHolderPod { target, node_is_down } => Self::DeleteHolderPod { target, node_is_down },
            writer::Action::UnprotectClaim { target, hold } => Self::UnprotectClaim { target, hold },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportSnapshot {
    pub name: String,
    pub namespace: String,
    pub content: ContentSeen,
    pub image_uid: String,
}

/// What cloud-init in the guest reads, by the names of NoCloud's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    pub secret_name: String,
    pub data: BTreeMap<String, String>,
}
