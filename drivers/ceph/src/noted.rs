//! [`VolumeConnector`] around another one that opens images, each under a session of its own with the cluster: which
//! session that is gets noted at the image before `connect` answers.
//!
//! The session is found by looking who has the image open, before and after. A provisioner that opens it for a moment just
//! then is waited for. An attempt that was interrupted in between has no record here, and is begun anew.

use crate::clusters::Clusters;
use crate::header::{Header, Place};
use crate::notes::{self, Writer};
use crate::records::Records;
use async_trait::async_trait;
use futures::StreamExt;
use planner::exposure::ExposureId;
use ports::volume::{Connection, Fence, Volume, VolumeWriter};
use ports::{ErrorClass, PortError, VolumeConnector};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// For those that open an image for a moment only. A lost host's session lasts 30 s.
const ALONE_WITHIN: Duration = Duration::from_secs(40);
const LOOK: Duration = Duration::from_millis(250);
/// Nothing rests on it: the cluster refuses by itself, and here it is only told.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Each is a process, and a DPU has little memory.
const LOOKS_AT_A_TIME: usize = 4;

/// Written when the session has been noted at the image; removed before another is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    id: ExposureId,
    place: Place,
    session: String,
}

impl Record {
    fn writer(&self) -> Writer {
        Writer { id: self.id.clone(), address: self.session.clone() }
    }
}

pub struct Noted<C> {
    inner: C,
    clusters: Clusters,
    records: Records,
    look_again: Duration,
    /// Verbs run one after the other. The content: when was looked whether a session is there, and was it?
    seen: Mutex<BTreeMap<ExposureId, (Instant, bool)>>,
}

impl<C: VolumeConnector> Noted<C> {
    /// `inner` opens each image by a session of its own. `folder`: where a reboot of the DPU forgets.
    pub fn new(inner: C, clusters: Clusters, folder: PathBuf) -> Self {
        Self { inner, clusters, records: Records::new(folder), look_again: LOOK_AGAIN, seen: Mutex::default() }
    }

    /// How old may be what is said of a connection.
    #[must_use]
    pub fn looking_again_after(mut self, time: Duration) -> Self {
        self.look_again = time;
        self
    }

    async fn is_connected(&self, id: &ExposureId) -> Result<bool, PortError> {
        Ok(self.inner.list().await?.iter().any(|connection| connection.id == *id))
    }

    /// Connects, and answers with who it is that came.
    async fn open(
        &self,
        id: &ExposureId,
        volume: &Volume,
        header: &Header<'_>,
        what: &str,
    ) -> Result<Connection, PortError> {
        let before = header.watchers().await?;
        let connection = self.inner.connect(id, volume).await?;
        match self.take_down(id, header, &before, what).await {
            Ok(()) => Ok(connection),
            Err(error) => {
                self.inner.disconnect(id).await?;
                Err(error)
            }
        }
    }

    async fn take_down(
        &self,
        id: &ExposureId,
        header: &Header<'_>,
        before: &BTreeSet<String>,
        what: &str,
    ) -> Result<(), PortError> {
        let session = who_came(header, before, what).await?;
        let record = Record { id: id.clone(), place: header.place.clone(), session };
        header.note(&record.writer().note()).await?;
        // A fence that did not see the session is seen here.
        refused(header, id, what).await?;
        self.records.write(id, &record).map_err(|error| lost(what, &error))
    }

    /// Whether its session still has the image open: one that was refused has not.
    async fn is_there(&self, record: &Record) -> bool {
        let what = format!("looking for the session of {} epoch {}", record.id.uid, record.id.epoch);
        let Ok(cluster) = self.clusters.cluster(&record.place.cluster, &what) else { return false };
        let header = Header::new(&self.clusters, record.place.clone(), cluster, &what);
        match header.watchers().await {
            Ok(watchers) => watchers.contains(&record.session),
            Err(error) => {
                tracing::warn!(%error, "a session's image cannot be looked at");
                false
            }
        }
    }

    /// With nothing behind it, if its session is gone.
    async fn describe(&self, connection: Connection, seen: Option<(Instant, bool)>) -> (Connection, (Instant, bool)) {
        let recent = seen.filter(|(when, _)| when.elapsed() < self.look_again);
        let seen = match (recent, self.records.read::<Record>(&connection.id)) {
            (Some(seen), _) => seen,
            (None, Ok(Some(record))) => (Instant::now(), self.is_there(&record).await),
            (None, _) => (Instant::now(), false),
        };
        let size_bytes = if seen.1 { connection.size_bytes } else { 0 };
        (Connection { size_bytes, ..connection }, seen)
    }
}

