//! `rootio`: partitions and file systems as the server's metadata describes them (`metadata.instance.storage`). Upstream's commands
//! `partition`, `format`, `mount` and `wipe`, one in each action, and upstream's `MIRROR_HOST` and `METADATA_SERVICE_PORT`, by which the
//! metadata is fetched, and `MBR`; `METADATA` is ours: the document itself.
//!
//! Where upstream tells of a failure in its log alone and succeeds, the action fails. `mount` mounts where upstream does nothing that an
//! action behind it could see: here it shows that each file system can be mounted, and leaves none mounted.

mod layout;
mod metadata;
mod swap;

use super::image2disk::read_partitions;
use super::seed::unique;
use super::{labels, number, optional, required, written};
use crate::agent::Action;
use crate::disks::{Disk, Disks};
use crate::filesystem::Mounted;
use crate::lines::Lines;
use imaging::{Authorities, Disk as _, FileDisk, Packing, Progress, Proxies, Source, gpt, mbr};
use layout::Table;
use metadata::{Mount, Storage};
use rustix::mount::MountFlags;
use std::fs::File;
use std::io::{self, Read};
use std::process::Stdio;
use std::sync::atomic::AtomicU64;
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout_at};
use version::VERSION;

const HOST: &str = "MIRROR_HOST";
const PORT: &str = "METADATA_SERVICE_PORT";
const DOCUMENT: &str = "METADATA";
const MBR: &str = "MBR";
/// Upstream's, for its older metadata service.
const DEFAULT_PORT: u64 = 50061;
/// Wiped at a disk's beginning.
const WIPED: u64 = 1 << 30;
const COMMANDS: &str = "partition, format, mount or wipe";

pub(super) async fn run(disks: &Disks, action: &Action, lines: &Lines) -> Result<(), String> {
    let wanted = || format!("command is {:?}: write one of {COMMANDS}", action.command);
    let [command] = action.command.as_slice() else { return Err(wanted()) };
    if !["partition", "format", "mount", "wipe"].contains(&command.as_str()) {
        return Err(wanted());
    }
    let is_mbr = match optional(action, MBR) {
        // Upstream takes these, too, for a yes.
        Some(no @ ("false" | "no" | "0")) => return Err(format!("{MBR} is {no:?}: leave it out for a GPT")),
        given => given.is_some(),
    };
    let storage = Storage::parse(&document(action).await?)?;
    for key in storage.unread() {
        lines.say(&format!("{key} is not read, as by upstream's rootio"));
    }
    let (list, is_empty) = match command.as_str() {
        "partition" | "wipe" => ("disks", storage.disks.is_empty()),
        _ => ("filesystems", storage.filesystems.is_empty()),
    };
    if is_empty {
        // A success, as upstream: one Template is for servers with and without.
        lines.say(&format!("the metadata has no storage.{list}: {command} changes nothing"));
    }
    let mut found = Vec::new();
    for (at, disk) in storage.disks.iter().enumerate() {
        let place = disks.find_of(&format!("storage.disks[{at}].device"), &disk.device)?;
        if !place.is_whole {
            return Err(format!("storage.disks[{at}].device is {}, a partition: write the disk", disk.device));
        }
        found.push(place);
    }
    match command.as_str() {
        "partition" => partition(&storage, is_mbr, (disks, found), lines).await,
        "wipe" => {
            for disk in &found {
                wipe((disks, disk), lines).await?;
            }
            Ok(())
        }
        _ => {
            for (at, filesystem) in storage.filesystems.iter().enumerate() {
                let key = format!("storage.filesystems[{at}].mount");
                let place = disks.find_of(&format!("{key}.device"), &filesystem.mount.device)?;
                match command.as_str() {
                    "format" => format(&key, &filesystem.mount, &place, action, lines).await?,
                    _ => mount(&filesystem.mount, &place, lines)?,
                }
            }
            Ok(())
        }
    }
}

/// Given, or fetched.
async fn document(action: &Action) -> Result<String, String> {
    if let Some(document) = optional(action, DOCUMENT) {
        return Ok(document.to_owned());
    }
    let host = required(action, HOST, "the host that serves the server's metadata (boot's address)")?;
    let port = number(action, PORT, DEFAULT_PORT)?;
    let source = Source {
        url: format!("http://{host}:{port}/metadata"),
        checksum: None,
        checksum_field: DOCUMENT,
        packing: Packing::Uncompressed,
        user_agent: format!("metalplane-installer/{VERSION}"),
        authorities: Authorities::Public,
        authorities_field: HOST,
        access: None,
        proxies: Proxies::default(),
    };
    let (bytes, of, wake) = (AtomicU64::new(0), AtomicU64::new(0), Notify::new());
    let stopped = async {
        sleep_until(action.deadline).await;
        format!("the action's time is over, and {host}:{port} has not told the metadata")
    };
    let whole = |reader: &mut dyn Read| {
        let mut text = String::new();
        let read = reader.take(1 << 20).read_to_string(&mut text);
        read.map(|_| text).map_err(|error| format!("the metadata: {error}"))
    };
    let read = imaging::read(&source, &Progress { bytes: &bytes, of: &of, wake: &wake }, stopped, whole).await;
    read.map(|read| read.made).map_err(|error| format!("{error} ({HOST}, {PORT}: boot serves it at port 7080)"))
}

