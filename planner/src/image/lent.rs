//! What is lent for an import. It may outlive the image.

use crate::observed::{ClaimSeen, DpuSeen};
use crate::writer::{self, Owner, Site};
use api::{DiskAttachment, VolumeHold};
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct Lent {
    /// The volume that is filled, or the user's own claim.
    pub claim: Option<ClaimSeen>,
    /// All that might import.
    pub dpus: Vec<DpuSeen>,
    /// Of this image, by its UID.
    pub attachments: Vec<Arc<DiskAttachment>>,
    pub hold: Option<Arc<VolumeHold>>,
    pub volume_attachments: Vec<Arc<VolumeAttachment>>,
    /// By CSI driver: how its storage can be told to refuse an unresponsive holder, in the words of `Dpu.status.connectors`.
    pub fences: BTreeMap<String, String>,
    /// By the UID of an attachment: why its storage could not be told to let it in, or to refuse it.
    pub fence_problems: BTreeMap<String, String>,
}

/// What an image that no longer exists has left. What it was to import is not known any more.
#[derive(Debug, Clone, Default)]
pub struct Leftovers {
    pub uid: String,
    pub lent: Lent,
}

impl Lent {
    /// What a DPU that is down is proven so by: an image has no host.
    pub(super) fn site(&self, now: Timestamp) -> Site<'_> {
        Site { now, dpus: &self.dpus, host: None }
    }

    /// What the one-writer protocol rests on, where nothing is granted.
    pub(super) fn writer<'a>(&'a self, owner: Owner<'a>, now: Timestamp) -> writer::Observed<'a> {
        writer::Observed {
            owner,
            site: self.site(now),
            attachments: &self.attachments,
            holds: self.hold.as_deref().into_iter().collect(),
            volume_attachments: &self.volume_attachments,
            holder_pods: &[],
            claims: self.claim.as_ref().into_iter().collect(),
            orphans: &[],
            fences: &self.fences,
            fence_problems: &self.fence_problems,
        }
    }
}
