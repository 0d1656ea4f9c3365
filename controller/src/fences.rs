//! Steps 11 and 14 of docs/design/fencing.md: the storage is told to refuse a silent holder, and looked at.

use crate::Controller;
use crate::error::Error;
use crate::machine::disks;
use api::DiskAttachment;
use api::attachment::{Connector, VolumeSource};
use planner::exposure::ExposureId;
use planner::machine::plan::{FenceOrder, Target};
use ports::volume::Volume;
use ports::{ErrorClass, PortError, StorageFence};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The storage systems that can be told, and what went wrong with them last.
#[derive(Default)]
pub struct Fences {
    all: Vec<Arc<dyn StorageFence>>,
    /// By the UID of the attachment.
    problems: Mutex<BTreeMap<String, String>>,
}

impl Fences {
    pub fn new(all: Vec<Arc<dyn StorageFence>>) -> Self {
        Self { all, problems: Mutex::default() }
    }

    pub fn drivers(&self) -> BTreeSet<String> {
        self.all.iter().map(|fence| fence.driver().to_owned()).collect()
    }

    pub fn problems(&self) -> BTreeMap<String, String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Step 6 of docs/design/fencing.md: the storage lets in who is about to be granted the volume. Nothing to do where
    /// nobody here can tell it.
    async fn admit(&self, attachment: &DiskAttachment, epoch: u64) -> Result<(), PortError> {
        let spec = &attachment.spec;
        let native = |volume: &&VolumeSource| volume.connector == Connector::Native && !spec.read_only;
        let Some(volume) = spec.volume.as_ref().filter(native) else { return Ok(()) };
        let Some(fence) = self.all.iter().find(|fence| fence.driver() == volume.driver) else { return Ok(()) };
        let uid = attachment.metadata.uid.clone().unwrap_or_default();
        let identity = fence.fence_identity(&ExposureId { uid, epoch });
        let volume = Volume {
            driver: volume.driver.clone(),
            handle: volume.volume_handle.clone(),
            attributes: volume.attributes.clone(),
            ..Volume::default()
        };
        fence.admit(&volume, &identity).await
    }

    /// Fenced, as the storage shows it. A fence that is verified already is not sent again.
    async fn settle(&self, order: &FenceOrder) -> Result<(), PortError> {
        let FenceOrder { volume, id, identity, .. } = order;
        let refused = |cause: String| PortError::new(ErrorClass::Invalid, format!("fencing {identity}: {cause}"));
        let fence = self.all.iter().find(|fence| fence.driver() == volume.driver);
        let fence = fence.ok_or_else(|| refused(format!("no fence for volumes of {}", volume.driver)))?;
        let own = fence.fence_identity(id);
        if own != *identity {
            return Err(refused(format!("the storage knows this grant as {own}")));
        }
        let volume = Volume {
            driver: volume.driver.clone(),
            handle: volume.handle.clone(),
            attributes: volume.attributes.clone(),
            ..Volume::default()
        };
        fence.fence(&volume, identity).await?;
        match fence.verify_fenced(&volume, identity).await? {
            true => Ok(()),
            false => {
                Err(PortError::new(ErrorClass::Busy, format!("fencing {identity}: the storage does not show it yet")))
            }
        }
    }
}

/// What goes wrong stands in the machine's condition.
pub(crate) async fn admit(c: &Controller, attachment: &DiskAttachment, epoch: u64) -> Result<(), Error> {
    let uid = attachment.metadata.uid.clone().unwrap_or_default();
    let admitted = c.fences.admit(attachment, epoch).await;
    match &admitted {
        Ok(()) => c.fences.lock().remove(&uid),
        Err(error) => c.fences.lock().insert(uid, error.to_string()),
    };
    Ok(admitted?)
}

/// Only once the storage shows the fence, the proof is written and the attachment let go of.
pub async fn fence(c: &Controller, target: &Target, hold: &str, order: &FenceOrder) -> Result<(), Error> {
    tracing::warn!(
        attachment = target.name,
        identity = order.identity,
        "its agent is silent: fencing it at the storage"
    );
    if let Err(error) = c.fences.settle(order).await {
        c.fences.lock().insert(target.uid.clone(), error.to_string());
        return Err(error.into());
    }
    disks::abandon(c, target, Some(hold), Some(&order.record)).await?;
    c.fences.lock().remove(&target.uid);
    Ok(())
}
