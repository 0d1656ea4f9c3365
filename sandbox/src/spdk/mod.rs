//! SPDK for tests: a target that speaks its JSON-RPC and moves no data, and where a real one is found.
//!
//! The [`Fake`] holds every request against SPDK's own schema where that is on the machine, answers with the codes that
//! SPDK 26.05 was seen to answer with, and notes as a *violation* what SPDK would accept and what does harm: a bdev deleted under a
//! host, a second subsystem on one socket. Faults are injected by the number of a call.
//!
//! | module | what it is |
//! |---|---|
//! | [`schema`] | SPDK's description of its requests |
//! | [`real`] | finds a real SPDK |
//! | [`operations`] | reads and writes of a bdev by a real SPDK |
//! | [`faults`] | what goes wrong, and at which call |
//! | [`world`] | what the target has; one file per part of SPDK |

pub mod faults;
pub mod operations;
pub mod real;
pub mod schema;
pub mod world;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use faults::{Fault, Faults};
use schema::Schema;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use world::World;

/// JSON-RPC 2.0, section 5.1.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const INTERNAL_ERROR: i64 = -32603;
/// No code of SPDK's: the target waits, and says nothing before whoever asked has given up.
pub(crate) const UNANSWERED: i64 = 0;

/// A code and a message.
pub(crate) type Refusal = (i64, String);

/// A target in this process. Ends with it; its sockets stay, as those of a killed target do.
pub struct Fake {
    shared: Arc<Shared>,
    serving: Mutex<Option<AbortHandle>>,
}

struct Shared {
    socket: PathBuf,
    schema: Option<Schema>,
    snap: Schema,
    state: Mutex<State>,
}

/// Another target, as the one at `of` reaches it.
#[derive(Clone)]
pub struct Peer {
    state: Weak<Shared>,
    of: String,
}

impl Peer {
    /// Who looks.
    pub(crate) fn of(&self) -> &str {
        &self.of
    }

    /// `None`: it has ended.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> Option<T> {
        let shared = self.state.upgrade()?;
        let state = &mut *lock(&shared.state);
        Some(look(&mut state.world))
    }
}

/// A bdev that is open. Its data are in files, wherever the way there leads.
pub struct Disk {
    shared: Arc<Shared>,
    bdev: String,
}

impl Disk {
    /// Writes the first byte. Whether it arrived.
    pub fn write(&self, byte: u8) -> io::Result<bool> {
        lock(&self.shared.state).world.write(&self.bdev, byte)
    }
}

#[derive(Default)]
struct State {
    world: World,
    faults: Faults,
    violations: Vec<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Fake {
    /// Serves on `rpc.sock` in the folder. Must be called inside a tokio runtime.
    pub fn start(folder: &Path) -> anyhow::Result<Fake> {
        let schema = schema::find().ok().map(|file| Schema::read(&file)).transpose()?;
        let (socket, snap) = (folder.join("rpc.sock"), Schema::snap()?);
        let shared = Arc::new(Shared { socket, schema, snap, state: Mutex::default() });
        let fake = Fake { shared, serving: Mutex::default() };
        fake.revive()?;
        Ok(fake)
    }

    pub fn socket(&self) -> &Path {
        &self.shared.socket
    }

    /// As `kill -9`: nothing answers, all is forgotten, the sockets' files stay.
    pub fn kill(&self) {
        if let Some(serving) = lock(&self.serving).take() {
            serving.abort();
        }
        lock(&self.shared.state).world.die();
    }

    /// A new target on the same socket, empty.
    pub fn revive(&self) -> io::Result<()> {
        let listener = fresh(&self.shared.socket)?;
        let serving = tokio::spawn(serve(listener, Arc::clone(&self.shared))).abort_handle();
        *lock(&self.serving) = Some(serving);
        Ok(())
    }

    /// What happens at the `call`th call from now, the first being 0.
    pub fn inject(&self, call: usize, fault: Fault) {
        lock(&self.shared.state).faults.inject(call, fault);
    }

    /// What happens at every call of that method from now on.
    pub fn inject_for(&self, method: &str, fault: Fault) {
        lock(&self.shared.state).faults.inject_for(method, fault);
    }

    /// Whether a fault still waits for its call.
    pub fn has_faults(&self) -> bool {
        !lock(&self.shared.state).faults.is_empty()
    }

    pub fn forget_faults(&self) {
        lock(&self.shared.state).faults.clear();
    }

    /// Methods that were called so far, in order.
    pub fn calls(&self) -> Vec<String> {
        lock(&self.shared.state).faults.calls().to_vec()
    }

    /// What was asked that must never be asked.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.shared.state).violations.clone()
    }

