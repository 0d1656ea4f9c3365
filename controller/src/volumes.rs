//! The CSI source of a bound claim's volume. It never changes, so it is read once and remembered.

use crate::error::{Error, call, found};
use crate::objects::Objects;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use planner::machine::observed::VolumeSeen;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

pub enum Source {
    Csi(VolumeSeen),
    /// In-tree, local, …: no agent can connect it.
    Other,
    /// Not there, or bound to another claim.
    Unknown,
}

/// By the claim's UID.
#[derive(Default)]
pub struct Volumes {
    known: Mutex<HashMap<String, VolumeSeen>>,
}

impl Volumes {
    pub async fn of_claim(&self, objects: &Objects, claim: &PersistentVolumeClaim) -> Result<Source, Error> {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&uid) {
            return Ok(Source::Csi(known.clone()));
        }
        let Some(name) = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()) else {
            return Ok(Source::Unknown);
        };
        let api = objects.cluster::<PersistentVolume>();
        let Some(volume) = found(call(&format!("get PersistentVolume '{name}'"), api.get(&name)).await)? else {
            return Ok(Source::Unknown);
        };
        let spec = volume.spec.unwrap_or_default();
        if spec.claim_ref.and_then(|claim| claim.uid).as_ref() != Some(&uid) {
            return Ok(Source::Unknown);
        }
        let Some(csi) = spec.csi else { return Ok(Source::Other) };
        let seen = VolumeSeen {
            name,
            driver: csi.driver,
            handle: csi.volume_handle,
            attributes: csi.volume_attributes.unwrap_or_default(),
        };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, seen.clone());
        Ok(Source::Csi(seen))
    }

    pub fn forget(&self, claim_uid: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(claim_uid);
    }
}
