//! Which action an agent gets.

use super::{agent_of, current, environment, state, state_of, timeout_of};
use api::tinkerbell::workflow::{ActionNamespaces, CurrentState, Workflow, WorkflowStatus};

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

fn is_for(agent: &str, workflow: &Workflow) -> bool {
    agent_of(workflow) == Some(agent)
        && matches!(state_of(workflow), state::PENDING | state::RUNNING)
        && workflow.spec.disabled != Some(true)
        && workflow.metadata.deletion_timestamp.is_none()
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

pub(super) fn id(workflow: &Workflow) -> String {
    let meta = &workflow.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}
