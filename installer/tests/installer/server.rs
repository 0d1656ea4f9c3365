//! A server that has a list of actions for one agent, and keeps what it is told.

use futures::StreamExt;
use proto::installer::v1::sessions_server::{Sessions, SessionsServer};
use proto::installer::v1::{
    EndRequest, EndResponse, HeartbeatRequest, HeartbeatResponse, RedeemRequest, RedeemResponse, SeedRequest,
    SeedResponse,
};
use proto::tink::action_status_request::StateType;
use proto::tink::workflow_service_server::{WorkflowService, WorkflowServiceServer};
use proto::tink::{ActionRequest, ActionResponse, ActionStatusRequest, ActionStatusResponse};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server as Transport;
use tonic::{Code, Request, Response, Status};
use trust::pin::Key;

#[derive(Default)]
pub struct State {
    /// The first is served until its result was reported.
    pub actions: VecDeque<ActionResponse>,
    pub asked: Vec<ActionRequest>,
    pub reports: Vec<ActionStatusRequest>,
    /// The calls of sessions, and questions for an action, in their order.
    pub calls: Vec<String>,
    /// The next redemptions are refused.
    pub used: usize,
    /// What the next question for cloud-init data is answered.
    pub seed: Option<HashMap<String, Vec<u8>>>,
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

    /// One that speaks TLS with this key, and knows sessions.
    pub async fn start_with_sessions(actions: Vec<ActionResponse>, key: &Key) -> (Self, SocketAddr) {
        let server = Self::default();
        server.lock().actions = actions.into();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("an address");
        let acceptor = TlsAcceptor::from(Arc::new(trust::pin::server(key).expect("TLS")));
        let connections = TcpListenerStream::new(listener).then(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                let mut tls = acceptor.accept(stream?).await?;
                let (near, mut far) = tokio::io::duplex(1 << 16);
                tokio::spawn(async move { copy_bidirectional(&mut tls, &mut far).await });
                std::io::Result::Ok(near)
            }
        });
        // A client that does not trust the key ends its handshake, and no other's.
        let connections = connections.filter(|connection| std::future::ready(connection.is_ok()));
        let service = WorkflowServiceServer::new(server.clone());
        let serving = Transport::builder().add_service(service).add_service(SessionsServer::new(server.clone()));
        tokio::spawn(serving.serve_with_incoming(connections));
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
        state.calls.push("ask".to_owned());
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

#[tonic::async_trait]
impl Sessions for Server {
    async fn redeem(&self, request: Request<RedeemRequest>) -> Result<Response<RedeemResponse>, Status> {
        let mut state = self.lock();
        state.calls.push(format!("redeem {}", request.into_inner().worker_id));
        if state.used > 0 {
            state.used -= 1;
            return Err(Status::permission_denied("used"));
        }
        Ok(Response::new(RedeemResponse { heartbeat_seconds: 1 }))
    }

    async fn heartbeat(&self, request: Request<HeartbeatRequest>) -> Result<Response<HeartbeatResponse>, Status> {
        self.lock().calls.push(format!("heartbeat {}", request.into_inner().doing));
        Ok(Response::new(HeartbeatResponse {}))
    }

    async fn seed(&self, _: Request<SeedRequest>) -> Result<Response<SeedResponse>, Status> {
        let mut state = self.lock();
        state.calls.push("seed".to_owned());
        let files = state.seed.take().ok_or_else(|| Status::unavailable("nothing is told yet"))?;
        Ok(Response::new(SeedResponse { files }))
    }

    async fn end(&self, _: Request<EndRequest>) -> Result<Response<EndResponse>, Status> {
        self.lock().calls.push("end".to_owned());
        Ok(Response::new(EndResponse {}))
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
