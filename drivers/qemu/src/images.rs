//! [`VolumeConnector`] for Ceph RBD by a `qemu-storage-daemon`: a process of the DPU that opens each image once, when it is
//! connected, and hands its blocks to the host's QEMU by NBD.
//!
//! The host's QEMU comes and goes with the host's power; the daemon stays. So an image has one session with its cluster from
//! connect to disconnect, which can be noted before the host sees a disk, and be fenced: QEMU's own client opens the image
//! anew at each power-on, and nobody knows as whom.
//!
//! Nothing is kept here: an export is named by UID and epoch, a node by its image ([`names`]). What an interrupted call left
//! is a node without an export, which the next call deletes: as long as it is there, its session is.
//!
//! The daemon caches nothing: what a guest was told is written would be lost with it, and the guest would not know.
//!
//! Commands used: `query-block-exports`, `query-blockstats`, `nbd-server-start`, `blockdev-add`, `block-export-add`,
//! `block-export-del`, `blockdev-del`. `query-named-block-nodes` would tell sizes, but it reads of each image to do so, and
//! says nothing at all when the cluster refuses one of them: they are asked for by NBD ([`nbd`]).

use crate::arguments;
use crate::names;
use crate::nbd;
use crate::port_error;
use crate::qmp::{Qmp, QmpError};
use async_trait::async_trait;
use planner::exposure::{ExposureId, FunctionKind};
use planner::target::{self, RbdImage, Target};
use ports::emulation::{Backend, NbdExport, RbdSource};
use ports::volume::{Connection, Fence, Volume};
use ports::{ErrorClass, PortError, VolumeConnector};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

const DRIVER: &str = "rbd.csi.ceph.com";
/// An image of a cluster that is busy opens in seconds.
const LIMIT: Duration = Duration::from_secs(20);
/// What a client has under way when its export is deleted.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// How a cluster is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Without `client.`.
    pub user: String,
    /// Names the monitors and the key ring.
    pub config_file: PathBuf,
}

pub struct ImageDaemon {
    socket: PathBuf,
    /// Where the daemon serves what it has open.
    nbd: PathBuf,
    /// By what ceph-csi calls `clusterID`.
    clusters: BTreeMap<String, Cluster>,
    /// Verbs run one after the other.
    turn: Mutex<()>,
}

/// What the daemon has.
#[derive(Default)]
struct Held {
    /// The node that each connection shows.
    exports: BTreeMap<ExposureId, String>,
    /// Our nodes.
    nodes: BTreeSet<String>,
}

impl Held {
    fn user(&self, node: &str) -> Option<&ExposureId> {
        self.exports.iter().find(|(_, shown)| *shown == node).map(|(id, _)| id)
    }

    fn unused(&self) -> Vec<String> {
        self.nodes.iter().filter(|node| self.user(node).is_none()).cloned().collect()
    }
}

fn export(id: &ExposureId) -> String {
    names::device(FunctionKind::Disk, id)
}

fn node(image: &RbdImage) -> String {
    names::image(&[&image.cluster_id, &image.pool, image.namespace.as_deref().unwrap_or_default(), &image.image])
}

fn failed(class: ErrorClass, what: &str, cause: impl std::fmt::Display) -> PortError {
    PortError::new(class, format!("{what}: {cause}"))
}

impl ImageDaemon {
    /// `socket`: the daemon's, for QMP; it serves NBD beside it, at the same path with the ending `.nbd`.
    pub fn new(socket: impl Into<PathBuf>, clusters: BTreeMap<String, Cluster>) -> Self {
        let socket = socket.into();
        let nbd = socket.with_extension("nbd");
        Self { socket, nbd, clusters, turn: Mutex::new(()) }
    }

    fn talk<'a>(&'a self, what: &'a str) -> Talk<'a> {
        Talk { qmp: Qmp::new(&self.socket, LIMIT), nbd: &self.nbd, what }
    }

