//! The storage systems that can be told whom to refuse, by their drivers. What they are told, and when, is
//! [`executor::fences`].

use crate::Controller;
use api::DiskAttachment;
use executor::Storage;
use executor::fences::of_attachment;
use planner::exposure::ExposureId;
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
}

fn unknown(volume: &Volume) -> PortError {
    PortError::new(ErrorClass::Invalid, format!("no fence for volumes of {}", volume.driver))
}

impl Storage for Controller {
    fn is_told(&self) -> bool {
        !self.fences.all.is_empty()
    }

    fn identity(&self, volume: &Volume, id: &ExposureId) -> Option<String> {
        Some(self.fences.of(&volume.driver, &volume.attributes)?.fence_identity(id))
    }

    async fn admit(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let fence = self.fences.of(&volume.driver, &volume.attributes).ok_or_else(|| unknown(volume))?;
        fence.admit(volume, identity).await
    }

    async fn dismiss(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let fence = self.fences.of(&volume.driver, &volume.attributes).ok_or_else(|| unknown(volume))?;
        fence.dismiss(volume, identity).await
    }

    async fn fence(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let fence = self.fences.of(&volume.driver, &volume.attributes).ok_or_else(|| unknown(volume))?;
        fence.fence(volume, identity).await
    }

    async fn verify_fenced(&self, volume: &Volume, identity: &str) -> Result<bool, PortError> {
        let fence = self.fences.of(&volume.driver, &volume.attributes).ok_or_else(|| unknown(volume))?;
        fence.verify_fenced(volume, identity).await
    }

    fn problem(&self, attachment_uid: &str, problem: Option<String>) {
        let mut problems = self.fences.lock();
        match problem {
            Some(problem) => problems.insert(attachment_uid.to_owned(), problem),
            None => problems.remove(attachment_uid),
        };
    }
}