async fn blocking<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| Err(io::Error::other(panic)));
    done.map_err(|error| format!("{name}: {error}"))
}

async fn partition(
    storage: &Storage,
    is_mbr: bool,
    (disks, found): (&Disks, Vec<Disk>),
    lines: &Lines,
) -> Result<(), String> {
    // Nothing is written before all of it is known to fit.
    let mut tables = Vec::new();
    for (at, (wanted, disk)) in storage.disks.iter().zip(&found).enumerate() {
        let (key, size) = (format!("storage.disks[{at}].partitions"), (disk.size_bytes, disk.sector));
        let table = if is_mbr { Table::mbr } else { Table::gpt };
        tables.push(table(&key, &wanted.partitions, size).map_err(|error| format!("{}: {error}", name(disk)))?);
    }
    for ((wanted, disk), table) in storage.disks.iter().zip(found).zip(tables) {
        if wanted.wipe_table {
            wipe((disks, &disk), lines).await?;
        }
        let place = disk.clone();
        blocking(&name(&disk), move || {
            // Nobody else has it.
            let _own = FileDisk::exclusive(&place.node, place.size_bytes, false)?;
            let file = File::options().read(true).write(true).open(&place.node)?;
            let size = (place.size_bytes, place.sector);
            match &table {
                Table::Gpt(partitions) => gpt::create::create(&file, size, partitions, unique),
                Table::Mbr(partitions) => {
                    let [a, b, c, d, ..] = unique()?;
                    mbr::create(&file, size, partitions, [a, b, c, d])
                }
            }
        })
        .await?;
        read_partitions(&disk, lines).await?;
        written::tell(disks, &disk, lines);
    }
    Ok(())
}

/// The beginning, the backup of the partition table, and the labels of what the disk and its partitions were a part of.
async fn wipe((disks, disk): (&Disks, &Disk), lines: &Lines) -> Result<(), String> {
    let (place, before) = (disk.clone(), disks.partition_places(disk));
    let wiped = WIPED.min(disk.size_bytes);
    blocking(&name(disk), move || {
        let mut whole = FileDisk::exclusive(&place.node, place.size_bytes, false)?;
        whole.zero(0, wiped)?;
        imaging::wipe(&mut whole, place.size_bytes)
    })
    .await?;
    lines.say(&format!("{}: wiped: its first {wiped} bytes, and its last MiB", name(disk)));
    read_partitions(disk, lines).await?;
    labels::clear((disks, disk), before, wiped, lines).await
}

async fn format(key: &str, mount: &Mount, disk: &Disk, action: &Action, lines: &Lines) -> Result<(), String> {
    let options = &mount.create.options;
    let (program, mut arguments) = match mount.format.as_str() {
        "ext4" | "ext3" | "ext2" => {
            ("/sbin/mke2fs", [&options[..], &["-t".into(), mount.format.clone(), "-F".into()]].concat())
        }
        "vfat" => ("/sbin/mkfs.fat", options.clone()),
        "swap" => {
            let (place, page) = (disk.clone(), swap::page(options).map_err(|error| format!("{key}.{error}"))?);
            let write = move || {
                imaging::swap::write(&File::options().write(true).open(&place.node)?, place.size_bytes, page, unique()?)
            };
            blocking(&name(disk), write).await?;
            lines.say(&format!("{}: swap space, for kernels with pages of {page} bytes", name(disk)));
            return Ok(());
        }
        other => return Err(format!("{key}.format is {other:?}: write ext4, ext3, ext2, vfat or swap")),
    };
    arguments.push(disk.node.display().to_string());
    let mut command = Command::new(program);
    command.args(&arguments).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    let ran = timeout_at(action.deadline, command.output()).await;
    let ran = ran.map_err(|_| format!("{}: the action's time is over: {program} was killed", name(disk)))?;
    let ran = ran.map_err(|error| format!("{}: {program} does not start: {error}", name(disk)))?;
    for line in [&ran.stdout, &ran.stderr].into_iter().flat_map(|said| said.split(|byte| *byte == b'\n')) {
        let line = String::from_utf8_lossy(line);
        // Progress is written over itself.
        let line = line.rsplit('\u{8}').next().unwrap_or_default().trim();
        if !line.is_empty() {
            lines.quote(line);
        }
    }
    match ran.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {program} {} ended with {}", name(disk), arguments.join(" "), ran.status)),
    }
}

fn mount(mount: &Mount, disk: &Disk, lines: &Lines) -> Result<(), String> {
    if mount.format == "swap" {
        lines.say(&format!("{}: swap space is not used by the installer", name(disk)));
        return Ok(());
    }
    Mounted::new(&disk.node, &mount.format, MountFlags::RDONLY)?.close()?;
    lines.say(&format!(
        "{}: its {} can be mounted (for {:?} of the installed system)",
        name(disk),
        mount.format,
        mount.point
    ));
    Ok(())
}

fn name(disk: &Disk) -> String {
    format!("disk {}", disk.node.display())
}

#[cfg(test)]
mod tests;
