//! Which action an agent gets.

use super::advance::set;
use super::{agent_of, current, environment, state, state_of, timeout_of};
use api::tinkerbell::workflow::{ActionNamespaces, CurrentState, Workflow, WorkflowStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

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

/// The Workflows that this agent may be served from, the one that counts first: one that runs, else the oldest. One that has
/// ended hides none.
pub fn candidates<'a>(agent: &str, workflows: impl IntoIterator<Item = &'a Workflow>) -> Vec<&'a Workflow> {
    let mut found: Vec<_> = workflows.into_iter().filter(|workflow| is_for(agent, workflow)).collect();
    let order = |workflow: &&Workflow| {
        let meta = &workflow.metadata;
        (
            state_of(workflow) != state::RUNNING,
            meta.creation_timestamp.as_ref().map(|time| time.0),
            meta.namespace.clone(),
            meta.name.clone(),
        )
    };
    found.sort_by_key(order);
    found
}

pub(super) fn is_for(agent: &str, workflow: &Workflow) -> bool {
    agent_of(workflow) == Some(agent)
        && matches!(state_of(workflow), state::PENDING | state::RUNNING)
        && workflow.spec.disabled != Some(true)
        && workflow.metadata.deletion_timestamp.is_none()
}

/// What an agent that asks makes of a Workflow.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Serve(Box<Served>),
    /// It has asked too often: the status is to be written, and there is nothing to serve.
    Fail(Box<WorkflowStatus>),
}

/// An agent that asks again while its action runs was restarted, and gets the action again, five times in all. The reason of the
/// condition counts, for the action that runs.
const RETRIED: &str = "ActionRetried";
const SERVED: [&str; 4] = ["ServedTwice", "ServedThreeTimes", "ServedFourTimes", "ServedFiveTimes"];

/// What this agent is answered from this Workflow, and how often one action may be served.
pub fn next(agent: &str, workflow: &Workflow, now: Timestamp) -> Option<Answer> {
    let mut served = serve(agent, workflow)?;
    let before = workflow.status.as_ref()?;
    let place = current(before)?;
    let action = &before.tasks[place.0].actions[place.1];
    let mut status = served.status.take().unwrap_or_else(|| before.clone());
    if action.state.as_deref() == Some(state::RUNNING) {
        let Some(word) = served_again(before) else { return Some(fail(status, place, agent, now)) };
        let message = format!(
            "agent '{agent}' asked again while action '{}' ran: its server was restarted, or an answer was lost; the action is \
             served again",
            action.name.as_deref().unwrap_or_default()
        );
        set(&mut status, RETRIED, "True", word, &message, now);
    } else {
        status.conditions.retain(|condition| condition.type_ != RETRIED);
    }
    served.status = (status != *before).then_some(status);
    Some(Answer::Serve(Box::new(served)))
}

/// The action that this agent gets from this Workflow. One that it was served before, and has not ended, it gets again: it may
/// have been restarted.
pub fn serve(agent: &str, workflow: &Workflow) -> Option<Served> {
    if !is_for(agent, workflow) {
        return None;
    }
    let before = workflow.status.as_ref()?;
    let (task, action) = current(before)?;
    let task = &before.tasks[task];
    let action = &task.actions[action];
    if task.agent_id != agent || !matches!(action.state.as_deref(), None | Some("" | state::PENDING | state::RUNNING)) {
        return None;
    }
    let mut status = before.clone();
    status.current_state = Some(CurrentState {
        agent_id: Some(agent.to_owned()),
        task_id: Some(task.id.clone()),
        action_id: Some(action.id.clone()),
        state: Some(
            action.state.clone().filter(|state| !state.is_empty()).unwrap_or_else(|| state::PENDING.to_owned()),
        ),
        action_name: action.name.clone(),
        task_name: Some(task.name.clone()),
    });
    let meta = &workflow.metadata;
    let namespaces = action.namespaces.clone();
    Some(Served {
        workflow_id: id(workflow),
        task_id: task.id.clone(),
        agent_id: agent.to_owned(),
        action_id: action.id.clone(),
        name: action.name.clone().unwrap_or_default(),
        image: action.image.clone().unwrap_or_default(),
        timeout: timeout_of(action),
        command: action.command.clone(),
        volumes: task.volumes.iter().chain(&action.volumes).cloned().collect(),
        environment: environment(task, action),
        pid: action.pid.clone().unwrap_or_default(),
        namespaces,
        status: (status != *before && meta.name.is_some()).then_some(status),
    })
}

/// The word for one more time; `None`: it was the last.
fn served_again(status: &WorkflowStatus) -> Option<&'static str> {
    let retried = status.conditions.iter().find(|condition| condition.type_ == RETRIED);
    let reason = retried.and_then(|condition| condition.reason.as_deref());
    let served = SERVED.iter().position(|word| Some(*word) == reason);
    SERVED.get(served.map_or(0, |at| at + 1)).copied()
}

fn fail(mut status: WorkflowStatus, (task, action): (usize, usize), agent: &str, now: Timestamp) -> Answer {
    let action = &mut status.tasks[task].actions[action];
    action.state = Some(state::FAILED.to_owned());
    action.execution_stop = Some(Time(now));
    action.message = Some(format!(
        "agent '{agent}' was served this action five times and asked again without a result: the server restarts while the \
         action runs"
    ));
    status.state = Some(state::FAILED.to_owned());
    if let Some(current) = &mut status.current_state {
        current.state = Some(state::FAILED.to_owned());
    }
    Answer::Fail(Box::new(status))
}

pub(super) fn id(workflow: &Workflow) -> String {
    let meta = &workflow.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}
