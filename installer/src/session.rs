//! Who this start is: a key that is made in memory, for which the server gives a session against the token of the kernel's arguments.
//! The server is known by the pin of its key, which stands there too. Without a pin the server is spoken to in the clear, and the token
//! alone says who this is.

use crate::{clock, console};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use proto::installer::v1::sessions_client::SessionsClient;
use proto::installer::v1::{EndRequest, HeartbeatRequest, RedeemRequest, SeedRequest};
use rustls::pki_types::ServerName;
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use trust::pin::{Key, Pin, client};

/// To one server.
const CONNECT: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(30);
/// After a call that may be made again: the first wait.
const AGAIN: Duration = Duration::from_secs(1);
/// The last call before the restart.
const END: Duration = Duration::from_secs(5);
/// Until the server says how often it is to be told.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// No certificate is looked at for its name.
const NAME: &str = "metalplane";

/// How the server of this host and port is reached.
pub type Dial = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Stream>> + Send + Sync>;

pub fn by_tcp() -> Dial {
    Arc::new(|server| {
        let connected = async move {
            let stream = TcpStream::connect(server).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Stream)
        };
        connected.boxed()
    })
}

/// To one of these replicas, and to the next when that one is away. Nothing is connected yet. With a pin: for a key that is made now.
pub fn channel(endpoint: &Endpoint, dial: Dial, servers: &[String], pin: Option<Pin>) -> Result<Channel, String> {
    let tls = pin.map(|pin| client(&Key::generate()?, pin).map_err(|error| format!("TLS: {error}"))).transpose()?;
    let (tls, servers) = (tls.map(|tls| TlsConnector::from(Arc::new(tls))), Arc::new(Servers::new(dial, servers)));
    Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
        let (tls, servers) = (tls.clone(), servers.clone());
        async move { servers.connect(tls.as_ref()).await.map(TokioIo::new) }
    })))
}

/// One of them is asked until it does not answer.
struct Servers {
    dial: Dial,
    all: Vec<String>,
    at: AtomicUsize,
}

pub type Stream = Box<dyn Duplex>;

pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl Servers {
    fn new(dial: Dial, all: &[String]) -> Self {
        Self { dial, all: all.to_vec(), at: AtomicUsize::new(0) }
    }

    async fn connect(&self, tls: Option<&TlsConnector>) -> io::Result<Stream> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "no server is named");
        for _ in 0..self.all.len() {
            let server = &self.all[self.at.load(Ordering::Relaxed) % self.all.len()];
            failed = match timeout(CONNECT, self.open(server, tls)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => error,
                Err(_) => io::Error::new(io::ErrorKind::TimedOut, format!("{server} does not answer")),
            };
            self.at.fetch_add(1, Ordering::Relaxed);
        }
        Err(failed)
    }

    async fn open(&self, server: &str, tls: Option<&TlsConnector>) -> io::Result<Stream> {
        let stream = (self.dial)(server.to_owned()).await?;
        let Some(tls) = tls else { return Ok(stream) };
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }
}

#[derive(Clone)]
pub struct Session {
    client: SessionsClient<Channel>,
    worker_id: String,
    system_uuid: String,
}

impl Session {
    /// `system_uuid`: the server's own, if its firmware tells it.
    pub fn new(channel: Channel, worker_id: String, system_uuid: Option<String>) -> Self {
        Self { client: SessionsClient::new(channel), worker_id, system_uuid: system_uuid.unwrap_or_default() }
    }

    /// How often the server is to be told that this start is alive.
    pub async fn redeem(&mut self) -> Result<Duration, Status> {
        let request = RedeemRequest { worker_id: self.worker_id.clone(), system_uuid: self.system_uuid.clone() };
        let seconds = bounded(CALL, self.client.redeem(request)).await?.heartbeat_seconds;
        Ok(if seconds == 0 { HEARTBEAT } else { Duration::from_secs(seconds.into()) })
    }

    /// Tells of what `doing` says, for as long as it is polled. What cannot be told is told the next time.
    pub async fn beat(mut self, every: Duration, doing: impl Fn() -> String) {
        let mut next = Instant::now() + every;
        loop {
            sleep_until(next).await;
            let request = HeartbeatRequest { worker_id: self.worker_id.clone(), doing: doing() };
            if let Err(status) = bounded(CALL, self.client.heartbeat(request)).await {
                console::say(format_args!("a heartbeat: {}", why(&status)));
                if status.code() == Code::Unauthenticated {
                    // What is at work goes on: should the session be another start's by now, its report is not taken.
                    let _ = self.redeem().await;
                }
            }
            next = (next + every).max(Instant::now());
        }
    }

    /// What cloud-init in the installed system reads.
    pub async fn seed(&self) -> Result<BTreeMap<String, Vec<u8>>, String> {
        let request = SeedRequest { worker_id: self.worker_id.clone() };
        let mut again = AGAIN;
        loop {
            let status = match bounded(CALL, self.client.clone().seed(request.clone())).await {
                Ok(told) => return Ok(told.files.into_iter().collect()),
                Err(status) => status,
            };
            if !matches!(status.code(), Code::Unavailable | Code::Aborted | Code::DeadlineExceeded) {
                return Err(format!("asking the server for the cloud-init data: {}", why(&status)));
            }
            console::say(format_args!("asking for the cloud-init data: {}", why(&status)));
            sleep(again).await;
            again = (again * 2).min(CALL);
        }
    }

    /// Before the restart, so that the next start is not taken for a second one. It is no failure if the server does not hear of it.
    pub async fn end(&mut self) {
        let request = EndRequest { worker_id: self.worker_id.clone() };
        if let Err(status) = bounded(END, self.client.end(request)).await {
            console::say(format_args!("telling the server of the restart: {}", why(&status)));
        }
    }
}

pub async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Status> {
    let answered = timeout(limit, call).await.map_err(|_| Status::deadline_exceeded("no answer"))?;
    clock::heard(answered.as_ref().map_or_else(Status::metadata, tonic::Response::metadata));
    Ok(answered?.into_inner())
}

/// With what is below it: that a server has another key is not in the message.
pub fn why(status: &Status) -> String {
    let mut said = format!("{:?}: {}", status.code(), status.message());
    let mut below = status.source();
    while let Some(error) = below {
        let text = error.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        below = error.source();
    }
    said
}
