//! A proxy before a real `ovsdb-server` that makes it look older, or makes it fall silent.

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
    silent: Arc<AtomicBool>,
    echoes: Arc<AtomicUsize>,
    task: JoinHandle<()>,
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
        let silent = Arc::new(AtomicBool::new(false));
        let echoes = Arc::new(AtomicUsize::new(0));
        let (swallow, count) = (Arc::clone(&silent), Arc::clone(&echoes));
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("accept");
                tokio::spawn(serve(client, PathBuf::from(&server), refused, Arc::clone(&swallow), Arc::clone(&count)));
            }
        });
        Self { address: format!("unix:{socket}"), silent, echoes, task }
    }

    /// How many times the client has asked whether the server lives.
    pub fn echoes(&self) -> usize {
        self.echoes.load(Ordering::SeqCst)
    }

    /// From now on the connection stays open and nothing passes, in either direction.
    pub fn fall_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
    }
}

async fn serve(
    mut client: UnixStream,
    server: PathBuf,
    refused: &[&str],
    silent: Arc<AtomicBool>,
    echoes: Arc<AtomicUsize>,
) {
    let mut server = UnixStream::connect(server).await.expect("the real server");
    let mut requests = Scanner::default();
    let mut answers = [0; 65_536];
    loop {
        tokio::select! {
            read = client.read_buf(requests.buffer()) => {
                if read.is_err() || read.is_ok_and(|length| length == 0) {
                    return;
                }
                while let Some(message) = requests.next_message().expect("our own client") {
                    let muted = silent.load(Ordering::SeqCst);
                    if matches!(&message, Message::Request { method, .. } if method == "echo") {
                        echoes.fetch_add(1, Ordering::SeqCst);
                    }
                    match message {
                        _ if muted => {}
                        Message::Request { id, method, .. } if refused.contains(&method.as_str()) => {
                            let result = Err(json!({"error": "unknown method", "details": method}));
                            client.write_all(&Message::Response { id, result }.to_bytes()).await.expect("client");
                        }
                        other => server.write_all(&other.to_bytes()).await.expect("server"),
                    }
                }
            }
            read = server.read(&mut answers) => {
                let length = read.unwrap_or(0);
                if length == 0 {
                    return;
                }
                if !silent.load(Ordering::SeqCst) && client.write_all(&answers[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}