async fn refused(header: &Header<'_>, id: &ExposureId, what: &str) -> Result<(), PortError> {
    if header.notes().await?.refuse(id.epoch) {
        let cause = format!("epoch {} was fenced: the image refuses it and all before it for ever", id.epoch);
        return Err(PortError::new(ErrorClass::Unauthorized, format!("{what}: {cause}")));
    }
    Ok(())
}

async fn who_came(header: &Header<'_>, before: &BTreeSet<String>, what: &str) -> Result<String, PortError> {
    let begun = Instant::now();
    loop {
        let now = header.watchers().await?;
        let mut came = now.difference(before);
        match (came.next(), came.next()) {
            (Some(only), None) => return Ok(only.clone()),
            (first, _) if begun.elapsed() > ALONE_WITHIN => {
                let cause = match first {
                    Some(_) => "several others opened the image at the same time, and have it open still",
                    None => "the image is connected, and nobody has it open",
                };
                return Err(PortError::new(ErrorClass::Busy, format!("{what}: {cause}")));
            }
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

pub(crate) fn lost(what: &str, error: &io::Error) -> PortError {
    PortError::new(ErrorClass::Busy, format!("{what}: its record: {error}"))
}

#[async_trait]
impl<C: VolumeConnector> VolumeConnector for Noted<C> {
    fn driver(&self) -> &str {
        self.inner.driver()
    }

    fn fence(&self) -> Fence {
        Fence::CephBlocklist
    }

    fn shared_credential(&self) -> Option<&'static str> {
        self.inner.shared_credential()
    }

    fn identity(&self, id: &ExposureId) -> String {
        notes::identity(id)
    }

    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<Connection, PortError> {
        let what = format!("connecting volume {} for {} epoch {}", volume.handle, id.uid, id.epoch);
        if volume.read_only || !notes::is_valid_uid(&id.uid) {
            return self.inner.connect(id, volume).await;
        }
        let mut seen = self.seen.lock().await;
        let header = self.clusters.header(volume, &what).await?;
        refused(&header, id, &what).await?;
        let record: Option<Record> = self.records.read(id).map_err(|error| lost(&what, &error))?;
        match (self.is_connected(id).await?, record) {
            (true, Some(_)) => return self.inner.connect(id, volume).await,
            // Begun by a call that was interrupted: nobody knows its session, and nothing was shown to the host.
            (true, None) => self.inner.disconnect(id).await?,
            // Of a target that has ended.
            (false, _) => self.records.remove(id).map_err(|error| lost(&what, &error))?,
        }
        seen.remove(id);
        self.open(id, volume, &header, &what).await
    }

    async fn list(&self) -> Result<Vec<Connection>, PortError> {
        let mut seen = self.seen.lock().await;
        let all = self.inner.list().await?;
        let before = std::mem::take(&mut *seen);
        let looks: Vec<_> = all
            .into_iter()
            .map(|connection| {
                let known = before.get(&connection.id).copied();
                self.describe(connection, known)
            })
            .collect();
        let described: Vec<_> = futures::stream::iter(looks).buffered(LOOKS_AT_A_TIME).collect().await;
        seen.extend(described.iter().map(|(connection, seen)| (connection.id.clone(), *seen)));
        Ok(described.into_iter().map(|(connection, _)| connection).collect())
    }

    async fn import_refusal(&self) -> Option<String> {
        self.inner.import_refusal().await
    }

    async fn open_writer(&self, id: &ExposureId) -> Result<Box<dyn VolumeWriter>, PortError> {
        self.inner.open_writer(id).await
    }

    async fn close_writer(&self, id: &ExposureId) -> Result<(), PortError> {
        self.inner.close_writer(id).await
    }

    async fn disconnect(&self, id: &ExposureId) -> Result<(), PortError> {
        let what = format!("disconnecting the volume of {} epoch {}", id.uid, id.epoch);
        let mut seen = self.seen.lock().await;
        self.inner.disconnect(id).await?;
        seen.remove(id);
        let record: Option<Record> = self.records.read(id).map_err(|error| lost(&what, &error))?;
        let Some(record) = record else { return Ok(()) };
        let cluster = self.clusters.cluster(&record.place.cluster, &what)?;
        let header = Header::new(&self.clusters, record.place.clone(), cluster, &what);
        if let Err(error) = header.forget(&record.writer().note()).await {
            // A fence of this epoch then refuses a session that has ended.
            tracing::warn!(%error, "the note of a session stays at its image");
        }
        self.records.remove(id).map_err(|error| lost(&what, &error))
    }
}
