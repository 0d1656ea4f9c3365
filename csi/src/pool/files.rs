//! File operations that survive a crash, each error with the step and the path.

use super::{Capacity, UNFINISHED};
use rustix::fs::{FlockOperation, flock, ioctl_ficlone};
use rustix::io::Errno;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt,
    fs::{self, File},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {}: {cause}", path.display())]
pub struct Fault {
    pub step: &'static str,
    pub path: PathBuf,
    pub cause: io::Error,
}

impl Fault {
    pub fn is_full(&self) -> bool {
        matches!(self.cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// The filesystem cannot share blocks between these two files.
    pub fn is_no_reflink(&self) -> bool {
        let errno = Errno::from_io_error(&self.cause);
        matches!(errno, Some(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::XDEV | Errno::INVAL))
    }
}

/// Names the step and the path of an error.
pub(super) fn at<T>(step: &'static str, path: &Path, result: Result<T, impl Into<io::Error>>) -> Result<T, Fault> {
    result.map_err(|cause| Fault { step, path: path.into(), cause: cause.into() })
}

/// The pool's lock; released when dropped or when the process dies.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub(super) fn take(path: &Path) -> Result<Lock, Fault> {
        let open = File::options().create(true).truncate(false).write(true).open(path);
        let file = at("open the lock", path, open)?;
        at("lock", path, flock(&file, FlockOperation::LockExclusive))?;
        Ok(Lock { _file: file })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reflink {
    Works,
    Refused,
}

/// Asks by doing it: neither a filesystem's name nor its features say for certain.
pub(super) fn probe_reflink(dir: &Path) -> Result<Reflink, Fault> {
    let [from, to] = ["from", "to"].map(|name| dir.join(format!("{UNFINISHED}probe-{name}")));
    let attempt = at("write", &from, fs::write(&from, [1; 4096])).and_then(|()| reflink(&from, &to));
    remove(&from)?;
    remove(&to)?;
    match attempt {
        Ok(_) => Ok(Reflink::Works),
        Err(fault) if fault.is_no_reflink() => Ok(Reflink::Refused),
        Err(fault) => Err(fault),
    }
}

/// Makes `to` a copy of `from` that shares its blocks.
pub(super) fn reflink(from: &Path, to: &Path) -> Result<File, Fault> {
    let source = at("open", from, File::open(from))?;
    let copy = at("create", to, File::create_new(to))?;
    at("clone into", to, ioctl_ficlone(&copy, &source))?;
    Ok(copy)
}

pub(super) fn capacity(dir: &Path) -> Result<Capacity, Fault> {
    let stat = at("ask the free space of", dir, rustix::fs::statvfs(dir))?;
    Ok(Capacity { total: stat.f_blocks * stat.f_frsize, available: stat.f_bavail * stat.f_frsize })
}

/// The names in a folder; a folder that is not there has none.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, Fault> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => at("list", folder, other)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = at("list", folder, entry)?.file_name().into_string() {
            names.push(name);
        }
    }
    Ok(names)
}

pub(super) fn make_folder(folder: &Path) -> Result<(), Fault> {
    at("make the folder", folder, fs::create_dir_all(folder))
}

/// Removes a file or a folder with all in it; nothing there is success.
pub(super) fn remove(path: &Path) -> Result<(), Fault> {
    let done = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => at("remove", path, other),
    }
}

pub(super) fn sync_folder(folder: &Path) -> Result<(), Fault> {
    at("sync", folder, File::open(folder).and_then(|file| file.sync_all()))
}

/// `None` when there is no such record.
pub(super) fn read_record<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Fault> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => at("read", path, Err(error)),
        Ok(bytes) => at("understand", path, serde_json::from_slice(&bytes)).map(Some),
    }
}

/// Replaces a record: whoever reads it sees the old one or the new one, after a crash too.
pub(super) fn write_record(folder: &Path, name: &str, record: &impl Serialize) -> Result<(), Fault> {
    let path = folder.join(name);
    let unfinished = folder.join(format!("{UNFINISHED}{name}"));
    let bytes = at("describe", &path, serde_json::to_vec_pretty(record))?;
    at("write", &unfinished, fs::write(&unfinished, bytes))?;
    at("sync", &unfinished, File::open(&unfinished).and_then(|file| file.sync_all()))?;
    at("rename into place", &path, fs::rename(&unfinished, &path))?;
    sync_folder(folder)
}

/// Makes `parent/name` with what `fill` puts into it: whole, or not at all.
pub(super) fn build(parent: &Path, name: &str, fill: impl FnOnce(&Path) -> Result<(), Fault>) -> Result<(), Fault> {
    let unfinished = parent.join(format!("{UNFINISHED}{name}"));
    remove(&unfinished)?;
    let made = at("make the folder", &unfinished, fs::create_dir(&unfinished)).and_then(|()| fill(&unfinished));
    if let Err(fault) = made {
        // The fault is what matters; a leftover is removed by the next try or the next start.
        if let Err(left) = remove(&unfinished) {
            tracing::warn!("{left}");
        }
        return Err(fault);
    }
    sync_folder(&unfinished)?;
    let path = parent.join(name);
    at("rename into place", &path, fs::rename(&unfinished, &path))?;
    sync_folder(parent)
}

/// Removes `parent/name`: afterwards, and after a crash in between, it is not there.
pub(super) fn discard(parent: &Path, name: &str) -> Result<(), Fault> {
    let (path, unfinished) = (parent.join(name), parent.join(format!("{UNFINISHED}{name}")));
    remove(&unfinished)?;
    match fs::rename(&path, &unfinished) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => at("rename out of the way", &path, other)?,
    }
    sync_folder(parent)?;
    remove(&unfinished)
}

/// A filesystem by the name its users know.
#[derive(Debug)]
pub(super) struct Filesystem {
    magic: u64,
    mounted_as: Option<String>,
}

impl Filesystem {
    pub(super) fn of(dir: &Path) -> Result<Filesystem, Fault> {
        let stat = at("ask the filesystem of", dir, rustix::fs::statfs(dir))?;
        let mounted_as = dir.canonicalize().ok().and_then(|dir| {
            let mounts = fs::read_to_string("/proc/thread-self/mounts").ok()?;
            let entry = |line: &str| {
                let mut fields = line.split(' ');
                let (point, kind) = (fields.nth(1)?.to_owned(), fields.next()?.to_owned());
                dir.starts_with(&point).then_some((Path::new(&point).as_os_str().as_bytes().len(), kind))
            };
            // Of the mounts above the folder the longest path counts, and the last one made there.
            mounts
                .lines()
                .filter_map(entry)
                .enumerate()
                .max_by_key(|(at, (length, _))| (*length, *at))
                .map(|(_, e)| e.1)
        });
        Ok(Filesystem { magic: stat.f_type as u64, mounted_as })
    }
}

impl fmt::Display for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.mounted_as.as_deref(), self.magic) {
            (Some("xfs"), _) => f.write_str("XFS made without reflink"),
            (Some(name), _) => f.write_str(name),
            (None, magic) => write!(f, "a filesystem of type {magic:#x}"),
        }
    }
}
