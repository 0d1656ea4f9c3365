//! Faults of the BMC, injected by tests: HTTP on the unix socket `faults.sock`.
//!
//! `GET /` shows what is set, `PUT /` replaces it ([`inject`]), `DELETE /` clears it. Counters go down as they are used.
//! `POST /dpu-lost` says that the server's DPU is gone, and is answered when nothing presented is in use any more
//! ([`tell_dpu_lost`]).

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::machine::Machine;
use super::slots;

/// The socket's name in the server's state folder.
pub const SOCKET: &str = "faults.sock";
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

/// What goes wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Nobody answers: every connection is cut.
    pub down: bool,
    /// Every answer comes this much later.
    pub slow_ms: u64,
    /// So many changes (anything but GET, sessions apart) are done and then the connection is cut.
    pub lost_answer: u32,
    /// So many changes are answered 503 and not done; what is only read is answered.
    pub refused_change: u32,
    /// So many requests are answered 401, whatever their credentials.
    pub status_401: u32,
    /// So many requests are answered 503.
    pub status_503: u32,
    /// An override for one boot is not offered, and refused.
    pub only_continuous: bool,
    /// An override for one boot is taken and shown, and the firmware boots by its order.
    pub ignores_once: bool,
    /// So many seconds after its start the firmware is told to be in its POST, as `BootProgress`.
    pub post_s: u64,
    /// The power state that is told instead of the true one.
    pub wrong_state: Option<String>,
}

/// The faults in force, shared by the BMC and the admin socket.
#[derive(Clone, Default)]
pub struct Injected(Arc<Mutex<Faults>>);

impl Injected {
    pub fn now(&self) -> Faults {
        self.with(|faults| faults.clone())
    }

    /// Uses up one of a counted fault; false if none is left.
    pub fn use_up(&self, counter: impl FnOnce(&mut Faults) -> &mut u32) -> bool {
        self.with(|faults| {
            let left = counter(faults);
            let used = *left > 0;
            *left = left.saturating_sub(1);
            used
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Faults) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Serves the admin socket.
pub async fn serve(path: &Path, injected: Injected, machine: Arc<Machine>) -> Result<()> {
    let listener = slots::listen(path)?;
    let lost = Router::new().route("/dpu-lost", post(dpu_lost)).with_state(machine);
    let handlers = get(show).put(replace).post(replace).delete(clear);
    let router = Router::new().route("/", handlers.clone()).route("/faults", handlers).with_state(injected).merge(lost);
    axum::serve(listener, router).await.context("serve the faults socket")
}

async fn show(State(injected): State<Injected>) -> Response {
    axum::Json(injected.now()).into_response()
}

async fn replace(State(injected): State<Injected>, body: Bytes) -> Response {
    match serde_json::from_slice::<Faults>(&body) {
        Ok(faults) => {
            injected.with(|current| *current = faults.clone());
            axum::Json(faults).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("not a set of faults: {error}\n")).into_response(),
    }
}

async fn dpu_lost(State(machine): State<Arc<Machine>>) -> StatusCode {
    machine.dpu_lost().await;
    StatusCode::NO_CONTENT
}

/// Tells the virtual server with this state folder that its DPU is gone. A server that does not run has nothing to
/// lose.
pub async fn tell_dpu_lost(state_folder: &Path) -> Result<()> {
    let socket = state_folder.join(SOCKET);
    let Ok(stream) = UnixStream::connect(&socket).await else { return Ok(()) };
    let told = request(stream, "POST", "/dpu-lost", "").await;
    told.with_context(|| format!("tell {} that the DPU was lost", socket.display()))
}

/// Sets the faults of the BMC whose server has this state folder; [`Faults::default`] ends them all.
pub async fn inject(state_folder: &Path, faults: &Faults) -> Result<()> {
    let socket = state_folder.join(SOCKET);
    let stream = UnixStream::connect(&socket).await.with_context(|| format!("connect to {}", socket.display()))?;
    let set = request(stream, "PUT", "/", &serde_json::to_string(faults)?).await;
    set.with_context(|| format!("set the faults at {}", socket.display()))
}

async fn request(mut stream: UnixStream, method: &str, path: &str, body: &str) -> Result<()> {
    let exchange = async {
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: server\r\nConnection: close\r\nContent-Length: {length}");
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = timeout(ANSWER_WITHIN, exchange).await.context("no answer in time")??;
    ensure!(answer.starts_with("HTTP/1.1 2"), "it answered {answer}");
    Ok(())
}

async fn clear(State(injected): State<Injected>) -> Response {
    injected.with(|current| *current = Faults::default());
    axum::Json(Faults::default()).into_response()
}
