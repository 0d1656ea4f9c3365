//! What a Workflow's status tells beside its tasks: conditions, and the action that was served last.

use super::state;
use api::tinkerbell::workflow::{CurrentState, Task, WorkflowCondition, WorkflowStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Another Workflow comes first.
pub(super) const QUEUED: &str = "Queued";
/// The agent is no longer heard.
pub(super) const AGENT_LOST: &str = "AgentLost";

/// Nobody has asked for the next action for long.
pub(super) const AGENT_AWAITED: &str = "AgentAwaited";

/// DHCP does not serve the server of an agent that is awaited.
pub(super) const NOT_SERVED: &str = "ServerNotServed";

/// The time of a condition that says the same as before stays.
pub(super) fn set(status: &mut WorkflowStatus, type_: &str, value: &str, reason: &str, message: &str, now: Timestamp) {
    let new = WorkflowCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        time: Some(Time(now)),
    };
    match status.conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(old) if old.status == new.status && old.reason == new.reason && old.message == new.message => {}
        Some(old) => *old = new,
        None => status.conditions.push(new),
    }
}

/// How the current state tells of an action.
pub(super) fn current(task: &Task, action: usize) -> CurrentState {
    let action = &task.actions[action];
    let state = action.state.clone().filter(|state| !state.is_empty()).unwrap_or_else(|| state::PENDING.to_owned());
    CurrentState {
        agent_id: Some(task.agent_id.clone()),
        task_id: Some(task.id.clone()),
        action_id: Some(action.id.clone()),
        state: Some(state),
        action_name: action.name.clone(),
        task_name: Some(task.name.clone()),
    }
}

/// It waits for no other one, or no longer.
pub(super) fn begins(status: &mut WorkflowStatus) {
    status.conditions.retain(|condition| condition.type_ != QUEUED);
}

/// An agent reports, or asks: if it is the only one, none is lost. Of several the one that is lost may be another.
pub(super) fn heard_of(status: &mut WorkflowStatus, now: Timestamp) {
    let agent = status.tasks.first().map(|task| task.agent_id.clone());
    if status.tasks.iter().all(|task| Some(&task.agent_id) == agent.as_ref()) {
        heard_again(status, now);
    }
}

pub(super) fn heard_again(status: &mut WorkflowStatus, now: Timestamp) {
    if lost(status).is_some() {
        set(status, AGENT_LOST, "False", "HeardAgain", "every agent that is at work is heard", now);
    }
}

/// The condition `AgentLost`, while that is true.
pub(super) fn lost(status: &WorkflowStatus) -> Option<&WorkflowCondition> {
    status.conditions.iter().find(|condition| condition.type_ == AGENT_LOST && condition.status == "True")
}
