//! The plan of an image, while it is being made and as it is.

use super::{Action, Observed, snapshot_name};
use crate::host::BmcNeed;
use crate::meta::name;
use crate::reason::{Reason, Waiting};
use crate::writer::{self, Sink};
use api::conditions::{self, ConditionStatus};
use api::image::MachineImageStatus;
use api::quantity::quantity;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

const AGAIN: SignedDuration = SignedDuration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub status: MachineImageStatus,
    pub wake_at: Option<Timestamp>,
    /// How often DPUs' own BMCs are to be read, each by the name of its bmc.tinkerbell.org Machine.
    pub dpu_bmcs: BTreeMap<String, BmcNeed>,
}

/// The plan for what an image that no longer exists has left: to give it back is all that can be done.
#[derive(Debug, Clone)]
pub struct GiveBack {
    pub actions: Vec<writer::Action>,
    /// What is waited for.
    pub waits_for: Option<Reason>,
    pub wake_at: Option<Timestamp>,
    /// As of an image ([`super::Plan`]).
    pub dpu_bmcs: BTreeMap<String, BmcNeed>,
}

#[derive(Debug)]
pub(super) struct Draft<A = Action> {
    actions: Vec<A>,
    wake_at: Option<Timestamp>,
    dpu_bmcs: BTreeMap<String, BmcNeed>,
}

impl<A> Default for Draft<A> {
    fn default() -> Self {
        Self { actions: Vec::new(), wake_at: None, dpu_bmcs: BTreeMap::new() }
    }
}

impl<A> Draft<A> {
    /// When what is waited for is looked at again.
    fn awaits(&mut self, reason: Option<&Reason>, now: Timestamp) {
        let at = reason.filter(|reason| is_silent(reason)).map(|_| now + AGAIN);
        self.wake_at = self.wake_at.into_iter().chain(at).min();
    }
}

impl Draft {
    pub fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub fn finish(mut self, o: &Observed, result: Result<(), Option<Reason>>, now: Timestamp) -> Plan {
        self.awaits(result.as_ref().err().and_then(Option::as_ref), now);
        let Self { actions, wake_at, dpu_bmcs } = self;
        Plan { actions, status: status(o, result, now), wake_at, dpu_bmcs }
    }
}

impl Draft<writer::Action> {
    pub fn give_back(mut self, waits_for: Option<Reason>, now: Timestamp) -> GiveBack {
        self.awaits(waits_for.as_ref(), now);
        let Self { actions, wake_at, dpu_bmcs } = self;
        GiveBack { actions, waits_for, wake_at, dpu_bmcs }
    }
}

impl<A: From<writer::Action>> Sink for Draft<A> {
    fn act(&mut self, action: writer::Action) {
        self.actions.push(action.into());
    }

    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// An image has no host.
    fn need_host_bmc(&mut self, _need: BmcNeed) {}

    fn need_dpu_bmc(&mut self, bmc: &str, need: BmcNeed) {
        let there = self.dpu_bmcs.entry(bmc.to_owned()).or_default();
        *there = need.max(*there);
    }
}

/// Neither what a provisioner says nor what a Dpu does is an event of ours.
fn is_silent(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Waiting(
            Waiting::ClaimPending { .. }
                | Waiting::ClaimBindsLate { .. }
                | Waiting::DpuSilent { .. }
                | Waiting::DpuNotOff { .. }
                | Waiting::DpuNotHeard { .. }
                | Waiting::ExposuresUnknown { .. }
                | Waiting::DpuNotReady { .. },
        )
    )
}

fn status(o: &Observed, result: Result<(), Option<Reason>>, now: Timestamp) -> MachineImageStatus {
    let mut status = o.status.clone();
    status.observed_generation = o.meta.generation;
    let name = snapshot_name(o.kind, name(&o.meta), &o.import);
    let claim = o.claim.as_ref().map(|claim| &claim.claim);
    if o.snapshot.is_some() {
        status.snapshot_name = Some(name);
        status.snapshot_namespace = Some(o.namespace.clone());
    }
    if let Some(size) = o.snapshot.as_ref().and_then(|snapshot| snapshot.restore_size_bytes) {
        status.virtual_size = Some(quantity(size));
    }
    let class = claim.and_then(|claim| claim.spec.as_ref()?.storage_class_name.clone());
    status.storage_class_name = class.or(status.storage_class_name).or_else(|| o.import.storage_class_name.clone());
    let imported = o.attachments.iter().find_map(|a| a.status.as_ref()?.import.as_ref()?.checksum.clone());
    status.checksum = imported.or(status.checksum);
    let (ready, reason, message) = match result {
        Ok(()) => (ConditionStatus::True, "Ready", String::new()),
        Err(Some(reason)) => (ConditionStatus::False, reason.name(), reason.message()),
        Err(None) => (ConditionStatus::False, "Deleting", String::new()),
    };
    let generation = o.meta.generation;
    conditions::set(&mut status.conditions, conditions::READY, ready, reason, &message, generation, now);
    status
}
