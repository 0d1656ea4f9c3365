//! Which action an agent gets.

use super::again;
use super::ended::{self, Why};
use super::extras::Extras;
use super::status::{begins, current, heard_of};
use super::turn::{has_begun, turn};
use super::{environment, is_whole, state, state_of, timeout_of};
use api::tinkerbell::workflow::{ActionNamespaces, Task, Workflow, WorkflowStatus};
use jiff::Timestamp;
use std::cmp::Ordering;

/// What an agent is answered, once `status` is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    pub workflow_id: String,
    pub task_id: String,
    pub agent_id: String,
    pub action_id: String,
    pub name: String,
    pub image: String,
    /// Seconds, never 0.
    pub timeout: i64,
    pub command: Vec<String>,
    pub volumes: Vec<String>,
    pub environment: Vec<String>,
    pub pid: String,
    pub namespaces: Option<ActionNamespaces>,
    /// To be written before the agent is answered; `None`: the status stands, for the action was served before.
    pub status: Option<WorkflowStatus>,
}

/// What a Workflow is for an agent; what comes first is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// The agent has begun a task of it: it gets nothing of another one.
    Begun,
    Runs,
    Waits,
}

/// A Workflow that has something for an agent, now or later.
pub(super) struct Place<'a> {
    pub workflow: &'a Workflow,
    standing: Standing,
    /// `false`: in a graph that runs its turn is yet to come.
    is_turn: bool,
    /// Of a graph that runs, which has yet to come to the agent, or to an end.
    binds: bool,
}

impl Place<'_> {
    pub fn has_begun(&self) -> bool {
        self.standing == Standing::Begun
    }

    /// One that runs, else the oldest.
    pub fn by_turn(&self, other: &Self) -> Ordering {
        let order = |place: &Self| {
            let meta = &place.workflow.metadata;
            let age = meta.creation_timestamp.as_ref().map(|time| time.0);
            (place.standing, age, meta.namespace.clone(), meta.name.clone())
        };
        order(self).cmp(&order(other))
    }
}

pub(super) fn standing<'a>(agent: &str, workflow: &'a Workflow) -> Option<Place<'a>> {
    let (status, extras) = served_now(workflow)?;
    let runs = state_of(workflow) == state::RUNNING;
    let has_open = |task: &Task| task.agent_id == agent && !is_whole(task);
    let binds = runs && extras.graph(&status.tasks).is_some() && status.tasks.iter().any(has_open);
    let turn = turn(status, &extras, agent);
    let standing = match turn {
        Some((task, _)) if runs && has_begun(&status.tasks[task]) => Standing::Begun,
        _ if runs => Standing::Runs,
        _ => Standing::Waits,
    };
    (binds || turn.is_some()).then_some(Place { workflow, standing, is_turn: turn.is_some(), binds })
}

/// The Workflows that this agent may be served from, the one that counts first: one that runs, else the oldest. One that has
/// ended hides none. Nothing new begins for an agent that a graph under way has yet to come to.
pub fn candidates<'a>(agent: &str, workflows: impl IntoIterator<Item = &'a Workflow>) -> Vec<&'a Workflow> {
    let mut found: Vec<_> = workflows.into_iter().filter_map(|workflow| standing(agent, workflow)).collect();
    let is_bound = found.iter().any(|place| place.binds);
    found.retain(|place| place.is_turn);
    found.sort_by(Place::by_turn);
    if found.first().is_some_and(Place::has_begun) {
        found.truncate(1);
    }
    found.retain(|place| !is_bound || place.standing != Standing::Waits);
    found.into_iter().map(|place| place.workflow).collect()
}

/// Actions of it are served at all.
fn is_served(workflow: &Workflow) -> bool {
    matches!(state_of(workflow), state::PENDING | state::RUNNING)
        && workflow.spec.disabled != Some(true)
        && workflow.metadata.deletion_timestamp.is_none()
}

fn read(workflow: &Workflow) -> Option<(&WorkflowStatus, Extras)> {
    let status = workflow.status.as_ref()?;
    Some((status, Extras::of(status)?))
}

