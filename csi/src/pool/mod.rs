//! One pool: a folder of records, and the blocks that they are about ([`blocks`]): raw images beside them, or logical volumes on a
//! storage node. Synchronous, knows nothing of gRPC.
//!
//! Readers take no lock: every record and every folder appears by a rename. Whoever changes something holds the pool's
//! lock, which also makes it safe to remove a `.tmp-` folder: no living process is building it.

mod blocks;
mod files;
mod groups;
mod handle;
mod health;
mod images;
mod lvols;
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
pub use lvols::LvolPlace;
pub use nodes::is_node_id;
pub use record::{ContentSource, Group, Publication, Snapshot, Volume, VolumeRecord};
pub use size::{Range, SizeError};
pub use snapshots::{DeleteSnapshotError, SnapshotError};
pub use volumes::{CreateError, DeleteError, ExpandError, ModifyError, OfMachine, UseError};

use blocks::{Blocks, Origin};
use files::{Filesystem, Lock, Reflink};
use images::Images;
use lvols::Lvols;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// What every image is called, and the records.
const IMAGE: &str = "disk.img";
const VOLUME_RECORD: &str = "volume.json";
const SNAPSHOT_RECORD: &str = "snapshot.json";
const GROUP_RECORD: &str = "group.json";
/// Beside the image while a DPU has it as a machine's disk; the agent's file connector writes it.
const WRITER_RECORD: &str = "writer.json";
/// The folder with a file `<handle>.<identity>` per DPU that has a volume as a machine's read-only disk; the connector's too.
const READERS: &str = "readers";
/// What a folder is called while it is being made or removed.
pub(crate) const UNFINISHED: &str = ".tmp-";

#[derive(Debug, Clone)]
pub struct Pool {
    name: String,
    dir: PathBuf,
    blocks: Arc<dyn Blocks>,
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

/// Bytes, as the storage reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub total: u64,
    pub available: u64,
}

impl Pool {
    /// A file pool. Refuses a filesystem without reflinks, makes the pool's folders and removes what a crash left unfinished.
    pub fn open(name: &str, dir: &Path) -> Result<Pool, OpenError> {
        if !dir.is_dir() {
            return Err(OpenError::Absent { name: name.into(), dir: dir.into() });
        }
        let pool = Pool { name: name.into(), dir: dir.into(), blocks: Arc::new(Images { dir: dir.into() }) };
        let io = |fault| OpenError::Io { name: name.into(), fault };
        let lock = pool.lock().map_err(io)?;
        match files::probe_reflink(dir).map_err(io)? {
            Reflink::Works => {}
            Reflink::Refused => {
                let filesystem = Filesystem::of(dir).map_err(io)?.to_string();
                return Err(OpenError::NoReflink { name: name.into(), dir: dir.into(), filesystem });
            }
        }
        pool.make_folders().map_err(io)?;
        drop(lock);
        Ok(pool)
    }

    /// An lvol pool, its records in `dir`. The storage node is not asked yet. Must be called inside a tokio runtime, and the pool
    /// is used outside of one.
    pub fn open_lvols(name: &str, dir: &Path, place: LvolPlace) -> Result<Pool, OpenError> {
        let io = |fault| OpenError::Io { name: name.into(), fault };
        files::make_folder(dir).map_err(io)?;
        let pool = Pool { name: name.into(), dir: dir.into(), blocks: Arc::new(Lvols::new(place, dir)) };
        let lock = pool.lock().map_err(io)?;
        pool.make_folders().and_then(|()| files::make_folder(&Lvols::gone_dir(dir))).map_err(io)?;
        drop(lock);
        Ok(pool)
    }

    fn make_folders(&self) -> Result<(), Fault> {
        for folder in [self.volumes_dir(), self.snapshots_dir(), self.groups_dir(), self.nodes_dir()] {
            files::make_folder(&folder)?;
            for left in files::names(&folder)?.iter().filter(|name| name.starts_with(UNFINISHED)) {
                let path = folder.join(left);
                tracing::info!(path = %path.display(), "removing what a crash left unfinished");
                files::remove(&path)?;
            }
        }
        files::sync_folder(&self.dir)
    }

    /// Volumes are files, which nodes open.
    pub fn are_files(&self) -> bool {
        self.blocks.are_files()
    }

    /// Puts right what a restart of the storage left otherwise than it is on record, and removes what nothing needs any more.
    /// `anew`: this process has just started.
    pub fn tend(&self, anew: bool) -> Result<(), Fault> {
        let _lock = self.lock()?;
        for volume in self.volumes()? {
            self.blocks.tend(&volume, self.volume_dir(&volume.handle))?;
        }
        self.blocks.sweep(anew)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn capacity(&self) -> Result<Capacity, Fault> {
        self.blocks.capacity()
    }

    /// What whoever opens a volume needs besides pool and handle.
    pub fn context(&self, volume: &Volume) -> Vec<(&'static str, String)> {
        self.blocks.context(volume)
    }

    /// Where the image of a volume of a file pool is, whether it exists or not.
    pub fn image(&self, handle: &Handle) -> PathBuf {
        self.volume_dir(handle).join(IMAGE)
    }

    fn volume_dir(&self, handle: &Handle) -> PathBuf {
        self.volumes_dir().join(handle.as_str())
    }

    fn as_origin(&self, volume: &Volume) -> Origin {
        let (id, folder) = (volume.handle.clone(), self.volume_dir(&volume.handle));
        Origin { id, is_snapshot: false, folder, size_bytes: volume.record.size_bytes }
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
