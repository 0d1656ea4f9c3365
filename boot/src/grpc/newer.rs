//! Agents of Tinkerbell's newer generation (`tink.proto`): which action next, and how it goes.

use super::attributes::read;
use super::callers::{Agent, Callers};
use super::connection::Caller;
use super::{CONFLICTS, unavailable, write};
use planner::workflow::{Answer, Report, Reported, Served, next, refused, report};
use prost::Message;
use proto::tink::action_status_request::StateType;
use proto::tink::workflow_service_server::WorkflowService;
use proto::tink::{ActionRequest, ActionResponse, ActionStatusRequest, ActionStatusResponse, Namespaces};
use runtime::clock;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// An agent waits a minute at least.
const LONG_POLL: Duration = Duration::from_secs(50);

const NO_ACTION: &str = "PRECONDITION_FAILURE_VIOLATION_NO_ACTION_AVAILABLE";

#[derive(Clone)]
pub struct Service {
    pub callers: Callers,
}

#[tonic::async_trait]
impl WorkflowService for Service {
    async fn get_action(&self, request: Request<ActionRequest>) -> Result<Response<ActionResponse>, Status> {
        let caller = Caller::of(&request);
        let request = request.into_inner();
        let presented = request.agent_id.filter(|agent| !agent.is_empty());
        let presented = presented.ok_or_else(|| Status::invalid_argument("agent_id is empty"))?;
        let agent = self.callers.agent(&caller, &presented).await?;
        let Callers { world, eyes, .. } = &self.callers;
        super::saw(world, eyes, &agent.id, caller.address, request.agent_attributes.map(read));
        let mut changes = world.changes();
        let (asked, end) = (clock::now(), Instant::now() + LONG_POLL);
        loop {
            changes.mark_unchanged();
            let again = match self.next((&caller, &presented), &agent, asked).await? {
                Found::Action(served) => {
                    tracing::info!(agent = agent.id, workflow = served.workflow_id, action = served.name, "served");
                    return Ok(Response::new(ActionResponse { agent_id: Some(presented), ..response(*served) }));
                }
                Found::Nothing { until } => until.map(|at| at.duration_since(clock::now())),
            };
            let again = again.map(|wait| Instant::now() + Duration::try_from(wait).unwrap_or_default());
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(again.map_or(end, |again| again.min(end))) => {
                    if Instant::now() >= end {
                        return Err(no_action());
                    }
                }
            }
        }
    }

    /// Taken as bytes before it comes here; see [`super::reported`].
    async fn report_action_status(
        &self,
        request: Request<ActionStatusRequest>,
    ) -> Result<Response<ActionStatusResponse>, Status> {
        report_of(&self.callers, &Caller::of(&request), request.into_inner()).await?;
        Ok(Response::new(ActionStatusResponse {}))
    }
}

pub(super) async fn reported(callers: &Callers, caller: &Caller, bytes: &[u8]) -> Result<(), Status> {
    let request = ActionStatusRequest::decode(bytes).map_err(|error| Status::invalid_argument(error.to_string()))?;
    report_of(callers, caller, request).await
}

async fn report_of(callers: &Callers, caller: &Caller, mut request: ActionStatusRequest) -> Result<(), Status> {
    let id = request.workflow_id().to_owned();
    let agent = match request.agent_id() {
        "" => String::new(),
        presented => callers.agent(caller, presented).await?.id,
    };
    request.agent_id = Some(agent.clone());
    let said = said(request);
    write(&callers.world, &id, &agent, |workflow| report(workflow, said.as_ref()?, clock::now())).await
}

enum Found {
    Action(Box<Served>),
    /// Until then, if nothing changes.
    Nothing {
        until: Option<jiff::Timestamp>,
    },
}

