//! The shared storage pool: an XFS with reflink in a sparse file, mounted by a loop device at `$D/pool`.
//!
//! It is mounted before any node's mount namespace is made, so it is at the same path on this machine, in every node
//! and (by hostPath) in every pod: a path in it can be given to QEMU as it is.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{major, minor};

use crate::cluster::holder::mount_points;
use crate::layout::Layout;
use crate::outside;

/// A device in use goes when its last user does, and that is a process that was killed just now.
const GONE_WITHIN: Duration = Duration::from_secs(60);

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
#[derive(Debug, PartialEq, Eq)]
struct Loop {
    name: String,
    /// The filesystem and the inode of what is behind it, and by which path that was given. The path is of use while the mount
    /// that it leads through is there.
    device: String,
    inode: String,
    file: String,
}

impl Loop {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace().map(unescaped);
        let (name, device, inode) = (words.next()?, words.next()?, words.next()?);
        let file = words.next().unwrap_or_default();
        let file = file.strip_suffix(" (deleted)").unwrap_or(&file).to_owned();
        Some(Loop { name, device, inode, file })
    }

    /// Its filesystem is on that device, or it has that device itself behind it, as kubelet makes one on each block device of
    /// a pod.
    fn is_on(&self, lower: &Loop) -> bool {
        let node = fs::metadata(&lower.name);
        node.is_ok_and(|node| self.device == number(node.rdev()) || self.is_behind(&node))
    }

    fn is_behind(&self, file: &fs::Metadata) -> bool {
        self.device == number(file.dev()) && self.inode == file.ino().to_string()
    }
}

/// `losetup --raw` writes blanks as `\x20`, those that it pads with too.
fn unescaped(word: &str) -> String {
    let mut parts = word.split("\\x");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_at_checked(2).map(|(code, rest)| (u8::from_str_radix(code, 16), rest)) {
            Some((Ok(code), rest)) => {
                text.push(code.into());
                text.push_str(rest);
            }
            _ => text.push_str(part),
        }
    }
    text.trim().to_owned()
}

async fn listed() -> Result<Vec<Loop>> {
    let columns = ["--list", "--noheadings", "--raw", "--output", "NAME,BACK-MAJ:MIN,BACK-INO,BACK-FILE"];
    let printed = outside::run("losetup", columns).await?;
    Ok(printed.lines().filter_map(Loop::read).collect())
}

fn number(device: u64) -> String {
    format!("{}:{}", major(device), minor(device))
}

/// Loop devices with a file of this sandbox behind them: the pool's, those that a CSI driver made on the pool, and those on
/// such devices; what is on another comes first. They are known by numbers, for the paths they were made with may be those of
/// a container, or of mounts that have gone.
async fn ours(layout: &Layout) -> Result<Vec<Loop>> {
    let image = fs::metadata(layout.pool_image());
    let is_own = |it: &Loop| {
        Path::new(&it.file).starts_with(&layout.dir) || image.as_ref().is_ok_and(|image| it.is_behind(image))
    };
    let (mut ours, mut others): (Vec<Loop>, Vec<Loop>) = listed().await?.into_iter().partition(is_own);
    loop {
        let (more, rest): (Vec<Loop>, Vec<Loop>) =
            others.into_iter().partition(|it| ours.iter().any(|own| it.is_on(own)));
        if more.is_empty() {
            return Ok(topmost_first(ours));
        }
        ours.extend(more);
        others = rest;
    }
}

