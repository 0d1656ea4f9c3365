//! An image onto a disk, from a server on the same machine: by `imaging`, as the installer's image2disk calls it, and by what a script of
//! an administrator has: curl, gzip, zstd, dd, qemu-img. The disk is a loop device, empty at the beginning of each run; a run ends when
//! all of it is flushed, and what is on the disk is compared with the image.

use super::files::{Folder, speed};
use super::load::{Moved, load, output};
use super::network::{Network, Place};
use super::parts::{Parts, Program};
use super::server::{self, WEB};
use super::{figure, ratios};
use crate::Figures;
use crate::args::Boot;
use crate::figure::Unit;
use crate::stage::Story;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::time::Instant;
use tokio::process::Command;

/// Behind the image, as a disk has it.
const MORE: u64 = 64 << 20;

/// One way in which the image is packed. In scripts $BY is the program, $URL the file, $DISK the disk.
struct Packed<'a> {
    name: &'static str,
    file: &'static str,
    /// In the folder of the image; empty: it is the image itself.
    pack: &'static str,
    script: &'static str,
    by: Option<&'a Program>,
}

const RAW: &str = "curl -sSf \"$URL\" | dd of=\"$DISK\" bs=1M iflag=fullblock conv=fsync,notrunc status=none";
const GZIP: &str =
    "curl -sSf \"$URL\" | gzip -dc | dd of=\"$DISK\" bs=1M iflag=fullblock conv=fsync,notrunc status=none";
const ZSTD: &str =
    "curl -sSf \"$URL\" | \"$BY\" -dc | dd of=\"$DISK\" bs=1M iflag=fullblock conv=fsync,notrunc status=none";
// Debian's qemu-img hangs where it reads by HTTP itself (7.2 with its module for curl).
const QEMU_IMG: &str =
    "curl -sSf -o part \"$URL\" && \"$BY\" convert -n -t writeback -O raw part \"$DISK\" && sync \"$DISK\"";

fn all(parts: &Parts) -> Vec<Packed<'_>> {
    let packed = |name, file, pack, script, by| Packed { name, file, pack, script, by };
    let mut all = vec![
        packed("imageRaw", Folder::IMAGE, "", RAW, None),
        packed("imageGzip", "disk.raw.gz", "gzip -kf disk.raw", GZIP, None),
    ];
    if let Some(by) = &parts.zstd {
        all.push(packed("imageZstd", "disk.raw.zst", "\"$BY\" -qf disk.raw", ZSTD, Some(by)));
    }
    if let Some(by) = &parts.qemu_img {
        let pack = "\"$BY\" convert -O qcow2 disk.raw disk.qcow2";
        all.push(packed("imageQcow2", "disk.qcow2", pack, QEMU_IMG, Some(by)));
        let pack = "\"$BY\" convert -c -O qcow2 disk.raw packed.qcow2";
        all.push(packed("imagePackedQcow2", "packed.qcow2", pack, QEMU_IMG, Some(by)));
    }
    all
}

pub async fn measure(
    story: &Story,
    options: &Boot,
    (parts, folder): (&Parts, &Folder),
    network: &Network,
) -> Result<Figures> {
    let logs = tempfile::tempdir().context("a folder")?;
    let disk = Disk::make(folder).await?;
    let nginx = server::nginx(&parts.nginx, network.namespace(Place::Files), &folder.path, logs.path()).await?;
    let mut figures = Figures::new();
    for packed in all(parts) {
        if !packed.pack.is_empty() {
            output(packed.shell(&[], packed.pack, folder), packed.pack).await?;
        }
        let url = format!("http://{}:{WEB}/{}", Place::Files.address(), packed.file);
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            disk.empty().await?;
            let size = disk.size.to_string();
            let began = Instant::now();
            let moved: Moved = load(&network.clients, &["image", &url, &disk.node, &size]).await?;
            ours.push(speed(folder.image_bytes, began.elapsed().as_secs_f64()));
            ensure!(moved.bytes > 0, "imaging has read nothing of {url}");
            disk.compare(folder).await.context("by imaging")?;

            disk.empty().await?;
            let inside = ["ip", "netns", "exec", &network.clients];
            let mut script = packed.shell(&inside, packed.script, folder);
            script.env("URL", &url).env("DISK", &disk.node);
            let began = Instant::now();
            output(script, packed.script).await?;
            others.push(speed(folder.image_bytes, began.elapsed().as_secs_f64()));
            disk.compare(folder).await.with_context(|| format!("by {}", packed.script))?;
        }
        story.say(&format!("{}: {ours:.0?} MiB/s, the other {others:.0?}", packed.name));
        figures.insert(packed.name.to_owned(), figure(Unit::Mebibytes, &ours)?);
        figures.insert(format!("{}Ratio", packed.name), figure(Unit::Count, &ratios(&ours, &others))?);
    }
    nginx.stop().await?;
    Ok(figures)
}

impl Packed<'_> {
    /// What of a pipe fails, fails it.
    fn shell(&self, inside: &[&str], script: &str, folder: &Folder) -> Command {
        let words = [inside, &["bash", "-o", "pipefail", "-ec", script]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&folder.path);
        if let Some(by) = self.by {
            command.envs(&by.environment).env("BY", &by.path);
        }
        command
    }
}

/// A loop device on a file, past the page cache of that file.
struct Disk {
    node: String,
    size: u64,
}

impl Disk {
    async fn make(folder: &Folder) -> Result<Self> {
        let path = folder.path.join("disk");
        let size = folder.image_bytes + MORE;
        File::create(&path).and_then(|file| file.set_len(size)).context("make the disk's file")?;
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--direct-io=on"]).arg(&path);
        let node = output(losetup, "losetup").await?.trim().to_owned();
        Ok(Self { node, size })
    }

    async fn empty(&self) -> Result<()> {
        let mut command = Command::new("blkdiscard");
        command.args(["--force", &self.node]);
        output(command, "blkdiscard").await.map(drop)
    }

    async fn compare(&self, folder: &Folder) -> Result<()> {
        let mut command = Command::new("cmp");
        command.arg(format!("--bytes={}", folder.image_bytes)).arg(&self.node).arg(folder.image());
        output(command, "cmp").await.map(drop).context("the disk is not the image")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Whatever else went wrong is told; the file goes with its folder.
        let _ = std::process::Command::new("losetup").args(["--detach", &self.node]).output();
    }
}
