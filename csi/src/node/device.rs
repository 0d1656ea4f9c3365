//! A block device, and how it is shown: its filesystem mounted once at a staging path and bound from there to each target, or
//! its node bound to each. Each step looks at what is there first: calling it again changes nothing.

use super::{
    command::{CommandError, run},
    filesystem::{self, Content},
    mounts::{self, Mount, MountError},
};
use crate::pool::{Ailment, Gravity};
use std::{
    ffi::OsStr,
    io::ErrorKind,
    path::{Path, PathBuf},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub path: PathBuf,
    pub read_only: bool,
}

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

/// The device that is seen at a path.
pub fn mounted_at(path: &Path) -> Result<Option<Device>, MountError> {
    let mount = mounts::top(path)?;
    Ok(mount.and_then(|mount| Some(Device { path: Path::new("/dev").join(mount.device?), read_only: mount.read_only })))
}

impl Device {
    /// `loop7`: what mounts of it are called.
    pub(super) fn name(&self) -> &str {
        self.path.file_name().and_then(OsStr::to_str).unwrap_or_default()
    }

    pub fn size(&self) -> Result<u64, CommandError> {
        let answer = run("blockdev", &["--getsize64".as_ref(), self.path.as_ref()])?;
        answer.parse().map_err(|_| CommandError::Answer { program: "blockdev", answer })
    }

    /// Makes a filesystem on a device that is blank, and mounts it at the staging path. A block volume needs nothing.
    pub fn stage(&self, target: &Target, read_only: bool, staging: &Path) -> Result<(), StageError> {
        let Target::Filesystem { kind, options } = target else { return Ok(()) };
        match mounts::top(staging)? {
            Some(mount) if self.is_shown_by(&mount) => return Ok(()),
            Some(_) => return Err(StageError::Taken { staging: staging.display().to_string() }),
            None => {}
        }
        let default = if kind.is_empty() { filesystem::default_type() } else { kind };
        let kind = match filesystem::content(&self.path)? {
            Content::Blank if read_only => return Err(StageError::BlankReadOnly),
            Content::Blank => {
                filesystem::make(&self.path, default)?;
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
        filesystem::mount(&self.path, &kind, &options, staging)?;
        if !read_only {
            // A clone may be larger than the filesystem that it is a copy of.
            filesystem::grow(&self.path, &kind, staging)?;
        }
        Ok(())
    }

    /// Unmounts it from the staging path.
    pub fn unstage(&self, staging: &Path) -> Result<(), TakeDownError> {
        while mounts::top(staging)?.is_some_and(|mount| self.is_shown_by(&mount)) {
            mounts::unmount_top(staging)?;
        }
        Ok(())
    }

    /// Shows a staged device at a target path.
    pub fn publish(
        &self,
        target: &Target,
        read_only: bool,
        single_writer: bool,
        staging: &Path,
        path: &Path,
    ) -> Result<(), PublishError> {
        if let Some(present) = mounts::top(path)? {
            if self.is_shown_by(&present) && (present.read_only == read_only || self.read_only) {
                return Ok(());
            }
            return Err(PublishError::Incompatible {
                target: path.display().to_string(),
                read_only: present.read_only,
            });
        }
        if single_writer {
            let other = |mount: &Mount| self.is_shown_by(mount) && mount.point != staging;
            if let Some(other) = mounts::all()?.into_iter().find(other) {
                return Err(PublishError::SecondTarget(other.point.display().to_string()));
            }
        }
        match target {
            // A read-only mount of a device node does not keep anybody from writing to the device.
            Target::Block if read_only && !self.read_only => return Err(PublishError::WritableDevice),
            Target::Block => {
                mounts::make_file(path)?;
                mounts::bind(&self.path, path, false)?;
            }
            Target::Filesystem { .. } => {
                if !mounts::top(staging)?.is_some_and(|mount| self.is_shown_by(&mount)) {
                    return Err(PublishError::NotStaged(staging.display().to_string()));
                }
                mounts::make_folder(path)?;
                mounts::bind(staging, path, read_only)?;
            }
        }
        Ok(())
    }

    /// The device has grown: so does the filesystem that is mounted at the path.
    pub fn expand(&self, path: &Path) -> Result<(), ExpandError> {
        let mounted = mounts::top(path)?.is_some_and(|mount| self.is_shown_by(&mount)) && path.is_dir();
        if mounted && let Content::Filesystem(kind) = filesystem::content(&self.path)? {
            filesystem::grow(&self.path, &kind, path)?;
        }
        Ok(())
    }

    pub fn stats(&self, path: &Path) -> Result<Stats, StatsError> {
        if !mounts::top(path)?.is_some_and(|mount| self.is_shown_by(&mount)) {
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

    /// What is wrong at one path where it should be seen.
    pub fn ailment(&self, path: &Path) -> Result<Option<Ailment>, MountError> {
        let ailing = |reason, message| Some(Ailment { gravity: Gravity::Inaccessible, reason, message });
        if !mounts::top(path)?.is_some_and(|mount| self.is_shown_by(&mount)) {
            return Ok(ailing("NotMounted", format!("{} does not show the volume", path.display())));
        }
        // A filesystem that has shut itself down answers every look with an error. So does a device that is gone.
        Ok(match std::fs::read_dir(path) {
            Err(error) if error.kind() != ErrorKind::NotADirectory => {
                ailing("FilesystemFailed", format!("cannot read {}: {error}; unmount it and check it", path.display()))
            }
            _ => None,
        })
    }

    fn is_shown_by(&self, mount: &Mount) -> bool {
        mount.device.as_deref() == Some(self.name())
    }
}

pub fn unpublish(path: &Path) -> Result<(), TakeDownError> {
    Ok(mounts::take_away(path)?)
}
