//! One connection to an OVSDB server: requests matched to responses by id, both directions of `echo`.
//!
//! A task owns the stream. It answers the server's echo (RFC 7047 section 4.1.11) and, when nothing has been heard for
//! the probe interval, sends its own; nothing heard for another interval ends the connection. It never reconnects: that is
//! [`crate::Session`]'s part.

use crate::Error;
use crate::address::{Address, Remotes, Stream};
use crate::tls::TlsFiles;
use crate::tls_error::explain;
use crate::wire::{Message, Scanner};
use serde_json::{Value as Json, json};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub connect: Duration,
    /// From a request to its response.
    pub call: Duration,
    /// Silence after which we ask the server whether it lives.
    pub probe: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), call: Duration::from_secs(10), probe: Duration::from_secs(5) }
    }
}

/// What the server sends of its own accord.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    pub method: String,
    pub params: Json,
}

/// A response, and how many notifications the connection had passed on before it.
type Reply = (Result<Json, Json>, u64);

struct Call {
    method: String,
    params: Json,
    reply: oneshot::Sender<Reply>,
}

/// A handle; the connection ends when the last one is dropped.
#[derive(Clone)]
pub struct Connection {
    address: Arc<str>,
    calls: mpsc::UnboundedSender<Call>,
    /// Why it ended.
    ended: Arc<OnceLock<String>>,
    limits: Limits,
}

impl Connection {
    /// Notifications have to be read promptly: they are kept in memory until they are.
    pub async fn open(
        remotes: &Remotes,
        address: &Address,
        limits: Limits,
    ) -> Result<(Self, mpsc::UnboundedReceiver<Notification>), Error> {
        let stream = remotes.connect(address, limits.connect).await?;
        let (calls, called) = mpsc::unbounded_channel();
        let (notify, notifications) = mpsc::unbounded_channel();
        let ended = Arc::new(OnceLock::new());
        let task = Task {
            stream,
            clear: matches!(address, Address::Tcp(_)),
            tls: remotes.tls_of(address).cloned(),
            called,
            notify,
            scanner: Scanner::default(),
            unsent: VecDeque::new(),
            waiting: HashMap::new(),
            next_id: 0,
            notified: 0,
        };
        let cause = Arc::clone(&ended);
        tokio::spawn(async move {
            // Set before the waiting calls are dropped, so that they can tell why.
            task.run(limits.probe, &cause).await;
        });
        Ok((Self { address: address.to_string().into(), calls, ended, limits }, notifications))
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Why the connection ended, if it has.
    pub fn closed(&self) -> Error {
        let cause = self.ended.get().cloned().unwrap_or_else(|| "closed".to_owned());
        Error::Closed { address: self.address.to_string(), cause }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ended, &other.ended)
    }

    pub async fn call(&self, method: &str, params: Json) -> Result<Json, Error> {
        self.counted_call(method, params).await.map(|(result, _)| result)
    }

    /// With how many notifications came before the response: whoever has dealt with that many knows at least as much as
    /// the server did when it answered, since `ovsdb-server` sends a client the updates it owes it before any answer.
    pub(crate) async fn counted_call(&self, method: &str, params: Json) -> Result<(Json, u64), Error> {
        let (reply, replied) = oneshot::channel();
        self.calls.send(Call { method: method.to_owned(), params, reply }).map_err(|_| self.closed())?;
        match tokio::time::timeout(self.limits.call, replied).await {
            Ok(Ok((Ok(result), before))) => Ok((result, before)),
            Ok(Ok((Err(error), _))) => Err(Error::Refused {
                address: self.address.to_string(),
                method: method.to_owned(),
                error: refusal(&error),
            }),
            Ok(Err(_)) => Err(self.closed()),
            Err(_) => Err(Error::Timeout {
                address: self.address.to_string(),
                method: method.to_owned(),
                limit: self.limits.call,
            }),
        }
    }
}

/// Section 4: the error is a string or an `<error>` object.
fn refusal(error: &Json) -> String {
    let member = |name: &str| error.get(name).and_then(Json::as_str);
    match (error.as_str().or_else(|| member("error")), member("details")) {
        (Some(error), Some(details)) => format!("{error} ({details})"),
        (Some(error), None) => error.to_owned(),
        (None, _) => error.to_string(),
    }
}

struct Task {
    stream: Box<dyn Stream>,
    /// It goes over a network without TLS.
    clear: bool,
    /// What the stream was opened with.
    tls: Option<TlsFiles>,
    called: mpsc::UnboundedReceiver<Call>,
    notify: mpsc::UnboundedSender<Notification>,
    scanner: Scanner,
    unsent: VecDeque<u8>,
    waiting: HashMap<u64, oneshot::Sender<Reply>>,
    next_id: u64,
    notified: u64,
}

