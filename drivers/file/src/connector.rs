//! The port itself: each verb runs on a blocking thread with a time limit, since a pool on a network may hang.

use crate::fence;
use crate::publication;
use crate::records::{self, ConnectionRecord, Records, WriterRecord};
use crate::volume::{Located, Pools, is_name, links, locate};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use ports::emulation::Backend;
use ports::volume::{Connection, Fence, Volume};
use ports::{ErrorClass, PortError, VolumeConnector};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The CSI driver whose volumes these are.
pub const DRIVER: &str = "csi.metalplane.io";

/// After this the storage counts as unreachable; the thread that hangs is left to the kernel.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub struct FileConnector {
    pools: Pools,
    records: Records,
}

impl FileConnector {
    /// `pools` are directories by the name that the volume attribute `pool` has. `records` has to be forgotten by a
    /// reboot: `/run/metalplane/connections`. It is made if it is missing.
    pub fn new(pools: BTreeMap<String, PathBuf>, records: PathBuf) -> Self {
        Self { pools, records: Records::new(records) }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        what: String,
        step: impl FnOnce(&Self, &str) -> Result<T, PortError> + Send + 'static,
    ) -> Result<T, PortError> {
        let this = self.clone();
        blocking(what, move |what| step(&this, what)).await
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    what: String,
    step: impl FnOnce(&str) -> Result<T, PortError> + Send + 'static,
) -> Result<T, PortError> {
    let named = what.clone();
    let thread = tokio::task::spawn_blocking(move || step(&named));
    match tokio::time::timeout(LIMIT, thread).await {
        Ok(Ok(result)) => result,
        Ok(Err(join)) => Err(PortError::new(ErrorClass::Invalid, format!("{what}: {join}"))),
        Err(_) => {
            let cause = format!("the file system did not answer within {} s", LIMIT.as_secs());
            Err(PortError::new(ErrorClass::Unreachable, format!("{what}: {cause}")))
        }
    }
}

#[async_trait]
impl VolumeConnector for FileConnector {
    fn driver(&self) -> &str {
        DRIVER
    }

    fn fence(&self) -> Fence {
        Fence::OwnDriver
    }

    fn shared_credential(&self) -> Option<&'static str> {
        Some("the file pool is one filesystem: whoever mounts it reaches every volume in it")
    }

    fn identity(&self, id: &ExposureId) -> String {
        identity(id)
    }

    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<Connection, PortError> {
        let (id, volume) = (id.clone(), volume.clone());
        let what = format!("connecting volume {} for {} epoch {}", volume.handle, id.uid, id.epoch);
        self.blocking(what, move |this, what| connect(this, &id, &volume, what)).await
    }

    /// A connection whose file has vanished is listed with size 0: it may still be exposed, and leaving it out would
    /// say that it is not.
    async fn list(&self) -> Result<Vec<Connection>, PortError> {
        let what = "listing the connected volumes of the file pools".to_owned();
        self.blocking(what, |this, what| {
            let records = this.records.all().map_err(|error| failed(what, &error))?;
            records.iter().map(|record| connection(record, what)).collect()
        })
        .await
    }

    async fn disconnect(&self, id: &ExposureId) -> Result<(), PortError> {
        let id = id.clone();
        let what = format!("disconnecting the volume of {} epoch {}", id.uid, id.epoch);
        self.blocking(what, move |this, what| {
            check_id(&id, what)?;
            disconnect(this, &id).map_err(|error| failed(what, &error))
        })
        .await
    }
}

pub(crate) fn identity(id: &ExposureId) -> String {
    format!("metalplane-{}-{}", id.uid, id.epoch)
}

/// `None`: it is none of ours.
pub(crate) fn parse_identity(identity: &str) -> Option<ExposureId> {
    let (uid, epoch) = identity.strip_prefix("metalplane-")?.rsplit_once('-')?;
    is_name(uid).then_some(())?;
    Some(ExposureId { uid: uid.to_owned(), epoch: epoch.parse().ok()? })
}

