//! Everything that a plan for one machine rests on, as the controller gathered it.

pub use crate::meta::{annotation, has_finalizer, in_use_by, label, name, uid};
pub use crate::observed::{
    BmcProblem, BmcSeen, ClaimSeen, ClassSeen, DpuSeen, HolderPodSeen, OrphanOn, SnapshotSeen, VolumeSeen,
};

use crate::host::InstallerIso;
use crate::reason::Reason;
use api::image::HttpSource;
use api::machine::{ImageKind, RunStrategy};
use api::tinkerbell::{Hardware, Template, Workflow};
use api::{
    BareMetalMachine, DiskAttachment, HardwarePolicy, HardwareReport, MachineMigration, NicAttachment, Subnet, VNic,
    VolumeHold, labels,
};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// `Arc` because the controller's caches hold the same objects.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    pub machine: Arc<BareMetalMachine>,
    pub own: Belongings,
    /// Of Hardware that may be claimed: what runs there, or is about to claim it, by the Hardware's name.
    pub busy: BTreeMap<String, String>,
    /// Of Hardware that may be claimed: another machine whose system runs there, although nothing at that Hardware says so any more.
    pub installed: BTreeMap<String, String>,
    /// Of Hardware that may be claimed by a machine that asks for the size of a local disk: what network boot has seen of the server, by
    /// the Hardware's name.
    pub reports: BTreeMap<String, Arc<HardwareReport>>,
    /// By the name of a Dpu: why VNics of the machine's Subnets cannot be on its chassis.
    pub unfit: BTreeMap<String, Reason>,
    /// The Template that the spec names, in the machine's namespace.
    pub template: Option<Arc<Template>>,
    pub images: BTreeMap<(ImageKind, String), ImageSeen>,
    /// In the machine's namespace.
    pub snapshots: BTreeMap<String, SnapshotSeen>,
    /// The image of a holder pod's only container.
    pub holder_image: String,
    /// By which it is pulled: Secrets of the pod's namespace.
    pub holder_pull_secrets: Vec<String>,
    pub subnets: BTreeMap<String, Arc<Subnet>>,
    pub cloud_init: CloudInitSeen,
    /// Of this machine, whoever asked for them.
    pub migrations: Vec<Arc<MachineMigration>>,
    /// The operation that has the machine's lock is gone.
    pub lock_is_void: bool,
}

/// What belongs to a machine: its server, and all that was made for it. It may outlive the machine ([`super::leftovers`]).
#[derive(Debug, Clone, Default)]
pub struct Belongings {
    /// Labels of the machine's namespace, for policies.
    pub namespace_labels: BTreeMap<String, String>,
    /// The Hardware that is claimed by this machine (two while it moves). While there is none: one that it may claim, and where none
    /// will do, or the machine is gone, the whole inventory.
    pub hardware: Vec<Arc<Hardware>>,
    /// By the name of one of that Hardware: why nobody who asks by the MAC address is answered by which it boots from the network.
    pub same_mac: BTreeMap<String, Reason>,
    pub policies: Vec<Arc<HardwarePolicy>>,
    /// The DPUs of that Hardware.
    pub dpus: Vec<DpuSeen>,
    /// In the inventory namespace, made for this machine: copies of its Template, and their Workflows.
    pub templates: Vec<Arc<Template>>,
    pub workflows: Vec<Arc<Workflow>>,
    /// The Secrets that its installations are given, by their metadata.
    pub install_seeds: Vec<ObjectMeta>,
    /// The claimed host.
    pub bmc: BmcSeen,
    /// Where the BMC of a server without a DPU reads the installer's ISO, if boot serves one for that.
    pub installer_iso: Option<InstallerIso>,
    /// Of the claimed Hardware: what network boot has seen of the host.
    pub report: Option<Arc<HardwareReport>>,
    /// By name: the claims that the spec names or that are marked as used by this machine.
    pub claims: BTreeMap<String, ClaimSeen>,
    /// Of the claims' volumes, whoever made them, and all that are labelled with this machine.
    pub volume_attachments: Vec<Arc<VolumeAttachment>>,
    /// Of the claims' volumes, and all that are labelled with this machine.
    pub holds: BTreeMap<String, Arc<VolumeHold>>,
    /// Of this machine (by owner UID), in whatever namespace.
    pub disk_attachments: Vec<Arc<DiskAttachment>>,
    pub nic_attachments: Vec<Arc<NicAttachment>>,
    /// Of the pods that run on this machine: they are the pods', and go before the machine's server does.
    pub pod_nics: Vec<Arc<NicAttachment>>,
    /// Of this machine.
    pub holder_pods: Vec<HolderPodSeen>,
    /// Of the claims' volumes and of the VNics, whatever DPU reports them; and all of its own DPUs'.
    pub orphans: Vec<OrphanOn>,
    /// By CSI driver: how its storage can be told to refuse a silent holder, in the words of `Dpu.status.connectors`.
    pub fences: BTreeMap<String, String>,
    /// By the UID of an attachment: why its storage could not be told to let it in, or to refuse it.
    pub fence_problems: BTreeMap<String, String>,
    /// Why nothing may be granted on any DPU now (*TimeWentBack*).
    pub no_grants: Option<Reason>,
    /// All of the machine's namespace.
    pub vnics: BTreeMap<String, Arc<VNic>>,
}

/// What a plan for a machine that no longer exists rests on.
#[derive(Debug, Clone, Default)]
pub struct Leftovers {
    pub of: Gone,
    pub own: Belongings,
}

/// A machine that no longer exists: it asks for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gone {
    pub uid: String,
    /// Where it was, as far as anything of it says so.
    pub namespace: String,
}

impl Deref for Observed {
    type Target = Belongings;

    fn deref(&self) -> &Belongings {
        &self.own
    }
}

impl DerefMut for Observed {
    fn deref_mut(&mut self) -> &mut Belongings {
        &mut self.own
    }
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
    /// Of an image that is fetched by HTTP.
    pub http: Option<HttpSource>,
    /// Of a cluster image: the snapshot's content, from which a snapshot in another namespace is made.
    pub content: Option<ContentSeen>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentSeen {
    pub driver: String,
    pub handle: String,
    pub class: Option<String>,
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

    pub fn paused(&self) -> bool {
        annotation(&self.machine.metadata, labels::PAUSED).is_some_and(|value| value != "false")
    }

    pub fn run_strategy(&self) -> RunStrategy {
        self.machine.spec.run_strategy
    }
}