const PROBE_ID: &str = "probe";

impl Task {
    async fn run(mut self, probe: Duration, ended: &OnceLock<String>) {
        let cause = self.exchange(probe).await;
        tracing::debug!(%cause, "OVSDB connection ended");
        // Only this task sets it.
        let _ = ended.set(cause);
    }

    /// Every branch is cancel-safe: `read_buf` and `write_buf` do nothing unless they complete, and `flush` may be begun again.
    async fn exchange(&mut self, probe: Duration) -> String {
        let tls = self.tls.clone();
        let lost = |error: &std::io::Error| tls.as_ref().map_or_else(|| error.to_string(), |tls| explain(error, tls));
        let (mut probing, mut flushed, mut heard) = (false, true, false);
        let clear = self.clear;
        let mut silence_ends = Instant::now() + probe;
        let (mut reader, mut writer) = tokio::io::split(&mut self.stream);
        loop {
            tokio::select! {
                call = self.called.recv() => match call {
                    None => return "no longer needed".to_owned(),
                    Some(call) => {
                        self.next_id += 1;
                        self.waiting.insert(self.next_id, call.reply);
                        let id = json!(self.next_id);
                        send(&mut self.unsent, &Message::Request { id, method: call.method, params: call.params });
                    }
                },
                read = reader.read_buf(self.scanner.buffer()) => {
                    match read {
                        // What `ovsdb-server` does whose `pssl:` is asked so.
                        Ok(0) if clear && !heard => {
                            return "closed by the server without an answer; does it expect TLS there (ssl:)?".to_owned();
                        }
                        Ok(0) => return "closed by the server".to_owned(),
                        Ok(_) => heard = true,
                        Err(error) => return lost(&error),
                    }
                    probing = false;
                    silence_ends = Instant::now() + probe;
                    loop {
                        match self.scanner.next_message() {
                            Ok(Some(message)) => {
                                let notified = &mut self.notified;
                                receive(message, &mut self.waiting, &mut self.unsent, &self.notify, notified);
                            }
                            Ok(None) => break,
                            Err(cause) => return cause,
                        }
                    }
                }
                pushed = push(&mut writer, &mut self.unsent), if !self.unsent.is_empty() || !flushed => match pushed {
                    Ok(all) => flushed = all,
                    Err(error) => return lost(&error),
                },
                () = tokio::time::sleep_until(silence_ends) => {
                    if probing {
                        return format!("nothing heard for {} ms", 2 * probe.as_millis());
                    }
                    probing = true;
                    silence_ends = Instant::now() + probe;
                    let echo = Message::Request { id: json!(PROBE_ID), method: "echo".to_owned(), params: json!([]) };
                    send(&mut self.unsent, &echo);
                }
            }
        }
    }
}

/// Sends on; whether all is sent. What TLS has taken it may not have sent: that is what `flush` is for.
async fn push(writer: &mut (impl AsyncWrite + Unpin), unsent: &mut VecDeque<u8>) -> std::io::Result<bool> {
    if unsent.is_empty() { writer.flush().await.map(|()| true) } else { writer.write_buf(unsent).await.map(|_| false) }
}

fn send(unsent: &mut VecDeque<u8>, message: &Message) {
    unsent.extend(message.to_bytes());
}

fn receive(
    message: Message,
    waiting: &mut HashMap<u64, oneshot::Sender<Reply>>,
    unsent: &mut VecDeque<u8>,
    notify: &mpsc::UnboundedSender<Notification>,
    notified: &mut u64,
) {
    match message {
        Message::Response { id, result } => match id.as_u64().and_then(|id| waiting.remove(&id)) {
            // Nobody listens any more after the time limit of the call.
            Some(reply) => drop(reply.send((result, *notified))),
            None if id == json!(PROBE_ID) => {}
            None => tracing::debug!(%id, "OVSDB response to no request of ours"),
        },
        Message::Request { id, method, params } if method == "echo" => {
            send(unsent, &Message::Response { id, result: Ok(params) });
        }
        Message::Request { id, method, .. } => {
            send(unsent, &Message::Response { id, result: Err(json!({"error": "unknown method", "details": method})) });
        }
        Message::Notification { method, params } => {
            *notified += 1;
            // Whoever does not read notifications does not want them.
            drop(notify.send(Notification { method, params }));
        }
    }
}
