//! A plan while it is being made.

use super::observed::Belongings;
use super::plan::{Action, Disruptive};
use super::steps::{Outcome, Step, Steps};
use crate::host::BmcNeed;
use crate::reason::Reason;
use crate::writer::{self, Sink, down};
use api::machine::{DiskStatus, InterfaceStatus};
use jiff::Timestamp;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Draft {
    pub actions: Vec<Action>,
    pub disruptive: Option<Disruptive>,
    pub steps: Steps,
    pub wake_at: Option<Timestamp>,
    pub bmc: BmcNeed,
    /// By the name of a DPU's own BMC.
    pub dpu_bmcs: BTreeMap<String, BmcNeed>,
    pub disks: Vec<DiskStatus>,
    pub interfaces: Vec<InterfaceStatus>,
    /// Why the running host does not have what the spec says before it is started again.
    pub restart_required: Option<Reason>,
    /// The firmware takes whatever disk it finds first: the BMC cannot be told which one was installed.
    pub falls_through: bool,
    /// One for each disk whose claim's class bounds it; why it is not so.
    pub limited: Vec<Option<Reason>>,
    /// The server is on the way through the erasing of its disks.
    pub erases: bool,
    /// What the release of the machine waits for.
    pub releasing: Option<Reason>,
    /// Nothing that was installed is on the server any more, and its host is off: what is left is the claim.
    pub is_released: bool,
}

impl Draft {
    pub fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// The first one stands: there is never a second disruptive action in a plan.
    pub fn disrupt(&mut self, action: Disruptive) {
        self.disruptive.get_or_insert(action);
    }

    pub fn set(&mut self, step: Step, outcome: Outcome) {
        self.steps.set(step, outcome);
    }

    pub fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// The DPUs that an owner has something on are looked at, if their agents are unresponsive.
    pub fn glance(&mut self, own: &Belongings) {
        let uses = |dpu: &str| {
            own.disk_attachments.iter().any(|a| a.spec.dpu_name == dpu)
                || own.nic_attachments.iter().any(|a| a.spec.dpu_name == dpu)
        };
        down::glance(&own.dpus, uses, self);
    }

    pub fn need_bmc(&mut self, need: BmcNeed) {
        self.bmc = self.bmc.max(need);
    }
}

impl Sink for Draft {
    fn act(&mut self, action: writer::Action) {
        self.actions.push(action.into());
    }

    fn wake(&mut self, at: Timestamp) {
        Draft::wake(self, at);
    }

    fn need_host_bmc(&mut self, need: BmcNeed) {
        self.need_bmc(need);
    }

    fn need_dpu_bmc(&mut self, bmc: &str, need: BmcNeed) {
        let there = self.dpu_bmcs.entry(bmc.to_owned()).or_default();
        *there = need.max(*there);
    }
}