fn refused(what: &str, cause: impl AsRef<str>) -> PortError {
    PortError::new(ErrorClass::Conflict, format!("{what}: {}", cause.as_ref()))
}

pub(crate) fn failed(what: &str, error: &io::Error) -> PortError {
    let class = match error.kind() {
        io::ErrorKind::NotFound => ErrorClass::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorClass::Unauthorized,
        io::ErrorKind::InvalidData => ErrorClass::Invalid,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ResourceBusy => ErrorClass::Busy,
        _ => ErrorClass::Unreachable,
    };
    PortError::new(class, format!("{what}: {error}"))
}

fn check_id(id: &ExposureId, what: &str) -> Result<(), PortError> {
    if is_name(&id.uid) {
        return Ok(());
    }
    Err(PortError::new(ErrorClass::Invalid, format!("{what}: the UID is not 1 to 64 of a-z, 0-9 and -")))
}

fn connect(this: &FileConnector, id: &ExposureId, volume: &Volume, what: &str) -> Result<Connection, PortError> {
    let io = |error: io::Error| failed(what, &error);
    check_id(id, what)?;
    let located = locate(volume, &this.pools)?;
    regular_file_size(&located.disk()).map_err(io)?;
    let record = ConnectionRecord {
        id: id.into(),
        handle: volume.handle.clone(),
        identity: identity(id),
        disk: if volume.read_only { located.disk() } else { located.new_link(&identity(id)) },
        writer: located.writer(),
        read_only: volume.read_only,
    };

    let _lock = this.records.lock().map_err(io)?;
    check_fence(id, &located, &record, what)?;
    if let Some(there) = this.records.get(id).map_err(io)? {
        if (&there.writer, there.read_only) != (&record.writer, record.read_only) {
            let cause = format!("connected already, to {} (read-only: {})", there.handle, there.read_only);
            return Err(refused(what, cause));
        }
        return connection(&there, what);
    }
    if record.read_only {
        take_reader_file(&located, &record, what)?;
    } else {
        let all = this.records.all().map_err(io)?;
        if let Some(other) = all.iter().find(|other| other.writer == record.writer && !other.read_only) {
            let cause = format!("{} epoch {} has it connected read-write on this DPU", other.id.uid, other.id.epoch);
            return Err(refused(what, cause));
        }
        take_writer_record(id, &located, &record, what)?;
    }
    records::write(&this.records.path(id), &record).map_err(io)?;
    connection(&record, what)
}

fn check_fence(id: &ExposureId, located: &Located, record: &ConnectionRecord, what: &str) -> Result<(), PortError> {
    if record.read_only || !fence::refuses(located, id).map_err(|error| failed(what, &error))? {
        return Ok(());
    }
    let cause = format!("the volume refuses {}: it was fenced", record.identity);
    Err(PortError::new(ErrorClass::Unauthorized, format!("{what}: {cause}")))
}

/// Refuses a volume that somebody writes.
fn take_reader_file(located: &Located, record: &ConnectionRecord, what: &str) -> Result<(), PortError> {
    let io = |error: io::Error| failed(what, &error);
    // Held against the CSI driver, the other DPUs and a fence until this function returns.
    let _pool = publication::lock(located).map_err(io)?;
    no_node(located, true, what)?;
    if let Some(writer) = records::read::<WriterRecord>(&record.writer).map_err(io)? {
        return Err(in_the_way(what, format!("{} writes the volume", writer.identity), &record.writer));
    }
    publication::write_reader(located, &record.identity).map_err(io)
}

fn no_node(located: &Located, reads: bool, what: &str) -> Result<(), PortError> {
    let Some(node) = publication::node(located, reads).map_err(|error| failed(what, &error))? else { return Ok(()) };
    let registration = located.registration(&node).unwrap_or_default();
    let cause = format!(
        "node {node} has the volume, for a pod; end the pod, or if the node is gone for good, remove {}",
        registration.display()
    );
    Err(PortError::new(ErrorClass::Busy, format!("{what}: {cause}")))
}

