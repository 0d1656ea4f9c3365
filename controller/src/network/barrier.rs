//! Asks the chassis to tell when they have installed what has come up (`nb_cfg`, ovn-nb(7)).
//!
//! A port is in force for its agent once the chassis has reached a number that was raised after OVN had bound the port. So the
//! number is raised when a port comes up, and again, ever more seldom, while the agent has not said that the NIC is attached: the
//! agent may have seen the port later than the number. A port that was up before, on another boot of its DPU for example, does not
//! come up again: that its agent waits is enough.
//!
//! Of a Subnet or SecurityGroup it is raised once after each commit (`in_force.rs`). One number is for all who wait for one.

use crate::Controller;
use crate::error::Error;
use crate::index::IndexKey;
use crate::metrics::Writing;
use api::machine::AttachPhase;
use planner::network::barrier::above;
use ports::NorthBound;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Many that come up at once are asked for together.
const TOGETHER: Duration = Duration::from_millis(100);
/// For each chassis, whose answer is a transaction: two numbers are never asked for closer together than these, or than the above.
const EACH: Duration = Duration::from_millis(1);
/// After one that could not be asked for.
const FAILED: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(8);

#[derive(Default)]
pub(super) struct Barrier {
    /// UIDs of VNics whose port has come up: when it is asked for next, and after how long again.
    asked: BTreeMap<String, (Instant, Duration)>,
    /// No number is asked for before this.
    not_before: Option<Instant>,
}

impl Barrier {
    pub(super) fn next(&self, c: &Controller) -> Option<Instant> {
        let port = self.asked.values().map(|(at, _)| *at).min();
        // Without the chassis' numbers none is of use to an object.
        let object = c.network.numbers.wait_for_number() && c.network.installed().is_ok();
        let earliest = if object { Some(Instant::now()) } else { port };
        earliest.map(|at| self.not_before.map_or(at, |not_before| at.max(not_before)))
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
        if self.not_before.is_some_and(|not_before| now < not_before) {
            return Ok(());
        }
        let mut due = false;
        for (at, pause) in self.asked.values_mut().filter(|(at, _)| *at <= now) {
            (*at, *pause, due) = (now + *pause, (*pause * 2).min(LATEST), true);
        }
        if !due && !c.network.numbers.wait_for_number() {
            return Ok(());
        }
        let installed = c.network.installed();
        let objects = installed.as_ref().map(|_| c.network.numbers.before_number()).unwrap_or_default();
        if !due && objects.is_empty() {
            return Ok(());
        }
        self.not_before = Some(now + FAILED);
        let raised = north_bound.raise(installed.as_ref().map(above).unwrap_or_default()).await;
        c.network.written.transaction(Writing::Number, &raised);
        let number = raised?;
        let chassis = installed.map_or(0, |installed| u32::try_from(installed.len()).unwrap_or(u32::MAX));
        self.not_before = Some(now + TOGETHER.max(EACH * chassis));
        tracing::debug!(number, ports = self.asked.len(), objects = objects.len(), "the chassis are asked to tell");
        for (work, key) in c.network.numbers.numbered(&objects, number) {
            c.world.look(work, key);
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