/// Its status and keys, if its actions are served.
pub(super) fn served_now(workflow: &Workflow) -> Option<(&WorkflowStatus, Extras)> {
    read(workflow).filter(|_| is_served(workflow))
}

/// What an agent that asks makes of a Workflow.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Serve(Box<Served>),
    /// It has asked too often: the status is to be written, and there is nothing to serve.
    Fail(Box<WorkflowStatus>),
    /// There is nothing to serve now, and nothing of another Workflow is to be served instead: the agent's action here waits until
    /// then, or is under way.
    Wait(Option<Timestamp>),
}

/// What this agent is answered from this Workflow, and how often one action may be served. `asked`: when its call came.
pub fn next(agent: &str, workflow: &Workflow, asked: Timestamp, now: Timestamp) -> Option<Answer> {
    let (before, extras) = served_now(workflow)?;
    let place = turn(before, &extras, agent)?;
    let action = &before.tasks[place.0].actions[place.1];
    let mut status = before.clone();
    if action.state.as_deref() == Some(state::RUNNING) {
        // A call that came before the action ran is one that its agent has given up: it asks no more while it runs one.
        if action.execution_start.as_ref().is_some_and(|start| asked < start.0) {
            return Some(Answer::Wait(None));
        }
        if let Err((reason, message)) = again::after_restart(&mut status, &extras, place, now) {
            ended::end(&mut status, &[place], &Why { state: state::FAILED, reason, message }, now);
            return Some(Answer::Fail(Box::new(status)));
        }
    } else {
        let wait = again::not_before(before, &extras, place).filter(|at| *at > now);
        if wait.is_some() {
            return Some(Answer::Wait(wait));
        }
        again::tell_served(&mut status, place, now);
    }
    begins(&mut status);
    heard_of(&mut status, now);
    hand_out(workflow, &extras, status, place).map(|served| Answer::Serve(Box::new(served)))
}

/// The action that this agent gets from this Workflow. One that it was served before, and has not ended, it gets again: it may
/// have been restarted.
pub fn serve(agent: &str, workflow: &Workflow) -> Option<Served> {
    let (status, extras) = served_now(workflow)?;
    hand_out(workflow, &extras, status.clone(), turn(status, &extras, agent)?)
}

/// `status`: what becomes of the Workflow's, but for that this action is served.
pub(super) fn hand_out(
    workflow: &Workflow,
    extras: &Extras,
    mut status: WorkflowStatus,
    (task_at, action_at): (usize, usize),
) -> Option<Served> {
    let task = &status.tasks[task_at];
    let action = &task.actions[action_at];
    if !matches!(action.state.as_deref(), None | Some("" | state::PENDING | state::RUNNING)) {
        return None;
    }
    let served = Served {
        workflow_id: id(workflow),
        task_id: task.id.clone(),
        agent_id: task.agent_id.clone(),
        action_id: action.id.clone(),
        name: action.name.clone().unwrap_or_default(),
        image: action.image.clone().unwrap_or_default(),
        timeout: timeout_of(action),
        command: action.command.clone(),
        volumes: task.volumes.iter().chain(&action.volumes).cloned().collect(),
        environment: environment(task, action),
        pid: action.pid.clone().unwrap_or_default(),
        namespaces: action.namespaces.clone(),
        status: None,
    };
    status.current_state = Some(current(task, action_at));
    // The current state is one, and several agents may have been served: each action says so itself.
    if extras.graph(&status.tasks).is_some() && again::is_fresh(&status.tasks[task_at].actions[action_at]) {
        let message = format!("served to agent '{}', which has not said yet that it runs", served.agent_id);
        status.tasks[task_at].actions[action_at].message = Some(message);
    }
    let is_new = workflow.status.as_ref() != Some(&status) && workflow.metadata.name.is_some();
    Some(Served { status: is_new.then_some(status), ..served })
}

pub(super) fn id(workflow: &Workflow) -> String {
    let meta = &workflow.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}
