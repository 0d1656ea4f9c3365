//! A hold lives as long as its PersistentVolume: its epoch must outlive every attachment.

use crate::Controller;
use crate::error::{Error, call, found};
use crate::objects;
use crate::queue::{Key, Next};
use api::VolumeHold;
use k8s_openapi::api::core::v1::PersistentVolume;
use std::sync::Arc;

pub async fn reconcile(c: Arc<Controller>, key: Key) -> Next {
    match collect(&c, &key.1).await {
        Ok(next) => next,
        Err(error) => {
            tracing::warn!(hold = %key.1, "{error}");
            Next::BackOff
        }
    }
}

async fn collect(c: &Controller, name: &str) -> Result<Next, Error> {
    let Some(hold) = c.world.holds.get("", name) else { return Ok(Next::Wait) };
    if hold.spec.holder.is_some() {
        return Ok(Next::Wait);
    }
    let volume = hold.spec.persistent_volume_name.as_deref().unwrap_or_default();
    let api = c.objects.cluster::<PersistentVolume>();
    let there = found(call(&format!("get PersistentVolume '{volume}'"), api.get(volume)).await)?;
    let same = there
        .and_then(|volume| volume.spec?.csi)
        .is_some_and(|csi| csi.driver == hold.spec.driver && csi.volume_handle == hold.spec.volume_handle);
    if same {
        // Nobody tells when a PersistentVolume goes: soon after the release most likely, else whenever.
        return Ok(Next::BackOff);
    }
    // In this very version: empty.
    objects::delete(&c.objects.cluster::<VolumeHold>(), &c.world.holds, &hold.metadata, true).await?;
    Ok(Next::Wait)
}
