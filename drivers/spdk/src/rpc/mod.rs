//! A client of SPDK's JSON-RPC: typed methods ([`Method`]), pipelined on one connection.
//!
//! Two tasks per connection own its halves, so a caller that gives up leaves no half-written request behind, and
//! answers may come in any order. A broken connection is forgotten and the next call makes a new one. A call is never
//! sent twice: whether the first took effect is for the caller to find out.

pub mod error;
mod frames;
pub mod methods;

pub use error::RpcError;
pub use methods::Method;

use frames::Frames;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::timeout,
};

/// The target polls for requests every few milliseconds; one that sits behind a slow disk takes longer.
pub const LIMIT: Duration = Duration::from_secs(10);

pub struct Rpc {
    socket: PathBuf,
    limit: Duration,
    link: tokio::sync::Mutex<Option<Link>>,
}

/// What the target said: a result, or a code and a message.
type Said = Result<Value, (i64, String)>;

/// One connection.
struct Link {
    requests: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<Waiting>,
    tasks: [AbortHandle; 2],
}

/// Calls without an answer.
#[derive(Default)]
struct Waiting(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    next: u64,
    /// Set when the connection ended: no answer will come.
    ended: Option<String>,
    answers: HashMap<u64, oneshot::Sender<Said>>,
}

/// Forgets a call when its caller does.
struct Call<'a> {
    id: u64,
    waiting: &'a Waiting,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.waiting.lock().answers.remove(&self.id);
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: the connection has ended.
    fn enter(&self) -> Option<(u64, oneshot::Receiver<Said>)> {
        let mut calls = self.lock();
        if calls.ended.is_some() {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        calls.next += 1;
        let id = calls.next;
        calls.answers.insert(id, answer);
        Some((id, answered))
    }

    fn end(&self, cause: String) {
        let mut calls = self.lock();
        calls.ended.get_or_insert(cause);
        calls.answers.clear();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Rpc {
    /// Connects at the first call, not now. `limit` bounds each call, the connecting included.
    pub fn new(socket: impl Into<PathBuf>, limit: Duration) -> Self {
        Self { socket: socket.into(), limit, link: tokio::sync::Mutex::new(None) }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub async fn call<M: Method>(&self, method: &M) -> Result<M::Answer, RpcError> {
        let name = M::NAME;
        let malformed = |e: serde_json::Error| RpcError::Malformed { method: name, cause: e.to_string() };
        let params = serde_json::to_value(method).map_err(malformed)?;
        let unreachable = |cause: String| RpcError::Unreachable(format!("{}: {name}: {cause}", self.socket.display()));
        let said = timeout(self.limit, self.said(name, params)).await;
        match said.map_err(|_| unreachable(format!("no answer in {:?}", self.limit)))?.map_err(unreachable)? {
            Ok(result) => serde_json::from_value(result).map_err(malformed),
            Err((code, message)) => Err(RpcError::Refused { method: name, code, message }),
        }
    }

    async fn said(&self, method: &str, params: Value) -> Result<Said, String> {
        let (waiting, id, answered) = {
            let mut link = self.link.lock().await;
            let entered = link.as_ref().and_then(|open| open.waiting.enter());
            let (id, answered) = match entered {
                Some(entered) => entered,
                None => {
                    let open = connect(&self.socket).await.map_err(|e| format!("cannot connect: {e}"))?;
                    let entered = open.waiting.enter();
                    *link = Some(open);
                    entered.ok_or("the connection ended")?
                }
            };
            let open = link.as_ref().ok_or("the connection ended")?;
            // A task that has ended has said why.
            let _ = open.requests.send(request(id, method, &params));
            (Arc::clone(&open.waiting), id, answered)
        };
        let call = Call { id, waiting: &waiting };
        let said = answered.await;
        drop(call);
        said.map_err(|_| waiting.lock().ended.clone().unwrap_or_else(|| "the connection ended".to_owned()))
    }
}

/// Parameters that are empty are left out: some methods refuse `{}`.
fn request(id: u64, method: &str, params: &Value) -> Vec<u8> {
    let mut request = json!({"jsonrpc": "2.0", "id": id, "method": method});
    if params.as_object().is_some_and(|all| !all.is_empty()) {
        request["params"] = params.clone();
    }
    let mut bytes = request.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

async fn connect(socket: &Path) -> io::Result<Link> {
    let (reader, writer) = UnixStream::connect(socket).await?.into_split();
    let (requests, sent) = mpsc::unbounded_channel();
    let waiting = Arc::new(Waiting::default());
    let read = tokio::spawn(read(reader, Arc::clone(&waiting))).abort_handle();
    let write = tokio::spawn(write(writer, sent, Arc::clone(&waiting))).abort_handle();
    Ok(Link { requests, waiting, tasks: [read, write] })
}

async fn write(mut writer: OwnedWriteHalf, mut sent: mpsc::UnboundedReceiver<Vec<u8>>, waiting: Arc<Waiting>) {
    while let Some(request) = sent.recv().await {
        if let Err(error) = writer.write_all(&request).await {
            return waiting.end(format!("cannot send: {error}"));
        }
    }
}

async fn read(mut reader: OwnedReadHalf, waiting: Arc<Waiting>) {
    let mut frames = Frames::default();
    let mut piece = vec![0; 64 << 10];
    loop {
        match reader.read(&mut piece).await {
            Ok(0) => return waiting.end("the target closed the connection before it answered".to_owned()),
            Ok(length) => frames.push(&piece[..length]),
            Err(error) => return waiting.end(format!("cannot receive: {error}")),
        }
        loop {
            match frames.next() {
                Ok(Some(frame)) => deliver(&frame, &waiting),
                Ok(None) => break,
                Err(_) => return waiting.end("what came is not JSON-RPC".to_owned()),
            }
        }
    }
}

/// An answer that nobody waits for any more is dropped.
fn deliver(frame: &[u8], waiting: &Waiting) {
    let Ok(mut answer) = serde_json::from_slice::<Value>(frame) else {
        return waiting.end("what came is not JSON".to_owned());
    };
    let Some(caller) = answer["id"].as_u64().and_then(|id| waiting.lock().answers.remove(&id)) else { return };
    let error = &answer["error"];
    let said = if error.is_null() {
        Ok(answer["result"].take())
    } else {
        Err((error["code"].as_i64().unwrap_or_default(), error["message"].as_str().unwrap_or_default().to_owned()))
    };
    let _ = caller.send(said);
}

#[cfg(test)]
mod tests;
