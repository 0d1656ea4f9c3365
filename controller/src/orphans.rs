//! What a plan for a Dpu knows of the orphans that its agent reports: since when, and who may have their volumes and NICs now.

use crate::Controller;
use crate::clock;
use api::dpu::Orphan;
use api::{Dpu, VNic, names};
use jiff::Timestamp;
use planner::dpu::OrphanSeen;
use planner::exposure::ExposureId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// When each orphan was first seen reported, by the UID of the Dpu: a reading of its host that was begun before proves nothing.
#[derive(Default)]
pub struct FirstSeen(Mutex<HashMap<String, Since>>);

type Since = HashMap<ExposureId, Timestamp>;

impl FirstSeen {
    /// What is not reported any more is forgotten: it is another orphan when it is reported again.
    fn of(&self, dpu: &Dpu, orphans: &[Orphan]) -> Since {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = dpu.metadata.uid.clone().unwrap_or_default();
        let before = all.remove(&uid).unwrap_or_default();
        let now = clock::now();
        let since = |orphan: &Orphan| {
            let id = id(orphan);
            let at = before.get(&id).copied().unwrap_or(now);
            (id, at)
        };
        let seen: Since = orphans.iter().map(since).collect();
        if !seen.is_empty() {
            all.insert(uid, seen.clone());
        }
        seen
    }
}

fn id(orphan: &Orphan) -> ExposureId {
    ExposureId { uid: orphan.uid.clone(), epoch: orphan.epoch }
}

pub(crate) fn seen(c: &Controller, dpu: &Dpu) -> Vec<OrphanSeen> {
    let orphans = dpu.status.as_ref().map(|status| status.orphans.as_slice()).unwrap_or_default();
    let since = c.first_seen.of(dpu, orphans);
    let one = |orphan: &Orphan| OrphanSeen {
        since: since[&id(orphan)],
        hold: orphan.volume.as_ref().and_then(|v| c.world.holds.get("", &names::hold(&v.driver, &v.volume_handle))),
        vnic: orphan.logical_port.as_deref().and_then(|port| vnic(c, port)),
        orphan: orphan.clone(),
    };
    orphans.iter().map(one).collect()
}

fn vnic(c: &Controller, logical_port: &str) -> Option<Arc<VNic>> {
    c.world.vnics.all().into_iter().find(|vnic| planner::machine::logical_port(&vnic.metadata) == logical_port)
}