/// Another DPU's connection.
fn in_the_way(what: &str, who: String, record: &Path) -> PortError {
    let cause = format!(
        "{who}, for a machine; detach it there, or if no DiskAttachment has that UID any more, remove {}",
        record.display()
    );
    PortError::new(ErrorClass::Busy, format!("{what}: {cause}"))
}

/// Refuses a volume that a node or a reader has, and an epoch that is older than the last writer's, or equal to it under another
/// UID. Makes the writer's own name of the image.
fn take_writer_record(
    id: &ExposureId,
    located: &Located,
    record: &ConnectionRecord,
    what: &str,
) -> Result<(), PortError> {
    let io = |error: io::Error| failed(what, &error);
    // Held against the CSI driver, the other DPUs and a fence until this function returns.
    let _pool = publication::lock(located).map_err(io)?;
    let directory = fs::File::open(located.folder()).map_err(io)?;
    directory.lock().map_err(io)?;
    check_fence(id, located, record, what)?;
    no_node(located, false, what)?;
    if let Some(reader) = publication::reader(located).map_err(io)? {
        let who = reader.extension().unwrap_or_default().to_string_lossy();
        return Err(in_the_way(what, format!("{who} reads the volume"), &reader));
    }
    if let Some(last) = records::read::<WriterRecord>(&record.writer).map_err(io)?
        && (last.id.epoch > id.epoch || (last.id.epoch == id.epoch && last.id.uid != id.uid))
    {
        let cause = format!(
            "its last writer, {} epoch {}, was granted it later; if the VolumeHold says otherwise, remove {}",
            last.id.uid,
            last.id.epoch,
            record.writer.display()
        );
        return Err(refused(what, cause));
    }
    let writer = WriterRecord { id: id.into(), identity: record.identity.clone() };
    records::write(&record.writer, &writer).map_err(io)?;
    let link = &record.disk;
    fs::create_dir_all(link.parent().unwrap_or(Path::new("/"))).map_err(io)?;
    // Of connects that were interrupted.
    located.links(&record.identity).map_err(io)?.iter().try_for_each(|left| records::remove(left)).map_err(io)?;
    fs::hard_link(located.disk(), link).map_err(io)
}

/// The connection record goes last: if this is interrupted, it is found and done again.
fn disconnect(this: &FileConnector, id: &ExposureId) -> io::Result<()> {
    let all = &this.records;
    let _lock = all.lock()?;
    let record = all.get(id)?;
    if record.as_ref().is_none_or(|record| record.read_only) {
        this.pools.values().try_for_each(|pool| publication::forget_reader(pool, &identity(id)))?;
    }
    let Some(record) = record else {
        return Ok(());
    };
    if let Some(folder) = writers(&record) {
        links(folder, &record.identity)?.iter().try_for_each(|link| records::remove(link))?;
    }
    if !record.read_only
        && let Some(last) = records::read::<WriterRecord>(&record.writer)?
        && last.id == record.id
    {
        records::remove(&record.writer)?;
    }
    records::remove(&all.path(id))
}

/// Where a writer's own names are. None of a record that an agent made before writers had them.
fn writers(record: &ConnectionRecord) -> Option<&Path> {
    record.disk.parent().filter(|folder| !record.read_only && folder.ends_with("writers"))
}

fn connection(record: &ConnectionRecord, what: &str) -> Result<Connection, PortError> {
    let size_bytes = match regular_file_size(&record.disk) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        size => size.map_err(|error| failed(what, &error))?,
    };
    Ok(Connection { id: (&record.id).into(), backend: Backend::Path(record.disk.clone()), size_bytes })
}

/// Never through a symbolic link: a volume is in its pool or it is not a volume.
fn regular_file_size(disk: &Path) -> io::Result<u64> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", disk.display()));
    let directory = disk.parent().unwrap_or(Path::new("/"));
    if !fs::symlink_metadata(directory).map_err(named)?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} is no directory", directory.display())));
    }
    let metadata = fs::symlink_metadata(disk).map_err(named)?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} is no regular file", disk.display())));
    }
    Ok(metadata.len())
}
