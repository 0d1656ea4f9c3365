//! The Events of a Workflow: what has become of it between two looks.
//!
//! Of what agents say a note has the last line alone, without the users, passwords and queries of URLs: who reads Events is told why an
//! action has failed, not all that it printed.

use super::again::{RETRIED, serving};
use super::boot::{JOB_FAILED, SETUP_FAILED};
use super::ended::FAILED;
use super::status::{AGENT_LOST, QUEUED, lost};
use super::{has_succeeded, is_terminal, state, state_of};
use crate::erase;
use crate::event::{Event, Told};
use crate::host::redacted;
use crate::meta::{label, name};
use api::labels::MACHINE_UID;
use api::tinkerbell::Workflow;
use api::tinkerbell::workflow::{Action, Task, WorkflowCondition, WorkflowStatus};

/// A machine tells of its own Workflows itself.
pub fn tells(workflow: &Workflow) -> bool {
    label(&workflow.metadata, MACHINE_UID).is_none()
}

/// `before`: as it was looked at last; `None`: it is new.
pub fn story(before: Option<&Workflow>, after: &Workflow) -> Vec<Told> {
    let Some(now) = after.status.as_ref().filter(|_| tells(after)) else { return Vec::new() };
    let none = WorkflowStatus::default();
    let was = before.and_then(|before| before.status.as_ref()).unwrap_or(&none);
    let mut all = Vec::new();
    all.extend(condition(was, now, QUEUED).map(|told| Event::Queued.told(said(told))));
    if !has_started(was) && has_started(now) {
        all.push(Event::WorkflowStarted.told(started(after, now)));
    }
    actions(was, now, &mut all);
    match (lost(was), condition(was, now, AGENT_LOST)) {
        (_, Some(told)) => all.push(Event::AgentLost.told(said(told))),
        (Some(_), None) if lost(now).is_none() && !is_terminal(after) => {
            all.push(Event::AgentHeardAgain.told("every agent that is at work is heard"));
        }
        _ => {}
    }
    if is_terminal(after) && !before.is_some_and(is_terminal) {
        all.push(ended(after, now));
    }
    all
}

fn has_started(status: &WorkflowStatus) -> bool {
    status.tasks.iter().flat_map(|task| &task.actions).any(|action| action.execution_start.is_some())
        || status.state.as_deref() == Some(state::RUNNING)
}

fn started(workflow: &Workflow, status: &WorkflowStatus) -> String {
    let Some(current) = &status.current_state else {
        return format!("Workflow '{}' runs", name(&workflow.metadata));
    };
    let part = |of: &Option<String>| of.clone().unwrap_or_default();
    format!(
        "agent '{}' is at action '{}' of task '{}'",
        part(&current.agent_id),
        part(&current.action_name),
        part(&current.task_name)
    )
}

/// A task's place is its own for ever, and so is that of an action in it.
fn actions(was: &WorkflowStatus, now: &WorkflowStatus, all: &mut Vec<Told>) {
    let fresh = Action::default();
    for (at, task) in now.tasks.iter().enumerate() {
        for (place, action) in task.actions.iter().enumerate() {
            let before = was.tasks.get(at).and_then(|task| task.actions.get(place)).unwrap_or(&fresh);
            let is = action.state.as_deref();
            if !before.id.is_empty() && serving(action) > serving(before) {
                // Of a restart the condition alone tells.
                let why = is_true(now, RETRIED).and_then(|told| told.message.as_deref());
                all.push(Event::ActionRetried.told(with(task, action, why)));
            }
            if is == before.state.as_deref() {
                continue;
            }
            match is {
                Some(state::FAILED) => all.push(Event::ActionFailed.told(about(task, action))),
                Some(state::TIMEOUT) => all.push(Event::ActionTimedOut.told(about(task, action))),
                _ => {}
            }
        }
    }
}

fn about(task: &Task, action: &Action) -> String {
    with(task, action, action.message.as_deref())
}

fn with(task: &Task, action: &Action, why: Option<&str>) -> String {
    let name = action.name.as_deref().unwrap_or_default();
    let of = format!("action '{name}' of task '{}'", task.name);
    match last_line(why.unwrap_or_default()) {
        line if line.is_empty() => of,
        line => format!("{of}: {line}"),
    }
}

fn ended(workflow: &Workflow, status: &WorkflowStatus) -> Told {
    if has_succeeded(workflow) {
        let count = status.tasks.iter().map(|task| task.actions.len()).sum::<usize>();
        return Event::WorkflowSucceeded.told(format!("{count} actions have succeeded"));
    }
    let event = if state_of(workflow) == state::TIMEOUT { Event::WorkflowTimedOut } else { Event::WorkflowFailed };
    let why = [FAILED, JOB_FAILED, SETUP_FAILED].into_iter().find_map(|type_| is_true(status, type_));
    event.told(why.map(said).unwrap_or_default())
}

fn is_true<'a>(status: &'a WorkflowStatus, type_: &str) -> Option<&'a WorkflowCondition> {
    status.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == "True")
}

/// It is true, and was not, or said something else.
fn condition<'a>(was: &WorkflowStatus, now: &'a WorkflowStatus, type_: &str) -> Option<&'a WorkflowCondition> {
    let told = is_true(now, type_)?;
    let is_old = |old: &WorkflowCondition| old.reason == told.reason && old.message == told.message;
    (!is_true(was, type_).is_some_and(is_old)).then_some(told)
}

fn said(condition: &WorkflowCondition) -> String {
    last_line(condition.message.as_deref().unwrap_or_default())
}

/// What is kept of disks is no word of the action's.
fn last_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && erase::disks(line).is_empty());
    redacted(lines.next_back().unwrap_or_default())
}