    fn source(&self, volume: &Volume, what: &str) -> Result<(RbdImage, RbdSource), PortError> {
        let image = match target::of(&volume.driver, &volume.handle, &volume.attributes) {
            Some(Ok(Target::Rbd(image))) => image,
            Some(Err(refusal)) => return Err(failed(ErrorClass::Invalid, what, refusal)),
            _ => return Err(failed(ErrorClass::Invalid, what, format!("it is no volume of {DRIVER}"))),
        };
        let known = self.clusters.get(&image.cluster_id).ok_or_else(|| {
            let cause = format!("the cluster {} is not known here (--ceph-cluster)", image.cluster_id);
            failed(ErrorClass::NotFound, what, cause)
        })?;
        let source = RbdSource {
            pool: image.pool.clone(),
            namespace: image.namespace.clone(),
            image: image.image.clone(),
            user: known.user.clone(),
            config_file: known.config_file.clone(),
        };
        Ok((image, source))
    }

    fn connection(&self, id: &ExposureId, size_bytes: u64) -> Connection {
        let backend = Backend::Nbd(NbdExport { socket: self.nbd.clone(), name: export(id) });
        Connection { id: id.clone(), backend, size_bytes }
    }
}

/// One verb's connection with the daemon, which talks with one client at a time: nobody keeps it.
struct Talk<'a> {
    qmp: Qmp,
    nbd: &'a Path,
    what: &'a str,
}