impl Service {
    /// `asked`: when the call came. Whoever called may have lost its session while it waited.
    async fn next(
        &self,
        (caller, presented): (&Caller, &str),
        Agent { id: agent, is_installer }: &Agent,
        asked: jiff::Timestamp,
    ) -> Result<Found, Status> {
        let world = &self.callers.world;
        let known = world.workflows();
        let names: Vec<_> = world
            .directory()
            .borrow()
            .candidates(agent, known.iter().map(AsRef::as_ref))
            .iter()
            .map(|workflow| workflow.metadata.name.clone().unwrap_or_default())
            .collect();
        for name in names {
            for _ in 0..CONFLICTS {
                let Some(workflow) = world.read(&name).await.map_err(|error| unavailable(&error))? else { break };
                if !world.directory().borrow().may_run(agent, &workflow) {
                    break;
                }
                let lacks = is_installer.then(|| refused(agent, &workflow, clock::now())).flatten();
                let answer = lacks.map(|status| Answer::Fail(Box::new(status)));
                let Some(answer) = answer.or_else(|| next(agent, &workflow, asked, clock::now())) else { break };
                let (served, status) = match answer {
                    Answer::Serve(mut served) => {
                        let status = served.status.take();
                        (Some(served), status)
                    }
                    Answer::Fail(status) => (None, Some(*status)),
                    Answer::Wait(until) => return Ok(Found::Nothing { until }),
                };
                if served.is_some() {
                    self.callers.agent(caller, presented).await?;
                }
                let written = match status {
                    Some(status) => world.write(&workflow, status).await.map_err(|error| unavailable(&error))?,
                    None => true,
                };
                match served {
                    _ if !written => {}
                    Some(served) => return Ok(Found::Action(served)),
                    None => {
                        tracing::warn!(
                            agent,
                            workflow = name,
                            "failed when its agent asked: its condition WorkflowFailed says why"
                        );
                        break;
                    }
                }
            }
        }
        Ok(Found::Nothing { until: None })
    }
}

/// What upstream's agent waits on quietly.
fn no_action() -> Status {
    let details = ErrorDetails::with_precondition_failure_violation(NO_ACTION, "", "no action is available");
    Status::with_error_details(Code::FailedPrecondition, "no action is available", details)
}

fn response(served: Served) -> ActionResponse {
    let namespaces =
        served.namespaces.map(|namespaces| Namespaces { network: namespaces.network, pid: namespaces.pid });
    ActionResponse {
        workflow_id: Some(served.workflow_id),
        task_id: Some(served.task_id),
        agent_id: Some(served.agent_id),
        action_id: Some(served.action_id),
        name: Some(served.name),
        image: Some(served.image),
        timeout: Some(served.timeout),
        command: served.command,
        volumes: served.volumes,
        environment: served.environment,
        pid: Some(served.pid),
        namespaces,
    }
}

/// `None`: it says nothing that changes a Workflow.
fn said(request: ActionStatusRequest) -> Option<Report> {
    let state = match StateType::try_from(request.action_state?).ok()? {
        StateType::Running => Reported::Running,
        StateType::Success => Reported::Success,
        StateType::Failed => Reported::Failed,
        StateType::Timeout => Reported::Timeout,
        StateType::Unspecified | StateType::Pending => return None,
    };
    // A time of Go's that was never set is the year 1.
    let time = |time: Option<prost_types::Timestamp>| {
        time.filter(|time| time.seconds > 0).and_then(|time| jiff::Timestamp::new(time.seconds, time.nanos).ok())
    };
    Some(Report {
        agent_id: request.agent_id.unwrap_or_default(),
        task_id: request.task_id.unwrap_or_default(),
        action_id: request.action_id.unwrap_or_default(),
        state,
        start: time(request.execution_start),
        stop: time(request.execution_stop),
        duration: request.execution_duration.unwrap_or_default(),
        message: request.message.and_then(|message| message.message).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_the_planner_takes_for_built_in_is_what_the_installer_has() {
        assert_eq!(planner::workflow::BUILT_IN, installer::actions::NAMES);
    }
}
