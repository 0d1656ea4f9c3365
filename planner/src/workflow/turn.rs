//! Whose turn it is. A task is open once every task that it waits for is done; several may be, for several agents.

use super::again::is_fresh;
use super::extras::Extras;
use super::{is_done, is_whole};
use api::tinkerbell::workflow::{Task, WorkflowStatus};

/// Of each task that is open its place, and that of its first action that has not succeeded.
pub(super) fn open(status: &WorkflowStatus, extras: &Extras) -> Vec<(usize, usize)> {
    let tasks = &status.tasks;
    let action = |at: usize| Some((at, tasks[at].actions.iter().position(|action| !is_done(action))?));
    let Some(graph) = extras.graph(tasks) else {
        return (0..tasks.len()).find_map(action).into_iter().collect();
    };
    let done: Vec<bool> = tasks.iter().map(is_whole).collect();
    (0..tasks.len()).filter(|at| graph[*at].iter().all(|before| done[*before])).filter_map(action).collect()
}

/// What this agent is at, or begins next: it does one thing at a time.
pub(super) fn turn(status: &WorkflowStatus, extras: &Extras, agent: &str) -> Option<(usize, usize)> {
    let own = || open(status, extras).into_iter().filter(|(task, _)| status.tasks[*task].agent_id == agent);
    own().find(|(task, _)| has_begun(&status.tasks[*task])).or_else(|| own().next())
}

/// Upstream's status names one agent: that of the first task that is open.
pub(super) fn first_agent(status: &WorkflowStatus, extras: &Extras) -> Option<String> {
    open(status, extras).first().map(|(task, _)| status.tasks[*task].agent_id.clone())
}

/// An action of it was served, as far as that is known.
pub(super) fn has_begun(task: &Task) -> bool {
    !task.actions.iter().all(is_fresh)
}

/// The place of the action that this agent names, if its task is open.
pub(super) fn place_of(
    status: &WorkflowStatus,
    extras: &Extras,
    agent: &str,
    is_named: impl Fn(&Task, usize) -> bool,
) -> Option<(usize, usize)> {
    open(status, extras).into_iter().find(|(task, action)| {
        let task = &status.tasks[*task];
        task.agent_id == agent && is_named(task, *action)
    })
}
