//! Asks the server for actions and reports them: Tinkerbell's protocol, the newer generation.
//!
//! An agent without work is answered `FailedPrecondition` and asks again. What ends a report for good (`NotFound`,
//! `InvalidArgument`, `FailedPrecondition`: the action is none of this agent's any more) does not end the agent: it asks what
//! there is instead. Everything else is repeated, the result of an action for ever: a server that restarts loses none.

use crate::attributes::system_uuid;
use crate::console;
use crate::lines::Lines;
use crate::session::{Dial, Session, bounded, by_tcp, channel, why};
use proto::tink::action_status_request::StateType;
use proto::tink::workflow_service_client::WorkflowServiceClient;
use proto::tink::{ActionMessage, ActionRequest, ActionResponse, ActionStatusRequest, AgentAttributes};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use trust::pin::Pin;

/// The server holds a question back for a minute at most.
const ASK: Duration = Duration::from_secs(120);
const REPORT: Duration = Duration::from_secs(30);
/// Between questions of an agent without work.
const IDLE: Duration = Duration::from_secs(2);
/// After a failure: the first wait, and what it doubles up to.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// For an action that has none: upstream's agent would take 0 for a time that has passed.
const NO_TIMEOUT: Duration = Duration::from_secs(3600);

/// In the detail of a status.
const NO_ACTION: &[u8] = b"PRECONDITION_FAILURE_VIOLATION_NO_ACTION_AVAILABLE";

/// What one action has to do with, of what the server sent.
#[derive(Debug, Clone)]
pub struct Action {
    pub name: String,
    pub image: String,
    pub command: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// An action that is not done by then has to end, and has failed.
    pub deadline: Instant,
}

/// After the server knows of an action's success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Next,
    Restart,
    /// A restart that starts the kernel which the action has loaded.
    Kexec,
}

/// What can be done here.
pub trait Actions {
    /// Before anything is done: the server has what is said here on record then, whatever becomes of the action.
    fn tell(&self, _: &Action, _: &Lines) {}

    /// The error is the cause, without what was said on the way.
    fn run(&self, action: &Action, lines: &Lines) -> impl Future<Output = Result<Then, String>>;
}

pub struct Agent {
    client: WorkflowServiceClient<Channel>,
    /// Where the server knows its agents by sessions.
    session: Option<Session>,
    worker: String,
    attributes: AgentAttributes,
    /// Of the action that runs.
    lines: Mutex<Lines>,
}

impl Agent {
    /// `servers` are replicas of one, each host and port; `pin` is of their key. Nothing is connected yet.
    pub fn new(
        servers: &[String],
        pin: Option<Pin>,
        worker: String,
        attributes: AgentAttributes,
    ) -> Result<Self, String> {
        Self::by(by_tcp(), servers, pin, worker, (attributes, system_uuid()))
    }

    /// The same, reached another way, and on another server than this one.
    pub fn by(
        dial: Dial,
        servers: &[String],
        pin: Option<Pin>,
        worker: String,
        (attributes, system_uuid): (AgentAttributes, Option<String>),
    ) -> Result<Self, String> {
        let first = servers.first().map(String::as_str).unwrap_or_default();
        let endpoint = Endpoint::from_shared(format!("http://{first}")).map_err(|error| error.to_string())?;
        let endpoint =
            endpoint.http2_keep_alive_interval(Duration::from_secs(20)).keep_alive_timeout(Duration::from_secs(20));
        let channel = channel(&endpoint, dial, servers, pin)?;
        let session = pin.map(|_| Session::new(channel.clone(), worker.clone(), system_uuid));
        let client = WorkflowServiceClient::new(channel);
        Ok(Self { client, session, worker, attributes, lines: Mutex::default() })
    }

    pub fn session(&self) -> Option<Session> {
        self.session.clone()
    }

    /// Does what the server says until the machine is to be restarted: how.
    pub async fn serve(&self, actions: &impl Actions) -> Then {
        loop {
            let Some(session) = &self.session else {
                // Where there is no session, none is lost.
                return self.work(actions).await.unwrap_or(Then::Restart);
            };
            let every = self.redeemed(session.clone()).await;
            let doing = || self.lines.lock().unwrap_or_else(PoisonError::into_inner).newest();
            let done = tokio::select! {
                done = self.work(actions) => done,
                () = session.clone().beat(every, doing) => None,
            };
            if let Some(then) = done {
                session.clone().end().await;
                return then;
            }
        }
    }

    /// Once the server has given the session: how often it is to be told of it.
    async fn redeemed(&self, mut session: Session) -> Duration {
        let mut again = AGAIN.0;
        let mut said = String::new();
        loop {
            let status = match session.redeem().await {
                Ok(every) => return every,
                Err(status) => status,
            };
            let now = why(&status);
            if std::mem::replace(&mut said, now.clone()) != now {
                console::say(format_args!("asking for a session: {now}"));
            }
            sleep(again).await;
            again = (again * 2).min(AGAIN.1);
        }
    }