fn topmost_first(mut left: Vec<Loop>) -> Vec<Loop> {
    let mut ordered = Vec::new();
    // The kernel lets no circle be made.
    while let Some(top) = left.iter().position(|it| !left.iter().any(|upper| upper.is_on(it))) {
        ordered.push(left.remove(top));
    }
    ordered
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

/// Takes away the loop devices and the mounts of this sandbox, the pool among them. While its image is there they are known
/// by it; so this ends when they have gone, or with an error that names them.
pub async fn remove(layout: &Layout) -> Result<()> {
    detach(layout, &loop_devices(layout).await?).await?;
    for at in mounts(layout)?.into_iter().rev() {
        unmount(&at)?;
    }
    let deadline = tokio::time::Instant::now() + GONE_WITHIN;
    loop {
        let left = loop_devices(layout).await?;
        if left.is_empty() {
            return Ok(());
        }
        if tokio::time::Instant::now() > deadline {
            let used = left.iter().map(|name| format!("{name} ({})", users(name).join(", "))).collect::<Vec<_>>();
            bail!("loop devices of sandbox {} are still in use: {}", layout.name, used.join("; "));
        }
        detach(layout, &left).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Who keeps a device: processes in whose mount namespace a filesystem on it is mounted, or that have it open.
fn users(name: &str) -> Vec<String> {
    let Ok(node) = fs::metadata(name) else { return Vec::new() };
    let device = format!(" {} ", number(node.rdev()));
    let keeps = |process: &Path| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        fs::read_to_string(process.join("mountinfo")).is_ok_and(|mounts| mounts.contains(&device))
            || open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|file| file == Path::new(name))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    let keeping = processes.filter(|(_, process)| keeps(process)).filter_map(|(id, process)| {
        let name = fs::read_to_string(process.join("comm")).ok()?;
        Some(format!("{id} {}", name.trim()))
    });
    let found: Vec<_> = keeping.take(5).collect();
    if found.is_empty() { vec!["by no process: its writes are under way".to_owned()] } else { found }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_losetup_is_read_with_its_padding() {
        let line = r"/dev/loop3 \x20\x20\x20\x20\x207:0\x20\x20 100663429 /volumes/a\x20b/disk.img\x20(deleted)";
        let wanted = Loop {
            name: "/dev/loop3".into(),
            device: "7:0".into(),
            inode: "100663429".into(),
            file: "/volumes/a b/disk.img".into(),
        };
        assert_eq!(Loop::read(line), Some(wanted));
    }

    /// As a holder pod leaves it: kubelet's device on the CSI driver's, that on an image in the pool, and the image deleted.
    #[tokio::test]
    async fn no_loop_device_outlives_its_sandbox() {
        let name = "no_loop_device_outlives_its_sandbox";
        let path = std::env::var_os("PATH").unwrap_or_default();
        let has = |program: &&str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
        let missing = ["mkfs.xfs", "losetup"].into_iter().find(|program| !has(program));
        if !nix::unistd::geteuid().is_root() || missing.is_some() {
            eprintln!("SKIP {name}: needs root and {}", missing.unwrap_or("loop devices"));
            return;
        }
        let layout = Layout::new(&format!("loops{}", std::process::id())).expect("a name");
        fs::create_dir_all(&layout.dir).expect("a folder");
        let before = listed().await.expect("losetup lists");
        share_folder(&layout).expect("a mount of its own");
        create(&layout, 1).await.expect("a pool");
        let image = layout.pool().join("disk.img");
        fs::File::create(&image).and_then(|file| file.set_len(1 << 20)).expect("an image");
        let attach = async |what: &Path| {
            let made = outside::run("losetup", ["--find".as_ref(), "--show".as_ref(), what.as_os_str()]).await;
            made.expect("a loop device").trim().to_owned()
        };
        let driver = attach(&image).await;
        let kubelet = attach(Path::new(&driver)).await;
        fs::remove_file(&image).expect("deleted");
        let found = loop_devices(&layout).await.expect("found");
        assert_eq!(found[..2], [kubelet, driver], "what is on another comes first");
        assert_eq!(found.len(), 3, "and the pool's: {found:?}");
        // Whoever else is named sees the same mounts.
        assert!(users(&found[2])[0].split_once(' ').is_some_and(|(id, _)| id.parse::<u32>().is_ok()), "it is mounted");
        assert_eq!(users(&found[0]), ["by no process: its writes are under way"]);
        // What a lazy end leaves: the mounts are gone from sight, and no path leads to the pool.
        for at in mounts(&layout).expect("mounts").into_iter().rev() {
            umount2(&at, MntFlags::MNT_DETACH).expect("unmounted");
        }
        assert_eq!(loop_devices(&layout).await.expect("found"), found, "known without a path");
        remove(&layout).await.expect("removed");
        let left = listed().await.expect("losetup lists");
        assert!(left.iter().all(|it| before.contains(it) || !found.contains(&it.name)), "{left:?}");
        fs::remove_dir_all(&layout.dir).expect("the folder goes");
    }
}
