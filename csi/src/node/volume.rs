//! The six things a node does with a volume. Each looks at what is there first: calling it again changes nothing.

use super::{
    command::CommandError,
    filesystem::{self, Content},
    loop_device::LoopDevice,
    mounts::{self, Mount, MountError},
};
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// How long whoever looks at a device (udev, a prober) may keep it after it was detached.
const DETACH_DEADLINE: Duration = Duration::from_secs(10);

/// What a volume is shown as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Block,
    /// An empty type means: what is there, or else the default.
    Filesystem {
        kind: String,
        options: Vec<String>,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum StageError {
    #[error("{staging} is taken by another mount: unstage that first")]
    Taken { staging: String },
    #[error("the volume is attached read-only: {0}; unstage it before staging it otherwise")]
    Attached(bool),
    #[error("the volume holds {found}, not {asked}: use volumeMode Block, or another volume")]
    Content { found: String, asked: String },
    #[error("the volume is blank and read-only: there is no filesystem to mount")]
    BlankReadOnly,
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Mount(#[from] MountError),
}

#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("the volume is not staged at {0}")]
    NotStaged(String),
    #[error("{target} shows another volume, or this one with read-only: {read_only}")]
    Incompatible { target: String, read_only: bool },
    #[error("the volume is for a single writer, and {0} has it")]
    SecondTarget(String),
    #[error(
        "the block device is writable: publish it read-only to the node (PersistentVolume spec.csi.readOnly) instead"
    )]
    WritableDevice,
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Mount(#[from] MountError),
}

#[derive(Debug, thiserror::Error)]
pub enum TakeDownError {
    #[error("{0} is still open or mounted: unpublish the volume everywhere on this node first")]
    InUse(String),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Mount(#[from] MountError),
}

#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    #[error("the volume is not attached to this node")]
    NotAttached,
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Mount(#[from] MountError),
}

#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    #[error("the volume is not at {0}")]
    NotThere(String),
    #[error("cannot ask the free space of {path}: {cause}")]
    Io { path: String, cause: std::io::Error },
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Mount(#[from] MountError),
}

/// How full a filesystem is; of a block device nothing is known but its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stats {
    Block,
    Filesystem { bytes: Usage, inodes: Usage },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub total: u64,
    pub available: u64,
    pub used: u64,
}

/// Attaches the image, and mounts its filesystem at the staging path.
pub fn stage(image: &Path, target: &Target, read_only: bool, staging: &Path) -> Result<(), StageError> {
    let device = LoopDevice::attach(image, read_only)?;
    if device.read_only != read_only {
        return Err(StageError::Attached(device.read_only));
    }
    // It may have been attached before the volume grew.
    device.take_new_size()?;
    let Target::Filesystem { kind, options } = target else { return Ok(()) };
    match mounts::top(staging)? {
        Some(mount) if shows(&mount, &device) => return Ok(()),
        Some(_) => return Err(StageError::Taken { staging: staging.display().to_string() }),
        None => {}
    }
    let default = if kind.is_empty() { filesystem::default_type() } else { kind };
    let kind = match filesystem::content(&device.path)? {
        Content::Blank if read_only => return Err(StageError::BlankReadOnly),
        Content::Blank => {
            filesystem::make(&device.path, default)?;
            default.to_owned()
        }
        Content::Filesystem(found) if kind.is_empty() || found == *kind => found,
        Content::Filesystem(found) | Content::Other(found) => {
            return Err(StageError::Content { found, asked: default.into() });
        }
    };
    mounts::make_folder(staging)?;
    let mut options = options.clone();
    options.extend(read_only.then(|| "ro".into()));
    filesystem::mount(&device.path, &kind, &options, staging)?;
    if !read_only {
        // A clone may be larger than the filesystem that it is a copy of.
        filesystem::grow(&device.path, &kind, staging)?;
    }
    Ok(())
}