    /// Until the machine is to be restarted, and how; `None`: the session is another one's, or nobody's.
    async fn work(&self, actions: &impl Actions) -> Option<Then> {
        let mut again = AGAIN.0;
        let mut was_idle = false;
        loop {
            let response = match self.ask().await {
                Ok(response) => response,
                Err(status) if is_idle(&status) => {
                    if !std::mem::replace(&mut was_idle, true) {
                        console::say(format_args!("waits for work: {}", status.message()));
                    }
                    sleep(IDLE).await;
                    continue;
                }
                Err(status) => {
                    console::say(format_args!("asking for an action: {}", why(&status)));
                    sleep(again).await;
                    if self.has_lost_its_session(&status) {
                        return None;
                    }
                    again = (again * 2).min(AGAIN.1);
                    continue;
                }
            };
            was_idle = false;
            match self.one(actions, &response).await {
                Some(Then::Next) => again = AGAIN.0,
                Some(restart) => return Some(restart),
                None => {
                    sleep(again).await;
                    again = (again * 2).min(AGAIN.1);
                }
            }
        }
    }

    fn has_lost_its_session(&self, status: &Status) -> bool {
        self.session.is_some() && status.code() == Code::Unauthenticated
    }

    async fn ask(&self) -> Result<ActionResponse, Status> {
        let request =
            ActionRequest { agent_id: Some(self.worker.clone()), agent_attributes: Some(self.attributes.clone()) };
        bounded(ASK, self.client.clone().get_action(request)).await
    }

    /// None: the server does not want to hear of this action; it is asked what there is instead.
    async fn one(&self, actions: &impl Actions, response: &ActionResponse) -> Option<Then> {
        let action = action(response);
        let lines = Lines::default();
        *self.lines.lock().unwrap_or_else(PoisonError::into_inner) = lines.clone();
        actions.tell(&action, &lines);
        let told = Some(lines.last()).filter(|told| !told.is_empty()).unwrap_or_else(|| "running action".to_owned());
        let (started, since) = (SystemTime::now(), Instant::now());
        let mut report = ActionStatusRequest {
            workflow_id: response.workflow_id.clone(),
            agent_id: Some(self.worker.clone()),
            task_id: response.task_id.clone(),
            action_id: response.action_id.clone(),
            action_name: response.name.clone(),
            action_state: Some(StateType::Running as i32),
            execution_start: Some(started.into()),
            execution_stop: None,
            execution_duration: Some(String::new()),
            message: Some(ActionMessage { message: Some(told) }),
        };
        if let Err(status) = self.report(&report).await {
            console::say(format_args!("reporting that {} runs: {}", action.name, why(&status)));
            return None;
        }
        lines.say(&format!("{}: {}", action.name, action.image));
        let done = actions.run(&action, &lines).await;
        let state = match &done {
            Ok(_) => StateType::Success,
            Err(_) if Instant::now() >= action.deadline => StateType::Timeout,
            Err(_) => StateType::Failed,
        };
        if let Err(cause) = &done {
            format!("{}: {}: {cause}", action.name, state.as_str_name()).lines().for_each(|line| lines.say(line));
        }
        report.action_state = Some(state as i32);
        report.execution_stop = Some(SystemTime::now().into());
        report.execution_duration = Some(format!("{:.3}s", since.elapsed().as_secs_f64()));
        report.message = Some(ActionMessage { message: Some(lines.last()) });
        let heard = self.report_until_heard(&report).await;
        *self.lines.lock().unwrap_or_else(PoisonError::into_inner) = Lines::default();
        // What has failed is not followed by anything.
        heard.then_some(done.unwrap_or(Then::Next))
    }

    async fn report(&self, report: &ActionStatusRequest) -> Result<(), Status> {
        bounded(REPORT, self.client.clone().report_action_status(report.clone())).await.map(drop)
    }

    async fn report_until_heard(&self, report: &ActionStatusRequest) -> bool {
        let mut again = AGAIN.0;
        loop {
            let Err(status) = self.report(report).await else { return true };
            console::say(format_args!("reporting {}: {}", report.action_name(), why(&status)));
            if matches!(status.code(), Code::NotFound | Code::InvalidArgument | Code::FailedPrecondition) {
                return false;
            }
            sleep(again).await;
            again = (again * 2).min(AGAIN.1);
            // The result is this start's, whoever has the session in between.
            if let (true, Some(session)) = (self.has_lost_its_session(&status), &self.session) {
                let _ = self.redeemed(session.clone()).await;
            }
        }
    }
}

fn is_idle(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition || status.details().windows(NO_ACTION.len()).any(|part| part == NO_ACTION)
}

fn action(response: &ActionResponse) -> Action {
    let seconds = u64::try_from(response.timeout()).unwrap_or(0);
    let limit = if seconds == 0 { NO_TIMEOUT } else { Duration::from_secs(seconds) };
    let pairs = response.environment.iter().filter_map(|pair| pair.split_once('='));
    Action {
        name: response.name().to_owned(),
        image: response.image().to_owned(),
        command: response.command.clone(),
        environment: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        deadline: Instant::now() + limit,
    }
}