impl Talk<'_> {
    fn error(&self, command: &str, error: &QmpError) -> PortError {
        port_error(&self.qmp, &format!("{}: {command}", self.what), error)
    }

    async fn ask(&self, command: &str, arguments: Value) -> Result<Value, PortError> {
        self.qmp.execute(command, arguments).await.map_err(|error| self.error(command, &error))
    }

    async fn held(&self) -> Result<Held, PortError> {
        let mut held = Held::default();
        let exports = self.ask("query-block-exports", json!({})).await?;
        for one in exports.as_array().into_iter().flatten() {
            let id = one["id"].as_str().and_then(names::parse_device);
            if let (Some((FunctionKind::Disk, id)), Some(node)) = (id, one["node-name"].as_str()) {
                held.exports.insert(id, node.to_owned());
            }
        }
        let nodes = self.ask("query-blockstats", json!({"query-nodes": true})).await?;
        let nodes = nodes.as_array().into_iter().flatten().filter_map(|one| one["node-name"].as_str());
        held.nodes = nodes.filter(|name| names::is_image(name)).map(str::to_owned).collect();
        Ok(held)
    }

    /// An export that ends just now has no size.
    async fn size(&self, id: &ExposureId) -> Result<u64, PortError> {
        let lost = |cause: String| {
            let cause = format!("the size of {}, asked at {}: {cause}", export(id), self.nbd.display());
            failed(ErrorClass::Unreachable, self.what, cause)
        };
        match tokio::time::timeout(LIMIT, nbd::size(self.nbd, &export(id))).await {
            Ok(Ok(size)) => Ok(size.unwrap_or(0)),
            Ok(Err(error)) => Err(lost(error.to_string())),
            Err(_) => Err(lost(format!("no answer within {LIMIT:?}"))),
        }
    }

    /// Closes what an interrupted call left open.
    async fn settle(&self) -> Result<Held, PortError> {
        let mut held = self.held().await?;
        for node in held.unused() {
            self.ask("blockdev-del", json!({"node-name": node})).await?;
            held.nodes.remove(&node);
        }
        Ok(held)
    }

    /// One that serves already: success.
    async fn serve(&self) -> Result<(), PortError> {
        let (command, address) = ("nbd-server-start", json!({"type": "unix", "data": {"path": self.nbd}}));
        match self.qmp.execute(command, json!({"addr": address})).await {
            Err(error) if !error.description().contains("already running") => Err(self.error(command, &error)),
            _ => Ok(()),
        }
    }

    async fn open(&self, id: &ExposureId, node: &str, source: &RbdSource) -> Result<(), PortError> {
        self.serve().await?;
        let mut image = arguments::rbd(source);
        image["node-name"] = node.into();
        image["cache"] = json!({"direct": true});
        self.ask("blockdev-add", image).await?;
        let name = export(id);
        let shown = json!({"type": "nbd", "id": name, "name": name, "node-name": node, "writable": true});
        if let Err(error) = self.ask("block-export-add", shown).await {
            self.ask("blockdev-del", json!({"node-name": node})).await?;
            return Err(error);
        }
        Ok(())
    }

    /// Returns when nothing of it is under way any more.
    async fn hide(&self, id: &ExposureId) -> Result<(), PortError> {
        let begun = Instant::now();
        let mut told = false;
        while self.held().await?.exports.contains_key(id) {
            if !told {
                let (command, arguments) = ("block-export-del", json!({"id": export(id), "mode": "hard"}));
                match self.qmp.execute(command, arguments).await {
                    // Asked before: it ends when what was under way has ended.
                    Err(error) if !error.description().contains("shutting down") => {
                        return Err(self.error(command, &error));
                    }
                    _ => told = true,
                }
            }
            if begun.elapsed() > RELEASE_LIMIT {
                let cause = format!("what the host has under way did not end within {RELEASE_LIMIT:?}");
                return Err(failed(ErrorClass::Busy, self.what, cause));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

#[async_trait]
impl VolumeConnector for ImageDaemon {
    fn driver(&self) -> &str {
        DRIVER
    }

    /// Until somebody notes its sessions.
    fn fence(&self) -> Fence {
        Fence::None
    }

    fn identity(&self, id: &ExposureId) -> String {
        format!("daemon.{}.{}", id.uid, id.epoch)
    }

    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<Connection, PortError> {
        let what = format!("connecting volume {} for {} epoch {}", volume.handle, id.uid, id.epoch);
        if !names::is_valid_uid(&id.uid) {
            return Err(failed(ErrorClass::Invalid, &what, "its UID may hold letters, digits, - and _ only"));
        }
        let (image, source) = self.source(volume, &what)?;
        if volume.read_only {
            return Err(failed(ErrorClass::Unsupported, &what, "the daemon opens images for one writer only"));
        }
        let node = node(&image);
        let _turn = self.turn.lock().await;
        let talk = self.talk(&what);
        let held = talk.settle().await?;
        match (held.exports.get(id), held.user(&node)) {
            (Some(own), _) if *own == node => {}
            (Some(_), _) => return Err(failed(ErrorClass::Conflict, &what, "connected already, to another image")),
            (None, Some(other)) => {
                let cause = format!("{} epoch {} has it connected on this DPU", other.uid, other.epoch);
                return Err(failed(ErrorClass::Conflict, &what, cause));
            }
            (None, None) => talk.open(id, &node, &source).await?,
        }
        Ok(self.connection(id, talk.size(id).await?))
    }

    async fn import_refusal(&self) -> Option<String> {
        Some("QEMU's storage daemon opens these images, and the agent has no client for its exports".to_owned())
    }

    async fn list(&self) -> Result<Vec<Connection>, PortError> {
        let _turn = self.turn.lock().await;
        let talk = self.talk("listing the images of this DPU");
        let mut all = Vec::new();
        for id in talk.held().await?.exports.keys() {
            all.push(self.connection(id, talk.size(id).await?));
        }
        Ok(all)
    }

    async fn disconnect(&self, id: &ExposureId) -> Result<(), PortError> {
        let what = format!("disconnecting the volume of {} epoch {}", id.uid, id.epoch);
        let _turn = self.turn.lock().await;
        let talk = self.talk(&what);
        talk.hide(id).await?;
        talk.settle().await.map(drop)
    }
}
