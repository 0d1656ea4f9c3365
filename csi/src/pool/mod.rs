//! One pool: a folder of raw images and their records. Synchronous, knows nothing of gRPC.
//!
//! Readers take no lock: every record and every folder appears by a rename. Whoever changes something holds the pool's
//! lock, which also makes it safe to remove a `.tmp-` folder: no living process is building it.

mod files;
mod groups;
mod handle;
mod health;
mod nodes;
mod record;
mod size;
mod snapshots;
mod volumes;

pub use api::Limits;
pub use files::Fault;
pub use groups::GroupError;
pub use handle::Handle;
pub use health::{Ailment, Gravity};
pub use nodes::is_node_id;
pub use record::{ContentSource, Group, Publication, Snapshot, Volume, VolumeRecord};
pub use size::{Range, SizeError};
pub use snapshots::{DeleteSnapshotError, SnapshotError};
pub use volumes::{CreateError, DeleteError, ExpandError, ModifyError, UseError};

use files::{Filesystem, Lock, Reflink};
use std::path::{Path, PathBuf};

/// What every image is called, and the records.
const IMAGE: &str = "disk.img";
const VOLUME_RECORD: &str = "volume.json";
const SNAPSHOT_RECORD: &str = "snapshot.json";
const GROUP_RECORD: &str = "group.json";
/// Beside the image while a DPU has it as a machine's disk; the agent's file connector writes it.
const WRITER_RECORD: &str = "writer.json";
/// What a folder is called while it is being made or removed.
pub(crate) const UNFINISHED: &str = ".tmp-";

#[derive(Debug, Clone)]
pub struct Pool {
    name: String,
    dir: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("pool {name}: {dir} is not a folder: mount the pool's filesystem there, or correct --pool")]
    Absent { name: String, dir: PathBuf },
    #[error(
        "pool {name}: {dir} is on {filesystem}, which cannot share blocks between files; \
         put the pool on XFS (mkfs.xfs -m reflink=1, the default) or btrfs"
    )]
    NoReflink { name: String, dir: PathBuf, filesystem: String },
    #[error("pool {name}: {fault}")]
    Io { name: String, fault: Fault },
}

/// Bytes, as the filesystem reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub total: u64,
    pub available: u64,
}

impl Pool {
    /// Refuses a filesystem without reflinks, makes the pool's folders and removes what a crash left unfinished.
    pub fn open(name: &str, dir: &Path) -> Result<Pool, OpenError> {
        if !dir.is_dir() {
            return Err(OpenError::Absent { name: name.into(), dir: dir.into() });
        }
        let pool = Pool { name: name.into(), dir: dir.into() };
        let io = |fault| OpenError::Io { name: name.into(), fault };
        let _lock = pool.lock().map_err(io)?;
        match files::probe_reflink(dir).map_err(io)? {
            Reflink::Works => {}
            Reflink::Refused => {
                let filesystem = Filesystem::of(dir).map_err(io)?.to_string();
                return Err(OpenError::NoReflink { name: name.into(), dir: dir.into(), filesystem });
            }
        }
        for folder in [pool.volumes_dir(), pool.snapshots_dir(), pool.groups_dir(), pool.nodes_dir()] {
            files::make_folder(&folder).map_err(io)?;
            for left in files::names(&folder).map_err(io)?.iter().filter(|name| name.starts_with(UNFINISHED)) {
                let path = folder.join(left);
                tracing::info!(path = %path.display(), "removing what a crash left unfinished");
                files::remove(&path).map_err(io)?;
            }
        }
        files::sync_folder(dir).map_err(io)?;
        Ok(pool)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn capacity(&self) -> Result<Capacity, Fault> {
        files::capacity(&self.dir)
    }

    /// Where the image of a volume is, whether it exists or not.
    pub fn image(&self, handle: &Handle) -> PathBuf {
        self.volumes_dir().join(handle.as_str()).join(IMAGE)
    }

    fn volumes_dir(&self) -> PathBuf {
        self.dir.join("volumes")
    }

    fn snapshots_dir(&self) -> PathBuf {
        self.dir.join("snapshots")
    }

    fn groups_dir(&self) -> PathBuf {
        self.dir.join("groups")
    }

    fn nodes_dir(&self) -> PathBuf {
        self.dir.join("nodes")
    }

    fn lock(&self) -> Result<Lock, Fault> {
        Lock::take(&self.dir.join(".lock"))
    }

    /// The handles (or snapshot ids) below a folder, in order. Only what [`Handle`] could have made.
    fn handles(&self, folder: &Path) -> Result<Vec<Handle>, Fault> {
        let mut handles: Vec<Handle> = files::names(folder)?.iter().filter_map(|name| Handle::parse(name)).collect();
        handles.sort();
        Ok(handles)
    }
}
