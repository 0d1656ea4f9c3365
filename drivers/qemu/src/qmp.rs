//! A client of QEMU's machine protocol (QMP): JSON lines over a Unix socket.
//!
//! One task per connection owns the stream, so a caller that is cancelled in the middle leaves no half-written line
//! behind. A broken connection is forgotten and the next call makes a new one; a command is never sent twice, because
//! whether the first one took effect is for the caller to find out.

use serde_json::{Value, json};
use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Mutex, broadcast, mpsc, oneshot},
    time::timeout,
};

/// Events that a slow listener may fall behind by before it loses the oldest.
const EVENT_BACKLOG: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QmpError {
    /// No connection, or no answer in time: the effect is not known.
    Unreachable(String),
    /// QEMU answered with an error.
    Refused { class: String, description: String },
}

impl fmt::Display for QmpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(cause) => f.write_str(cause),
            Self::Refused { description, .. } => f.write_str(description),
        }
    }
}

impl std::error::Error for QmpError {}

impl QmpError {
    /// What QEMU said, empty if it said nothing.
    pub fn description(&self) -> &str {
        match self {
            Self::Unreachable(_) => "",
            Self::Refused { description, .. } => description,
        }
    }

    pub fn is_device_not_found(&self) -> bool {
        matches!(self, Self::Refused { class, .. } if class == "DeviceNotFound")
    }
}

#[derive(Debug, Clone)]
pub struct Event {
    pub name: String,
    pub data: Value,
}

type Answer = Result<Value, QmpError>;

struct Request {
    command: String,
    arguments: Value,
    answer: oneshot::Sender<Answer>,
}

pub struct Qmp {
    socket: PathBuf,
    limit: Duration,
    requests: Mutex<Option<mpsc::Sender<Request>>>,
    events: broadcast::Sender<Event>,
}

impl Qmp {
    /// Connects at the first command, not now. `limit` bounds each command and the connecting.
    pub fn new(socket: impl Into<PathBuf>, limit: Duration) -> Self {
        let (events, _) = broadcast::channel(EVENT_BACKLOG);
        Self { socket: socket.into(), limit, requests: Mutex::new(None), events }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Events of this and of all later connections.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    pub async fn execute(&self, command: &str, arguments: Value) -> Answer {
        let (answer, answered) = oneshot::channel();
        let request = Request { command: command.to_owned(), arguments, answer };
        let gone = || QmpError::Unreachable(format!("{}: the connection ended", self.socket.display()));
        let requests = self.connected().await?;
        requests.send(request).await.map_err(|_| gone())?;
        match timeout(self.limit, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(gone()),
            Err(_) => {
                // Answers come in order: one that does not come blocks all later ones.
                self.requests.lock().await.take();
                let limit = self.limit;
                Err(QmpError::Unreachable(format!("{}: no answer to {command} in {limit:?}", self.socket.display())))
            }
        }
    }

    async fn connected(&self) -> Result<mpsc::Sender<Request>, QmpError> {
        let mut requests = self.requests.lock().await;
        if let Some(open) = requests.as_ref().filter(|r| !r.is_closed()) {
            return Ok(open.clone());
        }
        let connecting = timeout(self.limit, open(&self.socket));
        let stream = match connecting.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) => return Err(QmpError::Unreachable(format!("{}: {e}", self.socket.display()))),
            Err(_) => {
                let (socket, limit) = (self.socket.display(), self.limit);
                return Err(QmpError::Unreachable(format!("{socket}: no QMP greeting in {limit:?}")));
            }
        };
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(serve(stream, receiver, self.events.clone()));
        *requests = Some(sender.clone());
        Ok(sender)
    }
}

struct Stream {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

async fn open(socket: &Path) -> std::io::Result<Stream> {
    let (reader, writer) = UnixStream::connect(socket).await?.into_split();
    let mut stream = Stream { lines: BufReader::new(reader).lines(), writer };
    let greeting = next_message(&mut stream.lines).await?;
    if greeting.get("QMP").is_none() {
        return Err(std::io::Error::other("it does not speak QMP"));
    }
    stream.writer.write_all(b"{\"execute\":\"qmp_capabilities\"}\n").await?;
    loop {
        let message = next_message(&mut stream.lines).await?;
        if message.get("return").is_some() {
            return Ok(stream);
        }
        if let Some(error) = message.get("error") {
            return Err(std::io::Error::other(format!("qmp_capabilities: {error}")));
        }
    }
}

async fn next_message(lines: &mut Lines<BufReader<OwnedReadHalf>>) -> std::io::Result<Value> {
    let line = lines.next_line().await?.ok_or_else(|| std::io::Error::other("closed"))?;
    serde_json::from_str(&line).map_err(|e| std::io::Error::other(format!("not JSON: {e}")))
}

/// Owns the stream until it breaks or the client is dropped; whoever still waits then sees its answer's channel close.
async fn serve(mut stream: Stream, mut requests: mpsc::Receiver<Request>, events: broadcast::Sender<Event>) {
    let mut waiting: HashMap<u64, oneshot::Sender<Answer>> = HashMap::new();
    let mut last_id = 0;
    loop {
        tokio::select! {
            message = next_message(&mut stream.lines) => match message {
                Ok(message) => dispatch(message, &mut waiting, &events),
                Err(e) => {
                    tracing::debug!("QMP connection ended: {e}");
                    return;
                }
            },
            request = requests.recv() => {
                let Some(Request { command, arguments, answer }) = request else { return };
                last_id += 1;
                let mut line = json!({"execute": command, "arguments": arguments, "id": last_id}).to_string();
                line.push('\n');
                waiting.insert(last_id, answer);
                if let Err(e) = stream.writer.write_all(line.as_bytes()).await {
                    tracing::debug!("QMP connection ended at {command}: {e}");
                    return;
                }
            }
        }
    }
}

fn dispatch(
    mut message: Value,
    waiting: &mut HashMap<u64, oneshot::Sender<Answer>>,
    events: &broadcast::Sender<Event>,
) {
    if let Some(name) = message.get("event").and_then(Value::as_str) {
        let event = Event { name: name.to_owned(), data: message["data"].clone() };
        // Nobody listening is not an error.
        let _ = events.send(event);
        return;
    }
    let Some(answer) = message.get("id").and_then(Value::as_u64).and_then(|id| waiting.remove(&id)) else {
        tracing::warn!("QMP answer to no question: {message}");
        return;
    };
    let result = match message.get("error") {
        Some(error) => {
            let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
            Err(QmpError::Refused { class: text("class"), description: text("desc") })
        }
        None => Ok(message["return"].take()),
    };
    // The caller may have given up.
    let _ = answer.send(result);
}
