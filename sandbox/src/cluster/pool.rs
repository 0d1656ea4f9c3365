//! The shared storage pool: an XFS with reflink in a sparse file, mounted by a loop device at `$D/pool`.
//!
//! It is mounted before any node's mount namespace is made, so it is at the same path on this machine, in every node
//! and (by hostPath) in every pod: a path in it can be given to QEMU as it is.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{major, minor};

use crate::cluster::holder::mount_points;
use crate::layout::Layout;
use crate::outside;

/// Makes the sandbox's folder a mount that passes on what is mounted and unmounted below it.
pub fn share_folder(layout: &Layout) -> Result<()> {
    let dir = layout.dir.as_path();
    let change = |flags| mount(Some(dir), dir, None::<&str>, flags, None::<&str>);
    change(MsFlags::MS_BIND)
        .and_then(|()| change(MsFlags::MS_PRIVATE))
        .and_then(|()| change(MsFlags::MS_SHARED))
        .with_context(|| format!("cannot make {} a shared mount", dir.display()))
}

pub async fn create(layout: &Layout, gib: u64) -> Result<()> {
    let (image, at) = (layout.pool_image(), layout.pool());
    fs::create_dir_all(&at)?;
    fs::File::create(&image)
        .and_then(|file| file.set_len(gib << 30))
        .with_context(|| format!("cannot create {}", image.display()))?;
    let args = ["-q", "-f", "-m", "reflink=1", "-K"].map(Into::into);
    outside::run("mkfs.xfs", args.into_iter().chain([image.clone().into_os_string()])).await?;
    let device = outside::run("losetup", ["--find".as_ref(), "--show".as_ref(), image.as_os_str()]).await?;
    let options = ["-t", "xfs", "-o", "nouuid,discard", device.trim()].map(AsRef::as_ref);
    outside::run("mount", options.into_iter().chain([at.as_os_str()])).await?;
    Ok(())
}

/// Mounts at or below the sandbox's folder, outermost first.
pub fn mounts(layout: &Layout) -> Result<Vec<PathBuf>> {
    Ok(mount_points("/proc/self/mountinfo")?.into_iter().filter(|at| at.starts_with(&layout.dir)).collect())
}

pub fn unmount(at: &Path) -> Result<()> {
    umount2(at, MntFlags::empty())
        .or_else(|_| umount2(at, MntFlags::MNT_DETACH))
        .with_context(|| format!("cannot unmount {}", at.display()))
}

/// One line of `losetup --list`.
struct Loop {
    name: String,
    /// The filesystem and the inode of what is behind it, and by which path that was given.
    device: String,
    inode: String,
    file: String,
}

async fn listed() -> Result<Vec<Loop>> {
    let columns = ["--list", "--noheadings", "--raw", "--output", "NAME,BACK-MAJ:MIN,BACK-INO,BACK-FILE"];
    let printed = outside::run("losetup", columns).await?;
    let read = |line: &str| {
        let mut words = line.split_ascii_whitespace().map(str::to_owned);
        let (name, device, inode) = (words.next()?, words.next()?, words.next()?);
        Some(Loop { name, device, inode, file: words.next().unwrap_or_default() })
    };
    Ok(printed.lines().filter_map(read).collect())
}

fn number(device: u64) -> String {
    format!("{}:{}", major(device), minor(device))
}

/// One is made with the other behind it, as kubelet makes one on each block device of a pod.
fn is_on(upper: &Loop, lower: &Loop) -> bool {
    fs::metadata(&lower.name)
        .is_ok_and(|meta| upper.device == number(meta.dev()) && upper.inode == meta.ino().to_string())
}

/// Loop devices with a file of this sandbox behind them: the pool's, and those that a CSI driver made on the pool. The
/// latter are known by the file system they are on, as the path they were made with may have gone with a container. Those
/// on such devices come first.
async fn ours(layout: &Layout) -> Result<Vec<Loop>> {
    let pool = if mounts(layout)?.contains(&layout.pool()) { Some(fs::metadata(layout.pool())?.dev()) } else { None };
    let pool = pool.map(number);
    let ours = |it: &Loop| pool.as_ref() == Some(&it.device) || Path::new(&it.file).starts_with(&layout.dir);
    let (lower, other): (Vec<Loop>, Vec<Loop>) = listed().await?.into_iter().partition(ours);
    let upper = other.into_iter().filter(|upper| lower.iter().any(|lower| is_on(upper, lower)));
    Ok(upper.collect::<Vec<_>>().into_iter().chain(lower).collect())
}

pub async fn loop_devices(layout: &Layout) -> Result<Vec<String>> {
    Ok(ours(layout).await?.into_iter().map(|it| it.name).collect())
}

/// Those that the kubelet of a node made below its own folder: nobody ends them for it once the node has lost its power, and
/// a machine's kernel would not survive it. To be asked while the node's mounts are there.
pub async fn loop_devices_of_kubelet(layout: &Layout, node: &str) -> Result<Vec<String>> {
    let lib = layout.node_dir(node).join("lib");
    let is_its = |it: &Loop| Path::new(&it.file).strip_prefix("/var/lib").is_ok_and(|rest| lib.join(rest).exists());
    Ok(ours(layout).await?.into_iter().filter(is_its).map(|it| it.name).collect())
}

pub async fn detach_loop_devices(layout: &Layout) -> Result<()> {
    detach(layout, &loop_devices(layout).await?).await
}

/// Those of this sandbox's that are named. A device in use goes by itself when its user does.
pub async fn detach(layout: &Layout, devices: &[String]) -> Result<()> {
    for device in devices {
        if let Err(error) = outside::run("losetup", ["--detach", device.as_str()]).await
            && loop_devices(layout).await?.contains(device)
        {
            return Err(error);
        }
    }
    Ok(())
}
