//! The plan of an image, while it is being made and as it is.

use super::{Action, Observed, snapshot_name};
use crate::host::BmcNeed;
use crate::meta::name;
use crate::reason::{Reason, Waiting};
use crate::writer::{self, Sink};
use api::conditions::{self, ConditionStatus};
use api::image::MachineImageStatus;
use api::quantity::quantity;
use jiff::Timestamp;
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub status: MachineImageStatus,
    pub wake_at: Option<Timestamp>,
    /// How often DPUs' own BMCs are to be read, each by the name of its bmc.tinkerbell.org Machine.
    pub dpu_bmcs: BTreeMap<String, BmcNeed>,
}

#[derive(Debug, Default)]
pub(super) struct Draft {
    actions: Vec<Action>,
    wake_at: Option<Timestamp>,
    dpu_bmcs: BTreeMap<String, BmcNeed>,
}

impl Draft {
    pub fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub fn finish(mut self, o: &Observed, result: Result<(), Option<Reason>>, now: Timestamp) -> Plan {
        if let Some(at) = waits(&result, now) {
            self.wake(at);
        }
        let Self { actions, wake_at, dpu_bmcs } = self;
        Plan { actions, status: status(o, result, now), wake_at, dpu_bmcs }
    }
}

impl Sink for Draft {
    fn act(&mut self, action: writer::Action) {
        self.actions.push(Action::Volume(Box::new(action)));
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
fn waits(result: &Result<(), Option<Reason>>, now: Timestamp) -> Option<Timestamp> {
    let looks_again = matches!(
        result,
        Err(Some(Reason::Waiting(
            Waiting::ClaimPending { .. }
                | Waiting::ClaimBindsLate { .. }
                | Waiting::DpuSilent { .. }
                | Waiting::DpuNotOff { .. }
                | Waiting::DpuNotHeard { .. }
                | Waiting::ExposuresUnknown { .. }
                | Waiting::DpuNotReady { .. },
        )))
    );
    looks_again.then(|| now + jiff::SignedDuration::from_secs(5))
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
