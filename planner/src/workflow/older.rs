//! Workers of Tinkerbell's older generation. They read a whole Workflow, run its actions one after the other, and report by the names of
//! task and action; nothing is served to them an action at a time.
//!
//! Having done one action such a worker goes on with the next one of its list without asking, if that is its own. So they are given a
//! list in an order that holds for one task at a time, and a worker is told of a Workflow only when all that comes before in that list is
//! done: tasks that wait for none run side by side only as far as agents of the newer generation run them.

use super::again::{not_before, serving, tell_served};
use super::extras::Extras;
use super::order::one_by_one;
use super::report::{Report, Reported, report};
use super::serve::{hand_out, id, served_now};
use super::turn::place_of;
use super::{environment, is_done, state, timeout_of};
use api::tinkerbell::workflow::{Action, Task, Workflow, WorkflowStatus};
use jiff::Timestamp;

/// How far a Workflow is; its actions are counted through all tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    pub workflow_id: String,
    pub worker: String,
    pub task: String,
    /// Empty: none has begun.
    pub action: String,
    pub index: usize,
    pub runs: bool,
    pub total: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub task: String,
    pub name: String,
    pub image: String,
    /// Seconds, never 0.
    pub timeout: i64,
    pub command: Vec<String>,
    pub worker: String,
    pub volumes: Vec<String>,
    pub environment: Vec<String>,
    pub pid: String,
}

/// What this worker is told of a Workflow; `None`: it has nothing to do there now.
pub fn context(worker: &str, workflow: &Workflow, now: Timestamp) -> Option<Context> {
    let (status, extras) = served_now(workflow)?;
    let all = flat(status, &extras);
    let next = all.iter().position(|(_, action)| !is_done(action))?;
    let (task, action) = all[next];
    let name = action.name.as_deref().unwrap_or_default();
    let place = place_of(status, &extras, worker, |open, at| open.id == task.id && open.actions[at].id == action.id)?;
    let runs = action.state.as_deref() == Some(state::RUNNING);
    // A worker that asks runs nothing. What runs it would begin once more without saying so.
    let is_kept_back = match runs {
        true => !extras.is_idempotent(task, name),
        false => not_before(status, &extras, place).is_some_and(|at| at > now),
    };
    if is_kept_back {
        return None;
    }
    let at = if runs { Some(next) } else { next.checked_sub(1) };
    let (task, action) = all[at.unwrap_or_default()];
    Some(Context {
        workflow_id: id(workflow),
        worker: task.agent_id.clone(),
        task: task.name.clone(),
        action: at.and(action.name.clone()).unwrap_or_default(),
        index: at.unwrap_or_default(),
        runs,
        total: all.len(),
    })
}

pub fn actions(workflow: &Workflow) -> Vec<Listed> {
    let listed = |(task, action): (&Task, &Action)| Listed {
        task: task.name.clone(),
        name: action.name.clone().unwrap_or_default(),
        image: action.image.clone().unwrap_or_default(),
        timeout: timeout_of(action),
        command: action.command.clone(),
        worker: task.agent_id.clone(),
        volumes: task.volumes.iter().chain(&action.volumes).cloned().collect(),
        environment: environment(task, action),
        pid: action.pid.clone().unwrap_or_default(),
    };
    let read = workflow.status.as_ref().and_then(|status| Some((status, Extras::of(status)?)));
    read.map(|(status, extras)| flat(status, &extras)).unwrap_or_default().into_iter().map(listed).collect()
}

/// The same as [`report`], by names. That the worker began its action is what serves it: both are one write.
pub fn report_by_name(
    workflow: &Workflow,
    task: &str,
    action: &str,
    said: Report,
    now: Timestamp,
) -> Option<WorkflowStatus> {
    let (status, extras) = served_now(workflow)?;
    let is_named = |there: &Task, at: usize| there.name == task && there.actions[at].name.as_deref() == Some(action);
    let place = place_of(status, &extras, &said.agent_id, is_named)?;
    let there = &status.tasks[place.0].actions[place.1];
    // A name does not say which serving of the action is meant: what ends is one that the worker has said to run.
    let is_late =
        serving(there) > 1 && said.state != Reported::Running && there.state.as_deref() != Some(state::RUNNING);
    if is_late || not_before(status, &extras, place).is_some_and(|at| at > now) {
        return None;
    }
    let mut status = status.clone();
    if there.state.as_deref() != Some(state::RUNNING) {
        tell_served(&mut status, place, now);
    }
    let served = hand_out(workflow, &extras, status, place)?;
    let said = Report { task_id: served.task_id, action_id: served.action_id, ..said };
    let status = served.status.or_else(|| workflow.status.clone());
    report(&Workflow { status, ..workflow.clone() }, &said, now)
}

fn flat<'a>(status: &'a WorkflowStatus, extras: &Extras) -> Vec<(&'a Task, &'a Action)> {
    let order = extras.graph(&status.tasks).map(|graph| one_by_one(&graph));
    let order = order.unwrap_or_else(|| (0..status.tasks.len()).collect());
    let of = |task: &'a Task| task.actions.iter().map(move |action| (task, action));
    order.into_iter().flat_map(|at| of(&status.tasks[at])).collect()
}
