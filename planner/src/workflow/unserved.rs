//! What a Workflow that no agent has begun tells of the server that is awaited: that DHCP does not serve it, so no agent comes.
//!
//! It is told by the controller, which sees the whole inventory and every HardwareReport. All else of such a Workflow is the boot service's.

use super::agents::awaited;
use super::status::{NOT_SERVED, set};
use super::{state, state_of};
use crate::reason::Reason;
use api::tinkerbell::Workflow;
use api::tinkerbell::workflow::WorkflowStatus;
use jiff::Timestamp;

/// The agents of which one has to come for this Workflow to begin.
pub fn comes(workflow: &Workflow) -> Vec<&str> {
    let waits = state_of(workflow) == state::PENDING
        && workflow.metadata.deletion_timestamp.is_none()
        && workflow.spec.disabled != Some(true);
    if waits { awaited(workflow) } else { Vec::new() }
}

/// The status with that, or without it; `None`: it says so already.
pub fn unserved(workflow: &Workflow, reason: Option<&Reason>, now: Timestamp) -> Option<WorkflowStatus> {
    let before = workflow.status.as_ref()?;
    let mut status = before.clone();
    match reason {
        Some(reason) => set(&mut status, NOT_SERVED, "True", reason.name(), &reason.told(), now),
        None => status.conditions.retain(|condition| condition.type_ != NOT_SERVED),
    }
    (status != *before).then_some(status)
}
