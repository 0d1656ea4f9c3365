//! Steps 11 and 14 of docs/design/fencing.md: the storage is told to refuse a silent holder, and looked at.

use crate::Controller;
use crate::error::{Error, call, found};
use crate::machine::disks;
use api::attachment::{Connector, VolumeSource};
use api::hold::Holder;
use api::{DiskAttachment, VolumeHold};
use k8s_openapi::api::core::v1::PersistentVolume;
use planner::exposure::ExposureId;
use planner::machine::plan::{FenceOrder, Target};
use planner::target::{self, Attributes};
use ports::fence::Admission;
use ports::volume::{Fence, Volume};
use ports::{ErrorClass, PortError, StorageFence};
use std::collections::BTreeMap;
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

    /// By CSI driver, how.
    pub fn kinds(&self) -> BTreeMap<String, String> {
        self.all.iter().map(|fence| (fence.driver().to_owned(), fence.kind().as_str().to_owned())).collect()
    }

    pub fn problems(&self) -> BTreeMap<String, String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, driver: &str, attributes: &Attributes) -> Option<&Arc<dyn StorageFence>> {
        let driver = target::connector(driver, attributes);
        self.all.iter().find(|fence| fence.driver() == driver)
    }

    /// Step 6 of docs/design/fencing.md: the storage lets in who is about to be granted the volume. Nothing to do where
    /// nobody here can tell it.
    async fn admit(&self, attachment: &DiskAttachment, epoch: u64) -> Result<(), PortError> {
        let spec = &attachment.spec;
        let native = |volume: &&VolumeSource| volume.connector == Connector::Native && !spec.read_only;
        let Some(volume) = spec.volume.as_ref().filter(native) else { return Ok(()) };
        let Some(fence) = self.of(&volume.driver, &volume.attributes) else { return Ok(()) };
        let uid = attachment.metadata.uid.clone().unwrap_or_default();
        let identity = fence.fence_identity(&ExposureId { uid, epoch });
        fence.admit(&of_attachment(volume), &identity).await
    }

    /// Whether any of them has a list of who may come.
    pub(crate) fn admit_by_list(&self) -> bool {
        self.all.iter().any(|fence| fence.kind() == Fence::TargetAcl)
    }

    /// Of these grants those that have gone from their storage's list.
    pub(crate) async fn forgotten(
        &self,
        granted: Vec<(ExposureId, Arc<DiskAttachment>)>,
    ) -> Vec<(ExposureId, Arc<DiskAttachment>)> {
        let mut forgotten = Vec::new();
        for fence in self.all.iter().filter(|fence| fence.kind() == Fence::TargetAcl) {
            let of_it = |(id, attachment): &(ExposureId, Arc<DiskAttachment>)| {
                let volume = attachment.spec.volume.as_ref()?;
                let is_its = target::connector(&volume.driver, &volume.attributes) == fence.driver();
                let admission = Admission { volume: of_attachment(volume), identity: fence.fence_identity(id) };
                is_its.then(|| (admission, (id.clone(), attachment.clone())))
            };
            let (admissions, grants): (Vec<_>, Vec<_>) = granted.iter().filter_map(of_it).unzip();
            match fence.forgotten(&admissions).await {
                Ok(numbers) => forgotten.extend(numbers.into_iter().filter_map(|number| grants.get(number).cloned())),
                Err(error) => tracing::warn!("whom the storage of {} lets in: {error}", fence.driver()),
            }
        }
        forgotten
    }

    /// Step 10: the storage need not know of who is gone.
    async fn dismiss(&self, volume: &Volume, id: &ExposureId) -> Result<(), PortError> {
        let Some(fence) = self.of(&volume.driver, &volume.attributes) else { return Ok(()) };
        fence.dismiss(volume, &fence.fence_identity(id)).await
    }

    /// Fenced, as the storage shows it. A fence that is verified already is not sent again.
    async fn settle(&self, order: &FenceOrder) -> Result<(), PortError> {
        let FenceOrder { volume, id, identity, .. } = order;
        let refused = |cause: String| PortError::new(ErrorClass::Invalid, format!("fencing {identity}: {cause}"));
        let fence = self.of(&volume.driver, &volume.attributes);
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

/// A reader, which has no hold, and whose DPU is proven down.
pub(crate) async fn dismiss_reader(c: &Controller, attachment: &DiskAttachment) {
    let (Some(grant), Some(volume)) = (&attachment.spec.grant, &attachment.spec.volume) else { return };
    if !attachment.spec.read_only || volume.connector != Connector::Native {
        return;
    }
    let uid = attachment.metadata.uid.clone().unwrap_or_default();
    let dismissed = c.fences.dismiss(&of_attachment(volume), &ExposureId { uid, epoch: grant.epoch }).await;
    if let Err(problem) = dismissed {
        tracing::warn!(volume = volume.volume_handle, "its storage takes a reader that is down for there: {problem}");
    }
}

fn of_attachment(volume: &VolumeSource) -> Volume {
    Volume {
        driver: volume.driver.clone(),
        handle: volume.volume_handle.clone(),
        attributes: volume.attributes.clone(),
        ..Volume::default()
    }
}

/// The holder of a hold that is about to be emptied. It never keeps the hold from that: what is admitted under a used identity
/// harms nobody.
pub(crate) async fn dismiss(c: &Controller, hold: &VolumeHold, holder: &Holder) {
    let Some(name) = hold.spec.persistent_volume_name.as_deref().filter(|_| !c.fences.all.is_empty()) else {
        return;
    };
    let api = c.objects.cluster::<PersistentVolume>();
    let volume = found(call(&format!("get PersistentVolume '{name}'"), api.get(name)).await);
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
            c.fences.dismiss(&volume, &id).await.map_err(|error| error.to_string())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(problem) = dismissed {
        tracing::warn!(hold = hold.spec.volume_handle, "its storage does not forget its last holder: {problem}");
    }
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
