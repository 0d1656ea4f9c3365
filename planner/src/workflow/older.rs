//! Workers of Tinkerbell's older generation. They read a whole Workflow, run its actions one after the other, and report by the names of
//! task and action; nothing is served to them an action at a time.

use super::report::{Report, report};
use super::serve::{id, is_for, serve};
use super::{current, environment, is_done, state, timeout_of};
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
pub fn context(worker: &str, workflow: &Workflow) -> Option<Context> {
    let status = workflow.status.as_ref().filter(|_| is_for(worker, workflow))?;
    let all: Vec<(&Task, &Action)> = flat(status).collect();
    let begun = |action: &Action| is_done(action) || action.state.as_deref() == Some(state::RUNNING);
    let at = all.iter().rposition(|(_, action)| begun(action));
    let (task, action) = all.get(at.unwrap_or_default()).copied()?;
    Some(Context {
        workflow_id: id(workflow),
        worker: task.agent_id.clone(),
        task: task.name.clone(),
        action: at.and(action.name.clone()).unwrap_or_default(),
        index: at.unwrap_or_default(),
        runs: action.state.as_deref() == Some(state::RUNNING),
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
    workflow.status.iter().flat_map(flat).map(listed).collect()
}

/// The same as [`report`], by names. That the worker began its action is what serves it: both are one write.
pub fn report_by_name(
    workflow: &Workflow,
    task: &str,
    action: &str,
    said: Report,
    now: Timestamp,
) -> Option<WorkflowStatus> {
    let status = workflow.status.as_ref()?;
    let (task_at, action_at) = current(status)?;
    let there = &status.tasks[task_at];
    if there.name != task || there.actions[action_at].name.as_deref() != Some(action) {
        return None;
    }
    let served = serve(&said.agent_id, workflow)?;
    let said = Report { task_id: served.task_id, action_id: served.action_id, ..said };
    let status = served.status.or_else(|| workflow.status.clone());
    report(&Workflow { status, ..workflow.clone() }, &said, now)
}

fn flat(status: &WorkflowStatus) -> impl Iterator<Item = (&Task, &Action)> {
    status.tasks.iter().flat_map(|task| task.actions.iter().map(move |action| (task, action)))
}
