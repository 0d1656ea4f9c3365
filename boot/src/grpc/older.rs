//! Workers of Tinkerbell's older generation (`tink_older.proto`). Nothing is kept back from them: they ask again every few seconds.

use super::callers::Callers;
use super::{unavailable, write};
use crate::world::World;
use futures::stream::{self, Stream};
use planner::workflow::older::{self, Context, Listed};
use planner::workflow::{Report, Reported};
use prost::Message;
use proto::tink::older::{
    State, WorkflowAction, WorkflowActionList, WorkflowActionStatus, WorkflowActionsRequest, WorkflowContext,
    WorkflowContextRequest,
};
use runtime::clock;
use std::pin::Pin;
use std::sync::Arc;
use tonic::{Request, Response, Status};

type Contexts = Pin<Box<dyn Stream<Item = Result<WorkflowContext, Status>> + Send>>;

/// The Workflow that counts for this worker: it runs one at a time.
pub(super) async fn contexts(
    callers: Callers,
    request: Request<WorkflowContextRequest>,
) -> Result<Response<Contexts>, Status> {
    let Callers { world, eyes, .. } = callers;
    let worker = request.into_inner().worker_id;
    if worker.is_empty() {
        return Err(Status::invalid_argument("worker_id is empty"));
    }
    super::saw(&world, &eyes, &worker, None, None);
    let known = world.workflows();
    let directory = world.directory().borrow().clone();
    let names = directory.candidates(&worker, known.iter().map(AsRef::as_ref)).into_iter();
    let names: Vec<_> = names.map(|workflow| workflow.metadata.name.clone().unwrap_or_default()).collect();
    let mut told: Option<WorkflowContext> = None;
    for name in names {
        let Some(workflow) = world.read(&name).await.map_err(|error| unavailable(&error))? else { continue };
        if !world.directory().borrow().may_run(&worker, &workflow) {
            continue;
        }
        told = older::context(&worker, &workflow, clock::now()).map(context);
        if told.is_some() {
            break;
        }
    }
    Ok(Response::new(Box::pin(stream::iter(told.map(Ok)))))
}

fn context(context: Context) -> WorkflowContext {
    let count = |number: usize| i64::try_from(number).unwrap_or_default();
    let state = match (context.action.as_str(), context.runs) {
        ("", _) => State::Pending,
        (_, true) => State::Running,
        (_, false) => State::Success,
    };
    WorkflowContext {
        workflow_id: context.workflow_id,
        current_worker: context.worker,
        current_task: context.task,
        current_action: context.action,
        current_action_index: count(context.index),
        current_action_state: state as i32,
        total_number_of_actions: count(context.total),
    }
}

pub(super) async fn actions(
    world: Arc<World>,
    request: Request<WorkflowActionsRequest>,
) -> Result<Response<WorkflowActionList>, Status> {
    let id = request.into_inner().workflow_id;
    let name = id.strip_prefix(&format!("{}/", world.namespace)).unwrap_or_default();
    let read = if name.is_empty() { None } else { world.read(name).await.map_err(|error| unavailable(&error))? };
    // Which worker asks is not told: each that is named there has to be one that may run it.
    let may_run = |workflow: &api::tinkerbell::Workflow| {
        let directory = world.directory();
        let directory = directory.borrow();
        let listed = older::actions(workflow);
        !listed.is_empty() && listed.iter().all(|action| directory.may_run(&action.worker, workflow))
    };
    let workflow = read.filter(may_run).ok_or_else(|| Status::not_found("there is no such Workflow for a worker"))?;
    let action_list = older::actions(&workflow).into_iter().map(action).collect();
    Ok(Response::new(WorkflowActionList { action_list }))
}

fn action(listed: Listed) -> WorkflowAction {
    WorkflowAction {
        task_name: listed.task,
        name: listed.name,
        image: listed.image,
        timeout: listed.timeout,
        command: listed.command,
        on_timeout: Vec::new(),
        on_failure: Vec::new(),
        worker_id: listed.worker,
        volumes: listed.volumes,
        environment: listed.environment,
        pid: listed.pid,
    }
}

pub(super) async fn reported(world: &World, bytes: &[u8]) -> Result<(), Status> {
    let said = WorkflowActionStatus::decode(bytes).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let state = match State::try_from(said.action_status) {
        Ok(State::Running) => Reported::Running,
        Ok(State::Success) => Reported::Success,
        Ok(State::Failed) => Reported::Failed,
        Ok(State::Timeout) => Reported::Timeout,
        Ok(State::Pending) | Err(_) => return Ok(()),
    };
    let report = Report {
        agent_id: said.worker_id.clone(),
        task_id: String::new(),
        action_id: String::new(),
        state,
        start: None,
        stop: None,
        duration: format!("{}s", said.seconds),
        message: said.message.clone(),
    };
    write(world, &said.workflow_id, &said.worker_id, |workflow| {
        if !world.directory().borrow().may_run(&said.worker_id, workflow) {
            return None;
        }
        older::report_by_name(workflow, &said.task_name, &said.action_name, report.clone(), clock::now())
    })
    .await
}
