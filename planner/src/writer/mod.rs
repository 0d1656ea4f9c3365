//! Who may write a volume: the protocol of docs/design/fencing.md, once, for whoever owns attachments.
//!
//! An owner is a machine, whose disks a host sees, or an image, into whose volume an agent imports. For both a volume's
//! `VolumeHold` says who may write, and the way to a grant ([`admit`]) and back ([`release`], [`sweep`]) is the same.
//! A VNic's hold is its status; NICs stand on [`hold`] and [`down`], for they have neither a storage that
//! could refuse anybody nor a record of fences.

mod admit;
pub(crate) mod claim;
pub(crate) mod down;
mod fence;
pub(crate) mod hold;
mod plan;
mod release;
mod sweep;

pub(crate) use admit::{admit, user};
pub(crate) use claim::keep;
pub(crate) use down::Site;
pub use plan::{Action, CreateVolumeAttachment, FenceOrder, FreeVolume, TakeHold, rests_on_silence};
pub(crate) use release::release;
pub(crate) use sweep::sweep;

use crate::about::About;
use crate::host::BmcNeed;
use crate::meta::{label, uid};
use crate::observed::{ClaimSeen, HolderPodSeen, OrphanOn};
use crate::reason::{Reason, Waiting};
use api::{DiskAttachment, VolumeHold, labels};
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// For whom a volume is held. What is made for it carries its UID, and so goes with it, whatever became of the object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner<'a> {
    Machine { uid: &'a str, namespace: &'a str },
    Image { uid: &'a str, namespace: &'a str },
}

impl<'a> Owner<'a> {
    pub fn uid(self) -> &'a str {
        match self {
            Self::Machine { uid, .. } | Self::Image { uid, .. } => uid,
        }
    }

    fn namespace(self) -> &'a str {
        match self {
            Self::Machine { namespace, .. } | Self::Image { namespace, .. } => namespace,
        }
    }

    /// It was made for this owner.
    fn made(self, meta: &ObjectMeta) -> bool {
        let key = match self {
            Self::Machine { .. } => labels::MACHINE_UID,
            Self::Image { .. } => labels::IMAGE_UID,
        };
        label(meta, key) == Some(self.uid())
    }

    /// What an attachment is for.
    fn what(self, attachment: &DiskAttachment) -> About {
        match self {
            Self::Machine { .. } => About::Disk(attachment.spec.disk_name.clone()),
            Self::Image { .. } => About::Import,
        }
    }
}

/// Everything that the protocol rests on, for one owner.
pub(crate) struct Observed<'a> {
    pub owner: Owner<'a>,
    pub site: Site<'a>,
    /// Of the owner.
    pub attachments: &'a [Arc<DiskAttachment>],
    /// Of the volumes behind the owner's claims, and all that were made for it.
    pub holds: Vec<&'a VolumeHold>,
    /// The same of these, whoever made them.
    pub volume_attachments: &'a [Arc<VolumeAttachment>],
    /// Of the owner.
    pub holder_pods: &'a [HolderPodSeen],
    /// The claims that the owner asks for or protects, by name.
    pub claims: Vec<&'a ClaimSeen>,
    /// Of those volumes, whatever DPU reports them.
    pub orphans: &'a [OrphanOn],
    /// By CSI driver: how its storage can be told to refuse a holder, in the words of `Dpu.status.connectors`.
    pub fences: &'a BTreeMap<String, String>,
    /// By the UID of an attachment: why its storage could not be told to let it in, or to refuse it.
    pub fence_problems: &'a BTreeMap<String, String>,
}

impl Observed<'_> {
    fn hold(&self, hold: &str) -> Option<&VolumeHold> {
        self.holds.iter().copied().find(|known| known.metadata.name.as_deref() == Some(hold))
    }

    /// What a grant that is being written waits for.
    pub fn granting(&self, attachment: &DiskAttachment) -> Reason {
        let message = self.problem(attachment, "the storage does not let the DPU in yet");
        Waiting::Granting { what: self.owner.what(attachment), message }.into()
    }

    /// Why the storage could not be told of an attachment, behind what is waited for.
    fn problem(&self, attachment: &DiskAttachment, words: &str) -> String {
        let problem = self.fence_problems.get(uid(&attachment.metadata));
        problem.map(|problem| format!("; {words}: {problem}")).unwrap_or_default()
    }
}

/// Where the steps of the protocol put what is to be done: the plan of a machine or of an image, while it is being made.
pub(crate) trait Sink {
    fn act(&mut self, action: Action);
    fn wake(&mut self, at: Timestamp);
    /// The BMC of the owner's host.
    fn need_host_bmc(&mut self, need: BmcNeed);
    /// A DPU's own BMC, by its name.
    fn need_dpu_bmc(&mut self, bmc: &str, need: BmcNeed);
}
