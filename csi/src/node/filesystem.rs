//! A filesystem on a device: made once, on a blank device only; mounted; grown.

use super::command::{CommandError, failed, output, run};
use crate::wire::FILESYSTEMS;
use std::{ffi::OsStr, path::Path};

/// `blkid` found nothing at all.
const NOTHING_FOUND: i32 = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    Blank,
    /// A filesystem of this type.
    Filesystem(String),
    /// A partition table, or something that only a filesystem's absence is known of.
    Other(String),
}

/// What is on a device. Only a clear answer counts: a device that cannot be read is never called blank.
pub(super) fn content(device: &Path) -> Result<Content, CommandError> {
    let arguments = ["--probe".as_ref(), "--output".as_ref(), "export".as_ref(), device.as_os_str()];
    let output = output("blkid", &arguments)?;
    if output.status.code() == Some(NOTHING_FOUND) && output.stdout.is_empty() {
        return Ok(Content::Blank);
    }
    if !output.status.success() {
        return Err(failed("blkid", &arguments, &output));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
    Ok(match (value("TYPE="), value("PTTYPE=")) {
        (Some(kind), _) => Content::Filesystem(kind),
        (None, Some(table)) => Content::Other(format!("a partition table ({table})")),
        (None, None) => Content::Other(text.trim().replace('\n', " ")),
    })
}

pub(super) fn default_type() -> &'static str {
    FILESYSTEMS[0]
}

pub(super) fn make(device: &Path, kind: &str) -> Result<(), CommandError> {
    match kind {
        "xfs" => run("mkfs.xfs", &["-q".as_ref(), device.as_os_str()]),
        // No blocks for root alone: it is one user's disk.
        _ => run(
            "mkfs.ext4",
            &["-q", "-m", "0"].map(OsStr::new).iter().copied().chain([device.as_os_str()]).collect::<Vec<_>>(),
        ),
    }
    .map(drop)
}

pub(super) fn mount(device: &Path, kind: &str, options: &[String], at: &Path) -> Result<(), CommandError> {
    let mut options = options.to_vec();
    if kind == "xfs" {
        // A clone has its source's UUID, and both may be mounted on one node.
        options.push("nouuid".into());
    }
    let options = options.join(",");
    let mut arguments: Vec<&OsStr> = vec!["-t".as_ref(), kind.as_ref()];
    if !options.is_empty() {
        arguments.extend([OsStr::new("-o"), options.as_ref()]);
    }
    arguments.extend([device.as_os_str(), at.as_os_str()]);
    run("mount", &arguments).map(drop)
}

/// Grows a mounted filesystem to its device; one that fills it already stays as it is.
pub(super) fn grow(device: &Path, kind: &str, mounted_at: &Path) -> Result<(), CommandError> {
    match kind {
        "xfs" => run("xfs_growfs", &["-d".as_ref(), mounted_at.as_os_str()]),
        _ => run("resize2fs", &[device.as_os_str()]),
    }
    .map(drop)
}
