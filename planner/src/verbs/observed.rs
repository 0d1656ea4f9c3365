//! What a `MachineSnapshot` rests on, as it was seen.

use crate::meta::Target;
use api::{BareMetalMachine, MachineSnapshot};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct Observed {
    pub object: Arc<MachineSnapshot>,
    pub machine: Option<Arc<BareMetalMachine>>,
    /// By name: those that the machine's disks name.
    pub claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    /// By name: those that the status names, and all that were made for this operation.
    pub snapshots: BTreeMap<String, VolumeSnapshotSeen>,
    /// By the name of the claim: the CSI driver of its volume. Known where it decides something.
    pub drivers: BTreeMap<String, String>,
    pub classes: Vec<GroupClass>,
    pub group: Option<GroupSeen>,
    /// The claims that have the label of this operation's VolumeGroupSnapshot.
    pub labelled: Vec<Arc<PersistentVolumeClaim>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeSnapshotSeen {
    pub target: Target,
    /// Made for this operation.
    pub ours: bool,
    pub deleting: bool,
    /// The content is what it was, whatever is written now.
    pub taken: bool,
    pub ready: bool,
    pub error: Option<String>,
    /// The claim whose volume it is of.
    pub claim: Option<String>,
    /// The UID of the VolumeGroupSnapshot that it is a member of.
    pub group_uid: Option<String>,
}

impl VolumeSnapshotSeen {
    pub(super) fn is_member_of(&self, group: &GroupSeen) -> bool {
        self.group_uid.as_ref() == Some(&group.target.uid)
    }
}

/// A VolumeGroupSnapshotClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupClass {
    pub name: String,
    pub driver: String,
    pub is_default: bool,
}

/// The VolumeGroupSnapshot with the name of the operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupSeen {
    pub target: Target,
    /// Made for this operation.
    pub ours: bool,
    pub deleting: bool,
    /// Its content is made: which volumes it cuts is decided.
    pub bound: bool,
    pub error: Option<String>,
}
