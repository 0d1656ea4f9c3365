//! Carries out what the one-writer protocol asks for, for whoever owns the attachments.

use crate::{Error, Shell, claims, disks, fences, holder_pods};
use planner::writer::{Action, FreeVolume};
use std::collections::BTreeMap;

/// A machine or an image.
pub struct Owner<'a> {
    /// The key of the label that says for whom something was made.
    pub label: &'a str,
    pub uid: &'a str,
    /// All labels of what is made for it.
    pub labels: BTreeMap<String, String>,
}

pub async fn act(c: &impl Shell, owner: &Owner<'_>, action: &Action) -> Result<(), Error> {
    match action {
        Action::TakeHold(take) => disks::take_hold(c, owner.labels.clone(), take).await,
        Action::CreateVolumeAttachment(create) => {
            disks::create_volume_attachment(c, owner.labels.clone(), create).await
        }
        Action::Release { target } => disks::release(c, target).await,
        Action::Abandon { target, hold, fence } => disks::abandon(c, target, hold.as_deref(), fence.as_ref()).await,
        Action::Fence { target, hold, order } => fences::fence(c, target, hold, order).await,
        Action::FreeVolume(FreeVolume { hold, holder, volume_attachment, holder_pod, fence }) => {
            disks::free(c, hold, holder, volume_attachment, holder_pod.as_deref(), fence.as_ref()).await
        }
        Action::DeleteVolumeAttachment { name } => disks::drop_volume_attachment(c, name, owner.label, owner.uid).await,
        Action::DeleteHolderPod { target, node_is_down } => holder_pods::delete(c, target, *node_is_down).await,
        Action::UnprotectClaim { target, hold } => {
            claims::unprotect(c, owner.uid, owner.label, target, hold.as_deref()).await
        }
    }
}