/// Unmounts and detaches; also after the volume was deleted. Without a device nothing at the path can be this volume's.
pub fn unstage(image: &Path, staging: &Path) -> Result<(), TakeDownError> {
    let Some(device) = LoopDevice::find(image)? else { return Ok(()) };
    while mounts::top(staging)?.is_some_and(|mount| shows(&mount, &device)) {
        mounts::unmount_top(staging)?;
    }
    device.detach()?;
    // Whoever still has the device open keeps the image open: only when it is gone may another node have the volume.
    let deadline = Instant::now() + DETACH_DEADLINE;
    while LoopDevice::find(image)?.is_some() {
        if Instant::now() > deadline {
            return Err(TakeDownError::InUse(device.path.display().to_string()));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Shows a staged volume at a target path.
pub fn publish(
    image: &Path,
    target: &Target,
    read_only: bool,
    single_writer: bool,
    staging: &Path,
    path: &Path,
) -> Result<(), PublishError> {
    let not_staged = || PublishError::NotStaged(staging.display().to_string());
    let device = LoopDevice::find(image)?.ok_or_else(not_staged)?;
    if let Some(present) = mounts::top(path)? {
        if shows(&present, &device) && (present.read_only == read_only || device.read_only) {
            return Ok(());
        }
        return Err(PublishError::Incompatible { target: path.display().to_string(), read_only: present.read_only });
    }
    if single_writer {
        let other = |mount: &Mount| shows(mount, &device) && mount.point != staging;
        if let Some(other) = mounts::all()?.into_iter().find(other) {
            return Err(PublishError::SecondTarget(other.point.display().to_string()));
        }
    }
    match target {
        // A read-only mount of a device node does not keep anybody from writing to the device.
        Target::Block if read_only && !device.read_only => return Err(PublishError::WritableDevice),
        Target::Block => {
            mounts::make_file(path)?;
            mounts::bind(&device.path, path, false)?;
        }
        Target::Filesystem { .. } => {
            if !mounts::top(staging)?.is_some_and(|mount| shows(&mount, &device)) {
                return Err(not_staged());
            }
            mounts::make_folder(path)?;
            mounts::bind(staging, path, read_only)?;
        }
    }
    Ok(())
}

pub fn unpublish(path: &Path) -> Result<(), TakeDownError> {
    Ok(mounts::take_away(path)?)
}

/// Tells the loop device and the filesystem on it that the image has grown.
pub fn expand(image: &Path, path: &Path) -> Result<(), ExpandError> {
    let device = LoopDevice::find(image)?.ok_or(ExpandError::NotAttached)?;
    device.take_new_size()?;
    let mounted = mounts::top(path)?.is_some_and(|mount| shows(&mount, &device)) && path.is_dir();
    if mounted && let Content::Filesystem(kind) = filesystem::content(&device.path)? {
        filesystem::grow(&device.path, &kind, path)?;
    }
    Ok(())
}

pub fn stats(image: &Path, path: &Path) -> Result<Stats, StatsError> {
    let there = match LoopDevice::find(image)? {
        Some(device) => mounts::top(path)?.is_some_and(|mount| shows(&mount, &device)),
        None => false,
    };
    if !there {
        return Err(StatsError::NotThere(path.display().to_string()));
    }
    if !path.is_dir() {
        return Ok(Stats::Block);
    }
    let stat = rustix::fs::statvfs(path)
        .map_err(|cause| StatsError::Io { path: path.display().to_string(), cause: cause.into() })?;
    let usage = |total: u64, free: u64, available: u64, unit: u64| Usage {
        total: total * unit,
        available: available * unit,
        used: total.saturating_sub(free) * unit,
    };
    Ok(Stats::Filesystem {
        bytes: usage(stat.f_blocks, stat.f_bfree, stat.f_bavail, stat.f_frsize),
        inodes: usage(stat.f_files, stat.f_ffree, stat.f_favail, 1),
    })
}

fn shows(mount: &Mount, device: &LoopDevice) -> bool {
    mount.loop_device.as_deref() == Some(device.name())
}
