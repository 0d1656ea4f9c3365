//! A server that has a list of actions for one agent, and keeps what it is told.

use proto::tink::action_status_request::StateType;
use proto::tink::workflow_service_server::{WorkflowService, WorkflowServiceServer};
use proto::tink::{ActionRequest, ActionResponse, ActionStatusRequest, ActionStatusResponse};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server as Transport;
use tonic::{Code, Request, Response, Status};

#[derive(Default)]
pub struct State {
    /// The first is served until its result was reported.
    pub actions: VecDeque<ActionResponse>,
    pub asked: Vec<ActionRequest>,
    pub reports: Vec<ActionStatusRequest>,
    /// What the next reports of this state are answered.
    pub refusals: VecDeque<(StateType, Code)>,
}

#[derive(Clone, Default)]
pub struct Server {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl Server {
    pub async fn start(actions: Vec<ActionResponse>) -> (Self, SocketAddr) {
        let server = Self::default();
        server.lock().actions = actions.into();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("an address");
        let service = WorkflowServiceServer::new(server.clone());
        tokio::spawn(Transport::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)));
        (server, address)
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    /// What was reported, in order: the action's name and its state.
    pub fn told(&self) -> Vec<(String, StateType)> {
        self.lock().reports.iter().map(|report| (report.action_name().to_owned(), report.action_state())).collect()
    }

    /// The report of an action's result.
    pub fn result(&self, name: &str) -> Option<ActionStatusRequest> {
        let state = self.lock();
        let mut results = state.reports.iter().filter(|report| report.action_state() != StateType::Running);
        results.find(|report| report.action_name() == name).cloned()
    }

    /// Until all was served, or the limit: then with what was told.
    pub async fn done(&self, limit: Duration) {
        let all = async {
            loop {
                let changed = self.changed.notified();
                if self.lock().actions.is_empty() {
                    return;
                }
                changed.await;
            }
        };
        timeout(limit, all).await.unwrap_or_else(|_| panic!("after {} s: {:?}", limit.as_secs(), self.told()));
    }
}

#[tonic::async_trait]
impl WorkflowService for Server {
    async fn get_action(&self, request: Request<ActionRequest>) -> Result<Response<ActionResponse>, Status> {
        let mut state = self.lock();
        state.asked.push(request.into_inner());
        let action = state.actions.front().cloned();
        action.map(Response::new).ok_or_else(|| Status::failed_precondition("no action available"))
    }

    async fn report_action_status(
        &self,
        request: Request<ActionStatusRequest>,
    ) -> Result<Response<ActionStatusResponse>, Status> {
        let mut state = self.lock();
        let report = request.into_inner();
        let refused = state.refusals.front().copied().filter(|(of, _)| *of == report.action_state());
        let is_result = report.action_state() != StateType::Running;
        let of_first = state.actions.front().is_some_and(|action| action.action_id == report.action_id);
        state.reports.push(report);
        if let Some((_, code)) = refused {
            state.refusals.pop_front();
            if code == Code::NotFound {
                state.actions.pop_front();
            }
            return Err(Status::new(code, "refused"));
        }
        if is_result && of_first {
            state.actions.pop_front();
        }
        drop(state);
        self.changed.notify_waiters();
        Ok(Response::new(ActionStatusResponse {}))
    }
}

pub fn action(name: &str, image: &str, environment: &[(&str, &str)]) -> ActionResponse {
    ActionResponse {
        workflow_id: Some("default/install".to_owned()),
        task_id: Some("task-1".to_owned()),
        agent_id: Some("52:54:00:00:00:01".to_owned()),
        action_id: Some(format!("id-{name}")),
        name: Some(name.to_owned()),
        image: Some(image.to_owned()),
        timeout: Some(300),
        environment: environment.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        ..ActionResponse::default()
    }
}
