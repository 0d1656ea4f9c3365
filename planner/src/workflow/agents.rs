//! What a Workflow tells of its agents that changes nothing of its course: that one is another Workflow's now, and that one is no longer
//! heard. Neither ends a run: time does, and an agent that comes back goes on.

use super::again::serving;
use super::extras::Extras;
use super::serve::{Place, served_now, standing};
use super::status::{AGENT_LOST, QUEUED, begins, heard_again, lost, set};
use super::turn::{has_begun, open, turn};
use super::{MOST_SERVED, is_whole, later, state, state_of, timeout_of};
use api::tinkerbell::Workflow;
use api::tinkerbell::workflow::WorkflowStatus;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// What an agent is at, or will be, before a Workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ahead {
    Workflow(String),
    /// Its server is a machine's, and runs what that wants alone.
    Claim {
        hardware: String,
        by: String,
    },
}

/// What is known of an agent that is at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Nothing yet: it has no session, or nobody has listened for long enough.
    Unknown,
    Now,
    Silent {
        since: Timestamp,
    },
}

/// The agents that have begun a task which is not done: those whose silence means something. With when the action began that each is at, if
/// that runs.
pub fn at_work(workflow: &Workflow) -> Vec<(&str, Option<Timestamp>)> {
    let Some((status, extras)) = served_now(workflow) else { return Vec::new() };
    if state_of(workflow) != state::RUNNING {
        return Vec::new();
    }
    let begun = open(status, &extras).into_iter().filter(|(task, _)| has_begun(&status.tasks[*task]));
    let began = |(task, action): (usize, usize)| {
        let task = &status.tasks[task];
        let action = Some(&task.actions[action]).filter(|action| action.state.as_deref() == Some(state::RUNNING));
        (task.agent_id.as_str(), action.and_then(|action| action.execution_start.as_ref()).map(|start| start.0))
    };
    begun.map(began).collect()
}

/// Each agent that could do something of this Workflow now, if it did nothing else.
pub(super) fn awaited(workflow: &Workflow) -> Vec<&str> {
    let Some((status, extras)) = served_now(workflow) else { return Vec::new() };
    open(status, &extras).into_iter().map(|(task, _)| status.tasks[task].agent_id.as_str()).collect()
}

/// The agents that have something to do in this Workflow, now or later.
pub fn agents(workflow: &Workflow) -> Vec<&str> {
    let Some((status, _)) = served_now(workflow) else { return Vec::new() };
    let mut all: Vec<_> =
        status.tasks.iter().filter(|task| !is_whole(task)).map(|task| task.agent_id.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Of the Workflows that an agent may be served from: what comes before each that the agent has not begun.
pub fn ahead<'a>(agent: &str, workflows: impl IntoIterator<Item = &'a Workflow>) -> BTreeMap<&'a str, &'a str> {
    let mut queue: Vec<_> = workflows.into_iter().filter_map(|workflow| standing(agent, workflow)).collect();
    queue.sort_by(Place::by_turn);
    let pairs = queue.windows(2).filter(|pair| !pair[1].has_begun());
    pairs.map(|pair| (name(pair[1].workflow), name(pair[0].workflow))).collect()
}

fn name(workflow: &Workflow) -> &str {
    workflow.metadata.name.as_deref().unwrap_or_default()
}

/// The status with what is to be told; `None`: it says that already. `ahead`, `heard`: of an agent of this Workflow.
pub fn told(
    workflow: &Workflow,
    ahead: impl Fn(&str) -> Option<Ahead>,
    heard: impl Fn(&str) -> Heard,
    now: Timestamp,
) -> Option<WorkflowStatus> {
    let (before, extras) = served_now(workflow)?;
    let mut status = before.clone();
    queued(&mut status, &awaited(workflow), ahead, now);
    silent(&mut status, &extras, &at_work(workflow), heard, now);
    (status != *before).then_some(status)
}

/// One agent that is free can begin.
fn queued(status: &mut WorkflowStatus, awaited: &[&str], ahead: impl Fn(&str) -> Option<Ahead>, now: Timestamp) {
    let all: Option<Vec<_>> = awaited.iter().map(|agent| Some((*agent, ahead(agent)?))).collect();
    match all.and_then(|all| all.into_iter().next()) {
        None => begins(status),
        Some((agent, Ahead::Workflow(other))) => {
            let message = format!(
                "agent '{agent}' is served from Workflow '{other}' first: this Workflow goes on when Workflow '{other}' has ended"
            );
            set(status, QUEUED, "True", "AgentBusy", &message, now);
        }
        Some((agent, Ahead::Claim { hardware, by })) => {
            let message = format!(
                "agent '{agent}' is that of Hardware '{hardware}', which is claimed by {by}: this Workflow goes on when \
                 Hardware '{hardware}' is released"
            );
            set(status, QUEUED, "True", "HardwareClaimed", &message, now);
        }
    }
}

fn silent(
    status: &mut WorkflowStatus,
    extras: &Extras,
    at_work: &[(&str, Option<Timestamp>)],
    heard: impl Fn(&str) -> Heard,
    now: Timestamp,
) {
    let all: Vec<_> = at_work.iter().map(|(agent, _)| (*agent, heard(agent))).collect();
    let silent = all.iter().find_map(|(agent, heard)| match heard {
        Heard::Silent { since } => Some((*agent, *since)),
        Heard::Now | Heard::Unknown => None,
    });
    match silent {
        Some((agent, since)) => {
            let message = lost_message(status, extras, agent, since);
            set(status, AGENT_LOST, "True", "NotHeard", &message, now);
        }
        None if all.iter().all(|(_, heard)| *heard == Heard::Now) => heard_again(status, now),
        None => {}
    }
}

fn lost_message(status: &WorkflowStatus, extras: &Extras, agent: &str, since: Timestamp) -> String {
    let since = since.strftime("%Y-%m-%dT%H:%M:%SZ");
    let last = turn(status, extras, agent).map(|(task, at)| {
        let task = &status.tasks[task];
        let (action, of) = (&task.actions[at], task.actions.len());
        let name = action.name.as_deref().unwrap_or_default();
        let place = format!("action '{name}' of task '{}' ({} of {of})", task.name, at + 1);
        let end = action.execution_start.as_ref().and_then(|start| later(start.0, timeout_of(action)));
        match end.filter(|_| action.state.as_deref() == Some(state::RUNNING)) {
            Some(end) => format!("which ran {place}, whose time ends at {}", end.strftime("%H:%M:%SZ")),
            None => format!("which was to begin {place}"),
        }
    });
    let last = last.unwrap_or_default();
    format!(
        "agent '{agent}', {last}, was last heard at {since}: its server has no power or no network, or its system has ended; an agent that \
         comes back goes on"
    )
}

/// When it was told that an agent of this Workflow, which has not ended, is no longer heard, and how.
pub fn is_lost(workflow: &Workflow) -> Option<(Timestamp, &str)> {
    let (status, _) = served_now(workflow)?;
    let condition = lost(status)?;
    Some((condition.time.as_ref()?.0, condition.message.as_deref().unwrap_or_default()))
}

/// Whether an agent that was restarted now would be served again what it is at.
pub fn may_restart(workflow: &Workflow) -> bool {
    let Some((status, extras)) = served_now(workflow) else { return false };
    open(status, &extras).into_iter().all(|(task, action)| {
        let task = &status.tasks[task];
        let action = &task.actions[action];
        extras.is_idempotent(task, action.name.as_deref().unwrap_or_default()) && serving(action) < MOST_SERVED
    })
}
