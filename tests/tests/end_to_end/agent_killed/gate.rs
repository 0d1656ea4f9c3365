//! A gate on the socket by which the agent of a DPU presents functions to its host. The agent stops there each time it reads what the host
//! has, which it does before each of its steps, and before it raises a link; so a test can look, let it go on, or kill it right there.

use crate::machine::SOON;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

/// By this command the driver begins to read what the host has.
const READS: &str = "query-named-block-nodes";

/// The agent waits here. Dropped: what it was about to send never reaches the host.
pub struct Stop {
    /// The back end whose link it is about to raise.
    pub raises: Option<String>,
    go: oneshot::Sender<()>,
}

impl Stop {
    pub fn go(self) {
        // Who waited may have given up.
        let _ = self.go.send(());
    }
}

/// What the host was told, as far as it cannot be asked for it.
#[derive(Debug, Default)]
struct Told {
    /// The last word on the link of a back end: up or not.
    links: BTreeMap<String, bool>,
    /// Devices that it was asked to release.
    released: BTreeSet<String>,
}

/// Ends when it is dropped: then the agent finds the host's own socket in its place again.
pub struct Gate {
    socket: PathBuf,
    behind: PathBuf,
    stops: mpsc::UnboundedReceiver<Stop>,
    told: Arc<Mutex<Told>>,
    serving: AbortHandle,
}

impl Gate {
    /// In the place of this socket. Who is connected to it already does not pass here.
    pub fn at(socket: PathBuf) -> Result<Self> {
        let behind = socket.with_extension("behind");
        std::fs::rename(&socket, &behind).with_context(|| format!("move {}", socket.display()))?;
        let listener = UnixListener::bind(&socket).inspect_err(|_| put_back(&behind, &socket));
        let listener = listener.with_context(|| format!("listen on {}", socket.display()))?;
        let (sender, stops) = mpsc::unbounded_channel();
        let told = Arc::<Mutex<Told>>::default();
        let serving = tokio::spawn(serve(listener, behind.clone(), sender, told.clone())).abort_handle();
        Ok(Self { socket, behind, stops, told, serving })
    }

    /// The host's own socket.
    pub fn behind(&self) -> &Path {
        &self.behind
    }

    /// Waits until the agent stops.
    pub async fn next(&mut self) -> Result<Stop> {
        let limit = SOON.as_secs();
        let stop = tokio::time::timeout(SOON, self.stops.recv()).await;
        stop.with_context(|| format!("no agent has read what its host has for {limit} s"))?
            .context("the gate has ended")
    }

    /// Lets everything pass for as long as `work` lasts.
    pub async fn open_for<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                Some(stop) = self.stops.recv() => stop.go(),
            }
        }
    }

    /// The agent that waits here was killed.
    pub fn dismiss(&mut self, stop: Stop) {
        drop(stop);
        while self.stops.try_recv().is_ok() {}
    }

    /// One that nobody has taken down is up: that is how QEMU makes them.
    pub fn is_up(&self, back_end: &str) -> bool {
        lock(&self.told).links.get(back_end) != Some(&false)
    }

    /// Whether the host was asked to release this device.
    pub fn is_released(&self, device: &str) -> bool {
        lock(&self.told).released.contains(device)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.serving.abort();
        put_back(&self.behind, &self.socket);
    }
}

fn put_back(behind: &Path, socket: &Path) {
    if let Err(error) = std::fs::rename(behind, socket) {
        eprintln!("{} is not back in its place: {error}", socket.display());
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every connection ends with it.
async fn serve(
    listener: UnixListener,
    behind: PathBuf,
    stops: mpsc::UnboundedSender<Stop>,
    told: Arc<Mutex<Told>>,
) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let (agent, _) = listener.accept().await?;
        connections.spawn(pass(agent, behind.clone(), stops.clone(), told.clone()));
    }
}

async fn pass(
    agent: UnixStream,
    behind: PathBuf,
    stops: mpsc::UnboundedSender<Stop>,
    told: Arc<Mutex<Told>>,
) -> io::Result<()> {
    let (mut from_host, mut to_host) = UnixStream::connect(behind).await?.into_split();
    let (from_agent, mut to_agent) = agent.into_split();
    let answers = async { tokio::io::copy(&mut from_host, &mut to_agent).await.map(drop) };
    let commands = async {
        let mut lines = BufReader::new(from_agent).lines();
        while let Some(line) = lines.next_line().await? {
            let command: Value = serde_json::from_str(&line)?;
            let raises = link(&command).filter(|(_, up)| *up).map(|(back_end, _)| back_end.to_owned());
            if raises.is_some() || command["execute"] == READS {
                let (go, may_go) = oneshot::channel();
                if stops.send(Stop { raises, go }).is_err() || may_go.await.is_err() {
                    return Ok(());
                }
            }
            note(&told, &command);
            to_host.write_all(format!("{line}\n").as_bytes()).await?;
        }
        io::Result::Ok(())
    };
    tokio::select! {
        ended = answers => ended,
        ended = commands => ended,
    }
}

/// The back end whose link this command sets, and whether it goes up.
fn link(command: &Value) -> Option<(&str, bool)> {
    let arguments = Some(&command["arguments"]).filter(|_| command["execute"] == "set_link")?;
    Some((arguments["name"].as_str()?, arguments["up"].as_bool()?))
}

fn note(told: &Mutex<Told>, command: &Value) {
    if let Some((back_end, up)) = link(command) {
        lock(told).links.insert(back_end.to_owned(), up);
    }
    let device = command["arguments"]["id"].as_str().filter(|_| command["execute"] == "device_del");
    lock(told).released.extend(device.map(str::to_owned));
}
