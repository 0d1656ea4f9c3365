//! A real Ceph, and a connector whose connections are processes with an image open: what a DPU's target is.

use async_trait::async_trait;
use ceph::{Cluster, Clusters, DRIVER};
use planner::exposure::ExposureId;
use ports::emulation::Backend;
use ports::volume::{Connection, Fence, Volume};
use ports::{ErrorClass, PortError, VolumeConnector};
use sandbox::ceph::{CLUSTER, Lab, POOL, USER};
use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Mutex;

const SESSION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/session.py");
/// A write that is not answered by then waits for a cluster that has lost it.
const ANSWER: Duration = Duration::from_secs(30);

pub fn clusters(lab: &Lab) -> Clusters {
    let cluster = Cluster { user: USER.to_owned(), config_file: lab.config_file() };
    Clusters::new(BTreeMap::from([(CLUSTER.to_owned(), cluster)])).with_environment(lab.environment())
}

fn name_of(volume: &Volume) -> &str {
    &volume.attributes["imageName"]
}

pub struct Session {
    image: String,
    size_bytes: u64,
    process: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Session {
    async fn open(lab: &Lab, image: &str) -> Result<Session, PortError> {
        let mut command = Command::new("python3");
        command.envs(lab.environment()).arg(SESSION).arg(lab.config_file()).args([USER, POOL, image]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("python3 starts");
        let said = BufReader::new(process.stdout.take().expect("its output")).lines();
        let mut session = Session { image: image.to_owned(), size_bytes: 0, process, said };
        let refused = || PortError::new(ErrorClass::Busy, format!("{image} was not opened"));
        session.size_bytes = session.answer().await.and_then(|said| said.parse().ok()).ok_or_else(refused)?;
        Ok(session)
    }

    async fn answer(&mut self) -> Option<String> {
        tokio::time::timeout(ANSWER, self.said.next_line()).await.ok()?.expect("its output")
    }

    /// Tells it from others.
    pub fn number(&self) -> Option<u32> {
        self.process.id()
    }

    /// What the client is told.
    pub async fn write(&mut self, byte: u8) -> Option<String> {
        let input = self.process.stdin.as_mut().expect("its input");
        input.write_all(&[byte, b'\n']).await.expect("it reads");
        self.answer().await
    }

    async fn close(mut self) {
        drop(self.process.stdin.take());
        let ended = tokio::time::timeout(ANSWER, self.process.wait()).await;
        ended.expect("it ends in time").expect("it ends");
    }
}

pub type Sessions = Arc<Mutex<BTreeMap<ExposureId, Session>>>;

/// What a DPU's target is to the agent: it outlives it, and is asked each time.
#[derive(Clone)]
pub struct Processes {
    lab: Arc<Lab>,
    pub all: Sessions,
}

impl Processes {
    pub fn of(lab: &Arc<Lab>) -> Processes {
        Processes { lab: Arc::clone(lab), all: Arc::default() }
    }
}

fn connection(id: &ExposureId, session: &Session) -> Connection {
    let name = format!("{}-{}", id.uid, id.epoch);
    Connection { id: id.clone(), backend: Backend::Bdev(name), size_bytes: session.size_bytes }
}

#[async_trait]
impl VolumeConnector for Processes {
    fn driver(&self) -> &str {
        DRIVER
    }

    fn fence(&self) -> Fence {
        Fence::None
    }

    fn identity(&self, id: &ExposureId) -> String {
        id.uid.clone()
    }

    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<Connection, PortError> {
        let refused = |class| Err(PortError::new(class, name_of(volume)));
        if volume.read_only {
            return refused(ErrorClass::Unsupported);
        }
        let mut all = self.all.lock().await;
        let image = name_of(volume);
        if let Some(own) = all.get(id) {
            return if own.image == image { Ok(connection(id, own)) } else { refused(ErrorClass::Conflict) };
        }
        if all.values().any(|session| session.image == image) {
            return refused(ErrorClass::Conflict);
        }
        let session = Session::open(&self.lab, image).await?;
        let made = connection(id, &session);
        all.insert(id.clone(), session);
        Ok(made)
    }

    async fn list(&self) -> Result<Vec<Connection>, PortError> {
        Ok(self.all.lock().await.iter().map(|(id, session)| connection(id, session)).collect())
    }

    async fn disconnect(&self, id: &ExposureId) -> Result<(), PortError> {
        if let Some(session) = self.all.lock().await.remove(id) {
            session.close().await;
        }
        Ok(())
    }
}
