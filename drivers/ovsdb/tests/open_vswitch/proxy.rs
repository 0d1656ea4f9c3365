//! A proxy before a real `ovsdb-server` that makes it look older, makes it fall silent, or cuts the connection.

use ovsdb::wire::{Message, Scanner};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

pub struct Proxy {
    pub address: String,
    faults: Arc<Faults>,
    task: JoinHandle<()>,
}

struct Faults {
    refused: &'static [&'static str],
    silent: AtomicBool,
    echoes: AtomicUsize,
    requests_left: Budget,
    answers_left: Budget,
}

/// Bytes that still pass; the connection that uses it up is cut, the next one is not.
struct Budget(AtomicUsize);

impl Budget {
    /// How many of these bytes pass; fewer than all: cut now.
    fn take(&self, bytes: usize) -> usize {
        let left = self.0.load(Ordering::SeqCst);
        let (pass, next) = match left.checked_sub(bytes) {
            Some(_) if left == usize::MAX => (bytes, usize::MAX),
            Some(rest) => (bytes, rest),
            None => (left, usize::MAX),
        };
        self.0.store(next, Ordering::SeqCst);
        pass
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Answers `refused` methods as `ovsdb-server` answers what it does not know.
    pub fn before(server: String, socket: String, refused: &'static [&'static str]) -> Self {
        let listener = UnixListener::bind(&socket).expect("a fresh path");
        let unlimited = || Budget(AtomicUsize::new(usize::MAX));
        let faults = Arc::new(Faults {
            refused,
            silent: AtomicBool::new(false),
            echoes: AtomicUsize::new(0),
            requests_left: unlimited(),
            answers_left: unlimited(),
        });
        let shared = Arc::clone(&faults);
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("accept");
                tokio::spawn(serve(client, PathBuf::from(&server), Arc::clone(&shared)));
            }
        });
        Self { address: format!("unix:{socket}"), faults, task }
    }

    /// How many times the client has asked whether the server lives.
    pub fn echoes(&self) -> usize {
        self.faults.echoes.load(Ordering::SeqCst)
    }

    /// From now on the connection stays open and nothing passes, in either direction.
    pub fn fall_silent(&self, silent: bool) {
        self.faults.silent.store(silent, Ordering::SeqCst);
    }

    pub fn cut_after_requests(&self, bytes: usize) {
        self.faults.requests_left.0.store(bytes, Ordering::SeqCst);
    }

    pub fn cut_after_answers(&self, bytes: usize) {
        self.faults.answers_left.0.store(bytes, Ordering::SeqCst);
    }

    /// Whether a cut has been made since it was asked for.
    pub fn has_cut(&self) -> bool {
        let faults = &self.faults;
        [&faults.requests_left, &faults.answers_left].iter().all(|left| left.0.load(Ordering::SeqCst) == usize::MAX)
    }

    pub fn cut_no_more(&self) {
        self.cut_after_requests(usize::MAX);
        self.cut_after_answers(usize::MAX);
    }
}

/// Ends, and so closes both connections, when either side has closed or a cut is due.
async fn serve(mut client: UnixStream, server: PathBuf, faults: Arc<Faults>) {
    let mut server = UnixStream::connect(server).await.expect("the real server");
    let mut requests = Scanner::default();
    let mut answers = vec![0; 65_536];
    loop {
        tokio::select! {
            read = client.read_buf(requests.buffer()) => {
                if read.is_err() || read.is_ok_and(|length| length == 0) {
                    return;
                }
                while let Some(message) = requests.next_message().expect("our own client") {
                    if forward(message, &mut client, &mut server, &faults).await.is_none() {
                        return;
                    }
                }
            }
            read = server.read(&mut answers) => {
                let length = read.unwrap_or(0);
                let pass = if faults.silent.load(Ordering::SeqCst) { 0 } else { faults.answers_left.take(length) };
                let written = client.write_all(&answers[..pass]).await;
                if length == 0 || written.is_err() || (pass < length && !faults.silent.load(Ordering::SeqCst)) {
                    return;
                }
            }
        }
    }
}

/// `None`: the connection is to be cut.
async fn forward(message: Message, client: &mut UnixStream, server: &mut UnixStream, faults: &Faults) -> Option<()> {
    if matches!(&message, Message::Request { method, .. } if method == "echo") {
        faults.echoes.fetch_add(1, Ordering::SeqCst);
    }
    match message {
        _ if faults.silent.load(Ordering::SeqCst) => {}
        Message::Request { id, method, .. } if faults.refused.contains(&method.as_str()) => {
            let result = Err(json!({"error": "unknown method", "details": method}));
            client.write_all(&Message::Response { id, result }.to_bytes()).await.ok()?;
        }
        other => {
            let bytes = other.to_bytes();
            let pass = faults.requests_left.take(bytes.len());
            server.write_all(&bytes[..pass]).await.ok()?;
            if pass < bytes.len() {
                return None;
            }
        }
    }
    Some(())
}
