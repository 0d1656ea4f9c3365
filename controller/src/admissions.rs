//! *StorageAdmits* of docs/design/fencing.md for as long as a grant lasts: storage that lets in only who is on its list may be started anew,
//! and has lost the list. Who stands on it by a live grant is put on it again ([`planner::admission`]).

use crate::Controller;
use crate::error::{Error, call, found};
use api::{DiskAttachment, VolumeHold, names};
use executor::fences;
use planner::admission;
use planner::exposure::ExposureId;
use planner::machine::observed::name;
use std::sync::Arc;
use std::time::Duration;

/// A host's I/O waits so long, and the storage is asked so often.
const PERIOD: Duration = Duration::from_secs(5);

/// For as long as it is polled.
pub(crate) async fn keep(c: Arc<Controller>) {
    loop {
        let all = c.world.disks.all().into_iter();
        let granted = all.filter_map(|attachment| Some((admission::of(&attachment)?, attachment))).collect();
        for (id, attachment) in c.fences.forgotten(granted).await {
            let attachment_name = name(&attachment.metadata);
            match again(&c, &id, &attachment).await {
                Ok(true) => tracing::warn!(attachment_name, "its storage had forgotten it: let in again"),
                Ok(false) => {}
                Err(error) => tracing::warn!(attachment_name, "its storage has forgotten it: {error}"),
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Whether it is to be, by what is read from quorum. The attachment last: no fence of it had begun by then.
async fn again(c: &Controller, id: &ExposureId, seen: &DiskAttachment) -> Result<bool, Error> {
    let Some(volume) = &seen.spec.volume else { return Ok(false) };
    let hold = names::hold(&volume.driver, &volume.volume_handle);
    let what = format!("get VolumeHold '{hold}'");
    let Some(hold) = found(call(&what, c.objects.cluster::<VolumeHold>().get(&hold)).await)? else { return Ok(false) };
    let what = format!("get DiskAttachment '{}'", name(&seen.metadata));
    let api = c.objects.namespaced::<DiskAttachment>(seen.metadata.namespace.as_deref().unwrap_or_default());
    let Some(there) = found(call(&what, api.get(name(&seen.metadata))).await)? else { return Ok(false) };
    if !admission::stands(id, &there, &hold) {
        return Ok(false);
    }
    fences::admit(c, &there, id.epoch).await.map(|()| true)
}
