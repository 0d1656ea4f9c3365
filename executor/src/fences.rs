//! *StorageAdmits*, *StorageForgets* and *StorageRefuses* of docs/design/fencing.md: the storage is told whom to let in and whom to
//! refuse, and is looked at.

use crate::{Error, Shell, disks, found, get};
use api::attachment::{Connector, VolumeSource};
use api::hold::Holder;
use api::{DiskAttachment, VolumeHold};
use k8s_openapi::api::core::v1::PersistentVolume;
use planner::exposure::ExposureId;
use planner::meta::Target;
use planner::writer::FenceOrder;
use ports::volume::Volume;
use ports::{ErrorClass, PortError};

/// *StorageAdmits*: the storage lets in who is about to be granted the volume. Nothing to do where nobody here can tell it. What goes
/// wrong stands in the machine's condition.
pub async fn admit(c: &impl Shell, attachment: &DiskAttachment, epoch: u64) -> Result<(), Error> {
    let uid = attachment.metadata.uid.clone().unwrap_or_default();
    let admitted = let_in(c, attachment, ExposureId { uid: uid.clone(), epoch }).await;
    c.problem(&uid, admitted.as_ref().err().map(PortError::to_string));
    Ok(admitted?)
}

async fn let_in(c: &impl Shell, attachment: &DiskAttachment, id: ExposureId) -> Result<(), PortError> {
    let spec = &attachment.spec;
    let native = |volume: &&VolumeSource| volume.connector == Connector::Native && !spec.read_only;
    let Some(volume) = spec.volume.as_ref().filter(native).map(of_attachment) else { return Ok(()) };
    match c.identity(&volume, &id) {
        Some(identity) => c.admit(&volume, &identity).await,
        None => Ok(()),
    }
}

/// *StorageForgets*: the storage need not know of who is gone.
async fn forget(c: &impl Shell, volume: &Volume, id: &ExposureId) -> Result<(), PortError> {
    match c.identity(volume, id) {
        Some(identity) => c.dismiss(volume, &identity).await,
        None => Ok(()),
    }
}

/// Fenced, as the storage shows it. A fence that is verified already is not sent again.
async fn settle(c: &impl Shell, order: &FenceOrder) -> Result<(), PortError> {
    let FenceOrder { volume, id, identity, .. } = order;
    let refused = |cause: String| PortError::new(ErrorClass::Invalid, format!("fencing {identity}: {cause}"));
    let volume = Volume {
        driver: volume.driver.clone(),
        handle: volume.handle.clone(),
        attributes: volume.attributes.clone(),
        ..Volume::default()
    };
    let own = c.identity(&volume, id).ok_or_else(|| refused(format!("no fence for volumes of {}", volume.driver)))?;
    if own != *identity {
        return Err(refused(format!("the storage knows this grant as {own}")));
    }
    c.fence(&volume, identity).await?;
    match c.verify_fenced(&volume, identity).await? {
        true => Ok(()),
        false => Err(PortError::new(ErrorClass::Busy, format!("fencing {identity}: the storage does not show it yet"))),
    }
}

/// A reader, which has no hold, and whose DPU is proven down.
pub async fn dismiss_reader(c: &impl Shell, attachment: &DiskAttachment) {
    let (Some(grant), Some(volume)) = (&attachment.spec.grant, &attachment.spec.volume) else { return };
    if !attachment.spec.read_only || volume.connector != Connector::Native {
        return;
    }
    let uid = attachment.metadata.uid.clone().unwrap_or_default();
    let dismissed = forget(c, &of_attachment(volume), &ExposureId { uid, epoch: grant.epoch }).await;
    if let Err(problem) = dismissed {
        tracing::warn!(volume = volume.volume_handle, "its storage takes a reader that is down for there: {problem}");
    }
}

pub fn of_attachment(volume: &VolumeSource) -> Volume {
    Volume {
        driver: volume.driver.clone(),
        handle: volume.volume_handle.clone(),
        attributes: volume.attributes.clone(),
        ..Volume::default()
    }
}

/// The holder of a hold that is about to be emptied. It never keeps the hold from that: what is admitted under a used identity
/// harms nobody.
pub async fn dismiss(c: &impl Shell, hold: &VolumeHold, holder: &Holder) {
    let Some(name) = hold.spec.persistent_volume_name.as_deref().filter(|_| c.is_told()) else {
        return;
    };
    let volume = found(get::<PersistentVolume>(c, "", name).await);
    let csi = volume.map(|volume| volume.and_then(|volume| volume.spec?.csi));
    let dismissed = match csi {
        Ok(Some(csi)) if csi.driver == hold.spec.driver && csi.volume_handle == hold.spec.volume_handle => {
            let volume = Volume {
                driver: csi.driver,
                handle: csi.volume_handle,
                attributes: csi.volume_attributes.unwrap_or_default(),
                ..Volume::default()
            };
            let id = ExposureId { uid: holder.attachment_uid.clone(), epoch: hold.spec.epoch };
            forget(c, &volume, &id).await.map_err(|error| error.to_string())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(problem) = dismissed {
        tracing::warn!(hold = hold.spec.volume_handle, "its storage does not forget its last holder: {problem}");
    }
}

/// Only once the storage shows the fence, the proof is written and the attachment let go of.
pub async fn fence(c: &impl Shell, target: &Target, hold: &str, order: &FenceOrder) -> Result<(), Error> {
    tracing::warn!(
        attachment = target.name,
        identity = order.identity,
        "its agent is silent: fencing it at the storage"
    );
    if let Err(error) = settle(c, order).await {
        c.problem(&target.uid, Some(error.to_string()));
        return Err(error.into());
    }
    disks::abandon(c, target, Some(hold), Some(&order.record)).await?;
    c.problem(&target.uid, None);
    Ok(())
}
