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

/// Loop devices with a file of this sandbox behind them: the pool's, and those that a CSI driver made on the pool. The
/// latter are known by the file system they are on, as the path they were made with may have gone with a container.
pub async fn loop_devices(layout: &Layout) -> Result<Vec<String>> {
    let columns = ["--list", "--noheadings", "--raw", "--output", "NAME,BACK-MAJ:MIN,BACK-FILE"];
    let listed = outside::run("losetup", columns).await?;
    let pool = if mounts(layout)?.contains(&layout.pool()) { Some(fs::metadata(layout.pool())?.dev()) } else { None };
    let pool = pool.map(|device| format!("{}:{}", major(device), minor(device)));
    let ours = |line: &&str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let on_pool = words.next().is_some_and(|device| Some(device) == pool.as_deref());
        on_pool || words.next().is_some_and(|file| Path::new(file).starts_with(&layout.dir))
    };
    Ok(listed.lines().filter(ours).filter_map(|line| line.split_ascii_whitespace().next()).map(str::to_owned).collect())
}

/// A device in use goes by itself when its user does.
pub async fn detach_loop_devices(layout: &Layout) -> Result<()> {
    for device in loop_devices(layout).await? {
        if let Err(error) = outside::run("losetup", ["--detach", &device]).await
            && loop_devices(layout).await?.contains(&device)
        {
            return Err(error);
        }
    }
    Ok(())
}
