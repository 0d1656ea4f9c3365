//! What the sequences rest on beside one kind's verbs.

use crate::{Confirmed, Error, Verbs};
use api::tinkerbell::{Hardware, Template, Workflow};
use api::{BareMetalMachine, DiskAttachment, Dpu, MachineMigration, NicAttachment, VNic, VolumeHold};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use planner::exposure::ExposureId;
use planner::machine::Action;
use ports::PortError;
use ports::volume::Volume;
use std::future::Future;

/// The storage systems that can be told whom to refuse: the port `StorageFence` of whichever has the volume.
pub trait Storage {
    /// Whether any of them can be told anything.
    fn is_told(&self) -> bool;

    /// As whom the storage of this volume knows that grant; `None`: nobody here can tell it anything.
    fn identity(&self, volume: &Volume, id: &ExposureId) -> Option<String>;

    fn admit(&self, volume: &Volume, identity: &str) -> impl Future<Output = Result<(), PortError>>;

    fn dismiss(&self, volume: &Volume, identity: &str) -> impl Future<Output = Result<(), PortError>>;

    fn fence(&self, volume: &Volume, identity: &str) -> impl Future<Output = Result<(), PortError>>;

    fn verify_fenced(&self, volume: &Volume, identity: &str) -> impl Future<Output = Result<bool, PortError>>;

    /// What went wrong last for the attachment with this UID; `None`: nothing any more.
    fn problem(&self, attachment_uid: &str, problem: Option<String>);
}

/// All that a sequence may touch.
pub trait Shell:
    Storage
    + Verbs<BareMetalMachine>
    + Verbs<DiskAttachment>
    + Verbs<Dpu>
    + Verbs<Hardware>
    + Verbs<MachineMigration>
    + Verbs<NicAttachment>
    + Verbs<PersistentVolume>
    + Verbs<PersistentVolumeClaim>
    + Verbs<Pod>
    + Verbs<Secret>
    + Verbs<Template>
    + Verbs<VNic>
    + Verbs<VolumeAttachment>
    + Verbs<VolumeHold>
    + Verbs<Workflow>
    + Verbs<crate::snapshots::VolumeSnapshot>
    + Verbs<crate::snapshots::VolumeSnapshotContent>
{
    /// The namespace of Hardware.
    fn inventory(&self) -> &str;

    /// The namespace of what installed systems are told: Secrets that network boot reads.
    fn seeds(&self) -> &str;

    /// What was read from quorum of machines, and how many objects the copies of this process have told the end of; `None`: each plan
    /// reads its machine.
    fn confirmed(&self) -> Option<(&Confirmed, u64)> {
        None
    }

    /// From quorum: the agent that renews its Lease in this namespace is still silent.
    fn confirm_silent(&self, dpu_namespace: &str) -> impl Future<Output = Result<(), Error>>;

    /// An action was carried out, or failed.
    fn acted(&self, action: &Action, failed: Option<&Error>);
}
