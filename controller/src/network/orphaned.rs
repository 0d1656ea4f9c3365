//! Holds whose VNic no longer exists: a controller that did not know yet that it was deposed created one too late, or somebody took
//! the VNic's finalizer away by force.

use super::vnics;
use crate::Controller;
use crate::error::{Error, call};
use crate::index::IndexKey;
use api::{AddressHold, VNic};
use kube::api::ListParams;
use planner::machine::observed::name;
use runtime::queue::Key;
use std::sync::Arc;

/// Those of VNics that had this name. A UID that no longer exists never comes back; but what was attached by it is in use until the
/// attachment is deleted, of which an event tells.
pub(super) async fn collect(c: &Controller, key: &Key) -> Result<(), Error> {
    let known = c.world.vnics.get(&key.0, &key.1).and_then(|vnic| vnic.metadata.uid.clone());
    let others = |hold: &Arc<AddressHold>| Some(&hold.spec.owner.uid) != known.as_ref();
    let holds: Vec<Arc<AddressHold>> =
        c.world.address_holds.by(&IndexKey::names::<VNic>(&key.0, &key.1)).into_iter().filter(others).collect();
    if holds.is_empty() {
        return Ok(());
    }
    let api = c.objects.namespaced::<VNic>(&key.0);
    let there = call("list VNics", api.list_metadata(&ListParams::default())).await?.items;
    for hold in holds {
        let owner = &hold.spec.owner.uid;
        if there.iter().any(|vnic| vnic.metadata.uid.as_ref() == Some(owner)) {
            continue;
        }
        match vnics::attachment_of(c, owner).await? {
            Some(attachment) => {
                let attachment = name(&attachment.metadata);
                tracing::warn!(hold = name(&hold.metadata), attachment, "the VNic no longer exists, and is attached");
            }
            None => {
                tracing::warn!(hold = name(&hold.metadata), "the VNic no longer exists: its hold is deleted");
                // As at every release: an address is nobody's only once OVN has no port with it.
                c.network.clear(owner).await?;
                vnics::delete(c, &hold).await?;
            }
        }
    }
    Ok(())
}
