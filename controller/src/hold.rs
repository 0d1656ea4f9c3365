//! A hold lives as long as its PersistentVolume: its epoch must outlive every attachment.

use crate::Controller;
use crate::error::{Error, call, found};
use crate::objects;
use api::VolumeHold;
use k8s_openapi::api::core::v1::PersistentVolume;
use runtime::queue::{Key, Next};

pub async fn reconcile(c: &Controller, (_, name): &Key) -> Result<Next, Error> {
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
