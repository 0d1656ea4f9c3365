//! Asks the chassis to tell when they have installed what has come up (`nb_cfg`, ovn-nb(7)).
//!
//! A port is in force for its agent once the chassis has reached a number that was raised after OVN had bound the port. So the
//! number is raised when a port comes up, and again, ever more seldom, while the agent has not said that the NIC is attached: the
//! agent may have seen the port later than the number. A port that was up before, on another boot of its DPU for example, does not
//! come up again: that its agent waits is enough.

use crate::Controller;
use crate::error::Error;
use crate::index::IndexKey;
use api::machine::AttachPhase;
use ports::NorthBound;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Many that come up at once are asked for together.
const TOGETHER: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(8);

#[derive(Default)]
pub(super) struct Barrier {
    /// UIDs of VNics whose port has come up: when it is asked for next, and after how long again.
    asked: BTreeMap<String, (Instant, Duration)>,
}

impl Barrier {
    pub(super) fn next(&self) -> Option<Instant> {
        self.asked.values().map(|(at, _)| *at).min()
    }

    /// Something was told of the ports, or of the attachments, of these VNics.
    pub(super) fn look(&mut self, c: &Controller, north_bound: &dyn NorthBound, uids: &BTreeSet<String>) {
        for uid in uids {
            if north_bound.is_up(uid).unwrap_or_default() && is_awaited(c, uid) {
                let first = (Instant::now() + TOGETHER, Duration::from_secs(1));
                self.asked.entry(uid.clone()).or_insert(first);
            }
        }
    }

    /// Once for all whose time has come.
    pub(super) async fn raise(&mut self, c: &Controller, north_bound: &dyn NorthBound) -> Result<(), Error> {
        self.asked.retain(|uid, _| is_awaited(c, uid) && north_bound.is_up(uid).unwrap_or(true));
        let now = Instant::now();
        let mut due = false;
        for (at, pause) in self.asked.values_mut().filter(|(at, _)| *at <= now) {
            (*at, *pause, due) = (now + *pause, (*pause * 2).min(LATEST), true);
        }
        if due {
            let number = north_bound.raise().await?;
            tracing::debug!(number, ports = self.asked.len(), "the chassis are asked to tell when they are there");
        }
        Ok(())
    }
}

/// An agent has been granted the VNic, and has not said that its host has it.
fn is_awaited(c: &Controller, vnic_uid: &str) -> bool {
    c.world.nics.by(&IndexKey::owner(vnic_uid)).iter().any(|attachment| {
        let phase = attachment.status.as_ref().map(|status| status.phase);
        attachment.spec.grant.is_some() && phase != Some(AttachPhase::Attached)
    })
}
