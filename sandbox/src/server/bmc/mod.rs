//! The BMC: a Redfish service over TLS.
//!
//! One function sees every request in turn: faults, credentials, then the resource. Reading is a table from path to
//! JSON ([`resources`], [`system`]); changing is one function per resource that can be changed.

mod auth;
mod dpu;
mod image;
mod message;
mod reset;
mod resources;
mod response;
mod system;
mod tls;
mod virtual_media;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use axum::response::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::actions::Log;
use super::faults::Injected;
use super::machine::Machine;
use auth::Sessions;
use message::Problem;

const LARGEST_BODY: usize = 1 << 16;
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Whose BMC it is.
enum Of {
    Host,
    /// The DPU's: it was on when the last request came in.
    Dpu(AtomicBool),
}

/// The service's state.
pub struct Bmc {
    of: Of,
    machine: Arc<Machine>,
    faults: Injected,
    log: Log,
    sessions: Sessions,
    /// Held while the medium is changed, which takes as long as an image comes.
    media: tokio::sync::Mutex<()>,
}

impl Bmc {
    pub fn new(machine: Arc<Machine>, faults: Injected) -> Result<Arc<Bmc>> {
        Self::of(Of::Host, machine, faults)
    }

    /// That of the DPU in the server. The faults are the host's BMC's.
    pub fn of_dpu(machine: Arc<Machine>) -> Result<Arc<Bmc>> {
        Self::of(Of::Dpu(AtomicBool::new(false)), machine, Injected::default())
    }

    fn of(of: Of, machine: Arc<Machine>, faults: Injected) -> Result<Arc<Bmc>> {
        let log = Log::open(&machine.config.state("actions.jsonl"))?;
        let (sessions, media) = (Sessions::default(), tokio::sync::Mutex::default());
        Ok(Arc::new(Bmc { of, machine, faults, log, sessions, media }))
    }

    fn is_of_host(&self) -> bool {
        matches!(self.of, Of::Host)
    }
}

/// Listens where the configuration says, and serves until the process ends.
pub async fn serve(listener: TcpListener, bmc: Arc<Bmc>) -> Result<()> {
    let acceptor = tls::acceptor(&bmc.machine.config)?;
    loop {
        let (stream, _) = listener.accept().await.context("accept a connection to the BMC")?;
        if bmc.faults.now().down {
            continue;
        }
        let (acceptor, bmc) = (acceptor.clone(), Arc::clone(&bmc));
        tokio::spawn(async move {
            if let Err(error) = connection(stream, acceptor, bmc).await {
                tracing::debug!("a connection to the BMC ended: {error:#}");
            }
        });
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, bmc: Arc<Bmc>) -> Result<()> {
    let handshake = tokio::time::timeout(HANDSHAKE_WITHIN, acceptor.accept(stream));
    let stream = handshake.await.context("no TLS handshake in time")?.context("TLS handshake")?;
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let bmc = Arc::clone(&bmc);
        async move { Box::pin(bmc.answer(request.map(Body::new))).await }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await.context("serve the connection")
}

impl Bmc {
    /// Answers one request. An error cuts the connection without an answer: the faults `lost_answer` and `down`.
    async fn answer(&self, request: Request<Body>) -> std::io::Result<Response> {
        let (parts, body) = request.into_parts();
        // Creating in a collection and in its member list are the same.
        let path = parts.uri.path().trim_end_matches('/');
        let path = path.strip_suffix("/Members").filter(|_| parts.method == Method::POST).unwrap_or(path);
        let changes_something = !matches!(parts.method, Method::GET | Method::HEAD) && !path.contains("/Sessions");
        let slow = self.faults.now().slow_ms;
        tokio::time::sleep(Duration::from_millis(slow)).await;
        if self.faults.now().down {
            return Err(std::io::Error::other("nobody answers, as was asked for"));
        }
        if changes_something && self.faults.use_up(|faults| &mut faults.refused_change) {
            return Ok(Problem::temporarily_unavailable().into());
        }
        if self.faults.use_up(|faults| &mut faults.status_503) {
            return Ok(Problem::temporarily_unavailable().into());
        }
        let refused = self.faults.use_up(|faults| &mut faults.status_401);
        if refused || !(self.is_public(&parts.method, path) || self.is_known(&parts.headers).await) {
            return Ok(auth::unauthorized());
        }
        if parts.headers.get("odata-version").is_some_and(|version| version != "4.0") {
            return Ok(Problem::precondition_failed().into());
        }
        self.look().await;
        let body = axum::body::to_bytes(body, LARGEST_BODY).await.map_err(std::io::Error::other)?;
        let answer = match parts.method {
            Method::GET | Method::HEAD => self.read(path),
            Method::PATCH if self.is_of_host() && (path == system::PATH || self.settings(path).is_some()) => {
                self.change_system(path, &parts.headers, &body).await
            }
            Method::POST if self.is_of_host() && path == system::RESET => Ok(self.reset(&parts.headers, &body).await),
            Method::POST if path == auth::SESSIONS => self.log_in(&body).await,
            Method::DELETE if path.starts_with(auth::SESSIONS) => self.log_out(path),
            _ => {
                let changed = self.change_media(&parts.method, path, &parts.headers, &body).await;
                changed.unwrap_or_else(|| Err(self.no_such_method(path)))
            }
        };
        if changes_something && self.faults.use_up(|faults| &mut faults.lost_answer) {
            return Err(std::io::Error::other("the answer is lost, as was asked for"));
        }
        Ok(answer.unwrap_or_else(Response::from))
    }

    fn read(&self, path: &str) -> Result<Response, Problem> {
        let allowed = self.allowed(path).ok_or_else(|| Problem::missing(path))?;
        let mut answer = if path == resources::METADATA {
            response::xml(resources::metadata())
        } else {
            let resource = self.resource(path).ok_or_else(|| Problem::missing(path))?;
            response::resource(StatusCode::OK, &resource)
        };
        response::insert(&mut answer, header::ALLOW, allowed);
        Ok(answer)
    }

    /// The methods of a resource; none if there is no such resource.
    fn allowed(&self, path: &str) -> Option<&'static str> {
        Some(match path {
            system::PATH if self.is_of_host() => "GET, HEAD, PATCH",
            path if self.is_of_host() && self.settings(path).is_some() => "GET, HEAD, PATCH",
            system::RESET if self.is_of_host() => "POST",
            auth::SESSIONS => "GET, HEAD, POST",
            resources::METADATA => "GET, HEAD",
            path if self.media_methods(path).is_some() => return self.media_methods(path),
            _ if self.resource(path).is_none() => return None,
            _ if path.starts_with(auth::SESSIONS) => "GET, HEAD, DELETE",
            _ => "GET, HEAD",
        })
    }

    fn no_such_method(&self, path: &str) -> Problem {
        match self.allowed(path) {
            Some(allowed) => Problem::wrong_method().with_header(header::ALLOW, allowed),
            None => Problem::missing(path),
        }
    }
}
