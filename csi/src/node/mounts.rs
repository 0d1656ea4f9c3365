//! Mounts, read from the kernel each time.

use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {}: {cause}", path.display())]
pub struct MountError {
    pub step: &'static str,
    pub path: PathBuf,
    pub cause: io::Error,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub point: PathBuf,
    pub read_only: bool,
    /// The device that is mounted there, or bound there as a device node: `loop7`.
    pub device: Option<String>,
}

fn at<T>(step: &'static str, path: &Path, result: Result<T, impl Into<io::Error>>) -> Result<T, MountError> {
    result.map_err(|cause| MountError { step, path: path.into(), cause: cause.into() })
}

/// All mounts, the later above the earlier.
pub(super) fn all() -> Result<Vec<Mount>, MountError> {
    let path = Path::new("/proc/thread-self/mountinfo");
    let text = at("read", path, fs::read_to_string(path))?;
    Ok(text.lines().filter_map(parse).collect())
}

/// What is seen at a path, if it is a mount point.
pub(super) fn top(path: &Path) -> Result<Option<Mount>, MountError> {
    Ok(all()?.into_iter().rev().find(|mount| mount.point == path))
}

/// `36 35 98:0 /root /point options - type source super-options`, with fields in between that may be missing.
fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let fields: Vec<&str> = before.split(' ').collect();
    let (root, point, options) = (unescape(fields.get(3)?), unescape(fields.get(4)?), fields.get(5)?);
    let mut after = after.split(' ');
    let (kind, source) = (after.next()?, unescape(after.next()?));
    // A device node that is bound somewhere is a file of the filesystem that holds /dev.
    let device =
        if kind == "devtmpfs" || kind == "tmpfs" { root.strip_prefix('/') } else { source.strip_prefix("/dev/") };
    let device = device.filter(|name| !name.is_empty() && !name.contains('/')).map(str::to_owned);
    Some(Mount { point: point.into(), read_only: options.split(',').any(|it| it == "ro"), device })
}

/// The kernel writes space, tab, newline and backslash in octal.
fn unescape(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

pub(super) fn bind(from: &Path, to: &Path, read_only: bool) -> Result<(), MountError> {
    at("bind", to, mount_bind(from, to))?;
    if read_only {
        // The first call of a bind mount ignores the flag; the second one sets it.
        at("make read-only", to, mount_remount(to, MountFlags::BIND | MountFlags::RDONLY, ""))?;
    }
    Ok(())
}

/// Unmounts whatever is mounted there, and removes the mount point. Nothing there is success.
pub(super) fn take_away(path: &Path) -> Result<(), MountError> {
    while top(path)?.is_some() {
        unmount_top(path)?;
    }
    let gone = match fs::symlink_metadata(path) {
        // Never with what is in it: an unmount that did not happen must not empty a volume.
        Ok(meta) if meta.is_dir() => fs::remove_dir(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match gone {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => at("remove", path, other),
    }
}

pub(super) fn unmount_top(path: &Path) -> Result<(), MountError> {
    at("unmount", path, unmount(path, UnmountFlags::empty()))
}

pub(super) fn make_folder(path: &Path) -> Result<(), MountError> {
    at("make the folder", path, fs::create_dir_all(path))
}

pub(super) fn make_file(path: &Path) -> Result<(), MountError> {
    if let Some(parent) = path.parent() {
        make_folder(parent)?;
    }
    at("make the file", path, fs::File::options().create(true).truncate(false).write(true).open(path)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::{Mount, parse};

    #[test]
    fn a_mounted_device_and_a_bound_device_node_are_the_same_device() {
        let mounted = "41 28 7:3 / /var/lib/a\\040b rw,relatime shared:1 - ext4 /dev/loop3 rw";
        let expected = Mount { point: "/var/lib/a b".into(), read_only: false, device: Some("loop3".into()) };
        assert_eq!(parse(mounted), Some(expected));
        let bound = "42 28 0:5 /loop3 /target ro,nosuid - devtmpfs udev rw,size=1k";
        let expected = Mount { point: "/target".into(), read_only: true, device: Some("loop3".into()) };
        assert_eq!(parse(bound), Some(expected));
    }

    #[test]
    fn other_mounts_have_no_device() {
        for line in ["22 1 0:25 / /proc rw - proc proc rw", "30 22 0:30 / /run/sub rw - tmpfs tmpfs rw"] {
            assert_eq!(parse(line).map(|mount| mount.device), Some(None), "{line}");
        }
        assert_eq!(parse("nonsense"), None);
    }
}
