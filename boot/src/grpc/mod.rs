//! Tinkerbell's agents, of both generations, on one port and under one name of a service.
//!
//! | file | what |
//! |---|---|
//! | `newer.rs` | `tink.proto`: an agent asks for its next action |
//! | `older.rs` | `tink_older.proto`: a worker reads a whole Workflow |
//! | `sessions.rs` | `installer.proto`: an installer says who it is |
//! | `callers.rs` | who calls |
//! | `connection.rs` | TLS or not, on one port |
//! | `bytes.rs` | a codec that leaves a request as its bytes |
//!
//! `ReportActionStatus` is a call of both, with messages of their own: it is taken as bytes, which tell whose it is.
//!
//! A decision is written before it is answered, with the resourceVersion that it was made from; a conflict is read and decided
//! again. So two replicas cannot serve two actions, and an answer never says what the API server does not have.

mod attributes;
mod bytes;
mod callers;
mod connection;
mod newer;
mod older;
mod sessions;

use crate::identity::Identity;
use crate::reports::Eyes;
use crate::seeds::Seeds;
use crate::world::World;
use anyhow::{Context as _, Result as Outcome};
use api::tinkerbell::attributes::AgentAttributes;
use api::tinkerbell::workflow::WorkflowStatus;
use api::tinkerbell::{Hardware, Workflow};
use bytes::BytesCodec;
use callers::Callers;
use connection::Caller;
pub use connection::{Arrived, Wire, arriving};
use futures::Stream;
use planner::netboot::report::Sight;
use proto::installer::v1::sessions_server::SessionsServer;
use proto::tink::workflow_service_server::WorkflowServiceServer;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::body::Body;
use tonic::codegen::{Service, StdError};
use tonic::server::{Grpc, NamedService};
use tonic::{Response, Status};
use tonic_prost::ProstCodec;

/// Decisions of one call that met another one's write.
const CONFLICTS: usize = 8;

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

/// An agent whose server lost its power is noticed so soon.
const PING: Duration = Duration::from_secs(20);

/// Until there is nothing more to come.
pub async fn serve<S: Wire>(
    arriving: impl Stream<Item = io::Result<Arrived<S>>>,
    (world, seeds): (Arc<World>, Arc<Seeds>),
    identity: Identity,
    eyes: Eyes,
) -> Outcome<()> {
    let tls = identity.tls()?;
    let callers = Callers { world, identity, eyes };
    let service = sessions::Service { callers: callers.clone(), seeds };
    let sessions = callers.identity.has_sessions().then(|| SessionsServer::new(service));
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(PING))
        .http2_keepalive_timeout(Some(PING))
        .add_service(Agents::new(callers))
        .add_optional_service(sessions)
        .serve_with_incoming(connection::accept(arriving, tls))
        .await
        .context("serve agents")
}

/// Both generations.
#[derive(Clone)]
struct Agents {
    callers: Callers,
    newer: WorkflowServiceServer<newer::Service>,
}

impl Agents {
    fn new(callers: Callers) -> Self {
        let newer = WorkflowServiceServer::new(newer::Service { callers: callers.clone() });
        Self { callers, newer }
    }
}

impl NamedService for Agents {
    const NAME: &'static str = "proto.WorkflowService";
}

impl<B> Service<http::Request<B>> for Agents
where
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
    B::Data: Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Answer {
        let callers = self.callers.clone();
        let is_open = callers.identity.is_open();
        match request.uri().path() {
            "/proto.WorkflowService/ReportActionStatus" => Box::pin(async move {
                let report = tower::service_fn(move |request| reported(callers.clone(), request));
                Ok(Grpc::new(BytesCodec).unary(report, request).await)
            }),
            "/proto.WorkflowService/GetWorkflowContexts" | "/proto.WorkflowService/GetWorkflowActions" if !is_open => {
                let refused: Result<http::Response<Body>, Infallible> = Ok(older_refused().into_http());
                Box::pin(std::future::ready(refused))
            }
            "/proto.WorkflowService/GetWorkflowContexts" => Box::pin(async move {
                let contexts = tower::service_fn(move |request| older::contexts(callers.clone(), request));
                Ok(Grpc::new(ProstCodec::default()).server_streaming(contexts, request).await)
            }),
            "/proto.WorkflowService/GetWorkflowActions" => Box::pin(async move {
                let actions = tower::service_fn(move |request| older::actions(callers.world.clone(), request));
                Ok(Grpc::new(ProstCodec::default()).unary(actions, request).await)
            }),
            _ => Box::pin(self.newer.call(request)),
        }
    }
}