    /// From now on this target's initiators reach that one, which must never reach this one.
    pub fn reaches(&self, storage: &Fake) {
        let peer = Peer { state: Arc::downgrade(&storage.shared), of: self.shared.socket.display().to_string() };
        lock(&self.shared.state).world.outside.peers.push(peer);
    }

    /// What an emulator has open.
    pub fn open(&self, bdev: &str) -> Disk {
        Disk { shared: Arc::clone(&self.shared), bdev: bdev.to_owned() }
    }

    /// Looks at, or changes, what the target has: what a test does behind the driver's back.
    pub fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut lock(&self.shared.state).world)
    }
}

/// Listens on a socket whose file may have been left behind.
fn fresh(socket: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(socket),
    }
}

async fn serve(listener: UnixListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let (die, mut dead) = mpsc::unbounded_channel();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                connections.spawn(talk(stream, Arc::clone(&shared), die.clone()));
            }
            _ = dead.recv() => connections.shutdown().await,
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn talk(mut stream: UnixStream, shared: Arc<Shared>, die: mpsc::UnboundedSender<()>) {
    let mut buffer = Vec::new();
    let mut piece = vec![0; 16 << 10];
    loop {
        let Ok(length) = stream.read(&mut piece).await else { return };
        if length == 0 {
            return;
        }
        buffer.extend_from_slice(&piece[..length]);
        loop {
            let (request, used) = match first(&buffer) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(_) => return,
            };
            buffer.drain(..used);
            match shared.take(&request) {
                Taken::Answered(answer) => {
                    // In two pieces: a client has to wait for the rest.
                    let bytes = format!("{answer}\n").into_bytes();
                    let (head, tail) = bytes.split_at(bytes.len() / 2);
                    let sent = async {
                        stream.write_all(head).await?;
                        tokio::task::yield_now().await;
                        stream.write_all(tail).await
                    };
                    if sent.await.is_err() {
                        return;
                    }
                }
                Taken::Lost => return,
                Taken::Dead => {
                    let _ = die.send(());
                    return;
                }
            }
        }
    }
}

/// The first whole value in the buffer, and its length.
fn first(buffer: &[u8]) -> Result<Option<(Value, usize)>, serde_json::Error> {
    let mut values = serde_json::Deserializer::from_slice(buffer).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => Ok(Some((value, values.byte_offset()))),
        None => Ok(None),
        Some(Err(error)) if error.is_eof() => Ok(None),
        Some(Err(error)) => Err(error),
    }
}

/// What becomes of a request.
enum Taken {
    Answered(Value),
    /// The connection ends.
    Lost,
    /// The target ends.
    Dead,
}

impl Shared {
    fn take(&self, request: &Value) -> Taken {
        let method = request["method"].as_str().unwrap_or_default();
        let params = &request["params"];
        let id = &request["id"];
        let state = &mut *lock(&self.state);
        let refused =
            |(code, message): Refusal| json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
        let fault = state.faults.next(method);
        match fault {
            Some(Fault::KilledBefore) => {
                state.world.die();
                return Taken::Dead;
            }
            Some(Fault::LostBefore) => return Taken::Lost,
            Some(Fault::Refused { code, message }) => return Taken::Answered(refused((code, message))),
            Some(Fault::KilledAfter | Fault::LostAfter) | None => {}
        }
        // What is on the machine describes a newer one.
        let of_target = self.schema.as_ref().filter(|_| !state.world.outside.is_old);
        let schema = if self.snap.knows(method) { Some(&self.snap) } else { of_target };
        let wrong = schema.map(|schema| schema.check(method, params)).unwrap_or_default();
        let outcome = if wrong.is_empty() {
            state.world.call(method, params)
        } else {
            state.violations.extend(wrong);
            Err((INVALID_PARAMS, "Invalid parameters".to_owned()))
        };
        state.violations.append(&mut state.world.violations);
        match fault {
            Some(Fault::KilledAfter) => {
                state.world.die();
                Taken::Dead
            }
            Some(Fault::LostAfter) => Taken::Lost,
            _ if matches!(outcome, Err((UNANSWERED, _))) => Taken::Lost,
            _ => Taken::Answered(match outcome {
                Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                Err(refusal) => refused(refusal),
            }),
        }
    }
}
