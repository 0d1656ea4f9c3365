//! What a plan for a Dpu knows of the orphans that its agent reports: since when, and who may have their volumes and NICs now.

use crate::Controller;
use crate::error::Error;
use crate::index::IndexKey;
use crate::machine::gather;
use crate::memory;
use crate::objects;
use api::dpu::{Orphan, OrphanKind};
use api::{Dpu, VNic, VolumeHold, names};
use planner::dpu::{OrphanSeen, RaiseEpoch};
use planner::machine::observed::name;
use planner::machine::{Belongings, OrphanOn};
use serde_json::json;
use std::sync::Arc;

pub(crate) fn seen(c: &Controller, dpu: &Dpu) -> Vec<OrphanSeen> {
    let orphans = dpu.status.as_ref().map(|status| status.orphans.as_slice()).unwrap_or_default();
    let since = c.first_seen.of(dpu, orphans);
    let one = |orphan: &Orphan| OrphanSeen {
        since: since[&memory::id(orphan)],
        hold: orphan.volume.as_ref().and_then(|v| c.world.holds.get("", &names::hold(&v.driver, &v.volume_handle))),
        vnic: orphan.logical_port.as_deref().and_then(|port| vnic(c, port)),
        orphan: orphan.clone(),
    };
    orphans.iter().map(one).collect()
}

/// By compare-and-swap: the hold is still empty.
pub(crate) async fn raise(c: &Controller, raise: &RaiseEpoch) -> Result<(), Error> {
    let meta = &raise.hold.metadata;
    let change = json!({"spec": {"epoch": raise.epoch}});
    let (name, uid) = (name(meta), meta.uid.as_deref().unwrap_or_default());
    let api = c.objects.cluster::<VolumeHold>();
    objects::patch(&api, &c.world.holds, name, uid, meta.resource_version.as_deref(), change).await.map(drop)
}

/// Those that may stand in the way of a machine, on whatever DPU.
pub(crate) async fn concerning(c: &Controller, own: &Belongings) -> Result<Vec<OrphanOn>, Error> {
    let mut found = on_dpus(c).await?;
    found.retain(|one| one.concerns(own));
    Ok(found)
}

async fn on_dpus(c: &Controller) -> Result<Vec<OrphanOn>, Error> {
    let mut found = Vec::new();
    for dpu in gather::dpus(c, c.world.dpus.by(&IndexKey::HasOrphans)).await? {
        let orphans = dpu.dpu.status.as_ref().map(|status| status.orphans.clone()).unwrap_or_default();
        found.extend(orphans.into_iter().map(|orphan| OrphanOn { dpu: dpu.clone(), orphan }));
    }
    Ok(found)
}

/// Every NIC that a host has and no attachment explains.
pub(crate) async fn nics(c: &Controller) -> Result<Vec<OrphanOn>, Error> {
    let mut found = on_dpus(c).await?;
    found.retain(|one| one.orphan.kind == OrphanKind::Nic);
    Ok(found)
}

fn vnic(c: &Controller, logical_port: &str) -> Option<Arc<VNic>> {
    c.world.vnics.all().into_iter().find(|vnic| planner::machine::is_port_of(logical_port, &vnic.metadata))
}