/// Both answers are empty messages.
async fn reported(
    callers: Callers,
    request: tonic::Request<::bytes::Bytes>,
) -> Result<Response<::bytes::Bytes>, Status> {
    let caller = Caller::of(&request);
    let bytes = request.into_inner();
    match proto::tink::is_newer_report(&bytes) {
        true => newer::reported(&callers, &caller, &bytes).await?,
        false if !callers.identity.is_open() => return Err(older_refused()),
        false => older::reported(&callers.world, &bytes).await?,
    }
    Ok(Response::new(::bytes::Bytes::new()))
}

fn older_refused() -> Status {
    Status::unauthenticated(
        "workers of the older generation cannot say who they are: they are served with --agents=open alone",
    )
}

/// An agent asks: its server has come so far, and is what the agent says.
fn saw(world: &World, eyes: &Eyes, agent: &str, from: Option<SocketAddr>, attributes: Option<AgentAttributes>) {
    let directory = world.directory().borrow().clone();
    let attributes = attributes.map(Box::new);
    let told =
        || Sight::Agent { id: agent.to_owned(), address: from.map(|from| from.ip()), attributes: attributes.clone() };
    let mut is_known = false;
    for hardware in directory.by_agent(agent) {
        is_known = true;
        eyes.saw_of(hardware, &mac_of(agent, Some(hardware)), told());
    }
    if !is_known && attributes.is_some() {
        eyes.saw_of(&Hardware::default(), &mac_of(agent, None), told());
    }
}

/// It asks by the MAC address that it has booted by, if its Hardware does not name it otherwise.
fn mac_of(agent: &str, hardware: Option<&Hardware>) -> String {
    let is_mac = agent.len() == 17 && agent.bytes().filter(|byte| *byte == b':').count() == 5;
    let first = hardware.iter().flat_map(|hardware| &hardware.spec.interfaces);
    let first = first.filter_map(|interface| interface.dhcp.as_ref()?.mac.clone()).next();
    if is_mac { agent.to_owned() } else { first.unwrap_or_default() }
}

/// Writes what a report makes of a Workflow. One that changes nothing is acknowledged: three of the answers that would refuse it end
/// upstream's agent for good, and an agent that is known never gets them.
async fn write(
    world: &World,
    workflow_id: &str,
    agent: &str,
    decide: impl Fn(&Workflow) -> Option<WorkflowStatus>,
) -> Result<(), Status> {
    let name = workflow_id.strip_prefix(&format!("{}/", world.namespace)).unwrap_or_default();
    for _ in 0..CONFLICTS {
        let read = if name.is_empty() { None } else { world.read(name).await.map_err(|error| unavailable(&error))? };
        let Some(workflow) = read.filter(|workflow| has(workflow, agent)) else {
            return if knows(world, agent) { Ok(()) } else { Err(Status::not_found("this agent is not known")) };
        };
        let Some(status) = decide(&workflow) else { return Ok(()) };
        let state = status.state.clone();
        if world.write(&workflow, status).await.map_err(|error| unavailable(&error))? {
            tracing::info!(agent, workflow = name, state, "reported");
            return Ok(());
        }
    }
    Err(Status::aborted("the Workflow is written by somebody else; report again"))
}

fn knows(world: &World, agent: &str) -> bool {
    !agent.is_empty()
        && (world.directory().borrow().by_agent(agent).next().is_some()
            || world.workflows().iter().any(|workflow| has(workflow, agent)))
}

fn has(workflow: &Workflow, agent: &str) -> bool {
    workflow.status.as_ref().is_some_and(|status| status.tasks.iter().any(|task| task.agent_id == agent))
}

fn unavailable(error: &dyn std::fmt::Display) -> Status {
    tracing::warn!(%error, "an agent has to ask again");
    Status::unavailable("the API server does not answer; ask again")
}
