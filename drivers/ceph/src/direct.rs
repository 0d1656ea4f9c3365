//! [`VolumeConnector`] for an emulator that has a client of Ceph itself: it is told where the image is.
//!
//! The emulator opens the image when the host gets power, by another session each time, long after `connect` answered. So
//! nobody can note the session before the first write, and the fence is None: a silent DPU's volume moves by docs/design/
//! fencing.md, *DpuIsDown*, only. To *connect* is to see that the image is there and to write down what was granted.

use crate::DRIVER;
use crate::clusters::Clusters;
use crate::noted::lost;
use crate::notes;
use crate::records::Records;
use async_trait::async_trait;
use planner::exposure::ExposureId;
use planner::target::RbdImage;
use ports::emulation::{Backend, RbdSource};
use ports::volume::{Connection, Fence, Volume};
use ports::{ErrorClass, PortError, VolumeConnector};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How old may be what is said of a size.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    id: ExposureId,
    cluster: String,
    pool: String,
    namespace: Option<String>,
    image: String,
    read_only: bool,
}

impl Record {
    fn image(&self) -> RbdImage {
        RbdImage {
            cluster_id: self.cluster.clone(),
            pool: self.pool.clone(),
            namespace: self.namespace.clone(),
            image: self.image.clone(),
        }
    }
}

pub struct Direct {
    clusters: Clusters,
    records: Records,
    look_again: Duration,
    /// Verbs run one after the other. The content: when an image's size was read, and what it was.
    sizes: Mutex<BTreeMap<ExposureId, (Instant, u64)>>,
}

impl Direct {
    /// `folder`: where a reboot of the DPU forgets.
    pub fn new(clusters: Clusters, folder: PathBuf) -> Self {
        Self { clusters, records: Records::new(folder), look_again: LOOK_AGAIN, sizes: Mutex::default() }
    }

    /// How old may be what is said of a size.
    #[must_use]
    pub fn looking_again_after(mut self, time: Duration) -> Self {
        self.look_again = time;
        self
    }

    fn connection(&self, record: Record, size_bytes: u64, what: &str) -> Result<Connection, PortError> {
        let cluster = self.clusters.cluster(&record.cluster, what)?;
        let source = RbdSource {
            pool: record.pool,
            namespace: record.namespace,
            image: record.image,
            user: cluster.user.clone(),
            config_file: cluster.config_file.clone(),
        };
        Ok(Connection { id: record.id, backend: Backend::Rbd(source), size_bytes })
    }

    /// What this DPU has connected already is not given to a second writer.
    fn check(&self, id: &ExposureId, image: &RbdImage, read_only: bool, what: &str) -> Result<(), PortError> {
        let conflict = |cause: String| Err(PortError::new(ErrorClass::Conflict, format!("{what}: {cause}")));
        let all: Vec<Record> = self.records.all().map_err(|error| lost(what, &error))?;
        for other in &all {
            let same = other.image() == *image;
            if other.id == *id && !same {
                return conflict(format!("connected already, to {}/{}", other.pool, other.image));
            }
            if other.id != *id && same && !(read_only && other.read_only) {
                return conflict(format!("{} epoch {} has it connected on this DPU", other.id.uid, other.id.epoch));
            }
        }
        Ok(())
    }
}

#[async_trait]
impl VolumeConnector for Direct {
    fn driver(&self) -> &str {
        DRIVER
    }

    fn fence(&self) -> Fence {
        Fence::None
    }

    /// Not that of a fence: no session is noted under it.
    fn identity(&self, id: &ExposureId) -> String {
        format!("emulator.{}.{}", id.uid, id.epoch)
    }

    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<Connection, PortError> {
        let what = format!("connecting volume {} for {} epoch {}", volume.handle, id.uid, id.epoch);
        if !notes::is_valid_uid(&id.uid) {
            let cause = "the UID may hold letters, digits, - and _ only";
            return Err(PortError::new(ErrorClass::Invalid, format!("{what}: {cause}")));
        }
        let image = self.clusters.image(volume, &what)?;
        let mut sizes = self.sizes.lock().await;
        self.check(id, &image, volume.read_only, &what)?;
        let size_bytes = self.clusters.info(&image, &what).await?.size;
        let record = Record {
            id: id.clone(),
            cluster: image.cluster_id,
            pool: image.pool,
            namespace: image.namespace,
            image: image.image,
            read_only: volume.read_only,
        };
        self.records.write(id, &record).map_err(|error| lost(&what, &error))?;
        sizes.insert(id.clone(), (Instant::now(), size_bytes));
        self.connection(record, size_bytes, &what)
    }

    /// An image that cannot be looked at has nothing behind it.
    async fn list(&self) -> Result<Vec<Connection>, PortError> {
        let what = "listing the images of this DPU";
        let mut sizes = self.sizes.lock().await;
        let all: Vec<Record> = self.records.all().map_err(|error| lost(what, &error))?;
        let mut listed = Vec::new();
        for record in all {
            let known = sizes.get(&record.id).filter(|(when, _)| when.elapsed() < self.look_again);
            let size_bytes = match known {
                Some((_, size)) => *size,
                None => self.clusters.info(&record.image(), what).await.map_or(0, |info| info.size),
            };
            if known.is_none() {
                sizes.insert(record.id.clone(), (Instant::now(), size_bytes));
            }
            listed.push(self.connection(record, size_bytes, what)?);
        }
        Ok(listed)
    }

    async fn import_refusal(&self) -> Option<String> {
        Some("QEMU opens these images itself, and the agent has no client for them".to_owned())
    }

    async fn disconnect(&self, id: &ExposureId) -> Result<(), PortError> {
        let what = format!("disconnecting the volume of {} epoch {}", id.uid, id.epoch);
        let mut sizes = self.sizes.lock().await;
        sizes.remove(id);
        self.records.remove(id).map_err(|error| lost(&what, &error))
    }
}
