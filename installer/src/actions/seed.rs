//! `seed`: what cloud-init in the installed system reads (NoCloud), as a small partition at the end of `DEST_DISK`, labelled CIDATA: an
//! image as its distribution ships it needs no metadata service then. What is on it comes from the server, over the session of this start:
//! user data stands in no Workflow and goes over no network in the clear. The disk has to have a GPT, which the image brings. A second
//! time writes into the same partition.

use super::image2disk::read_partitions;
use super::required;
use crate::agent::Action;
use crate::disks::{Disk, Disks};
use crate::lines::Lines;
use crate::session::Session;
use imaging::gpt::partition::{Place, at_the_end};
use imaging::nocloud;
use rustix::rand::{GetRandomFlags, getrandom};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor};
use std::os::unix::fs::FileExt;
use tokio::time::timeout_at;

/// Of the partition.
const NAME: &str = "cidata";

pub(super) async fn run(
    disks: &Disks,
    session: Option<&Session>,
    action: &Action,
    lines: &Lines,
) -> Result<(), String> {
    let disk = disks.find(required(action, "DEST_DISK", "the disk that has the image, as /dev/nvme0n1")?)?;
    let name = format!("disk {}", disk.node.display());
    if !disk.is_whole {
        return Err(format!("DEST_DISK is {}, a partition: write the disk", disk.node.display()));
    }
    let session = session.ok_or(
        "the server knows its agents by no session, and tells user data to nobody else: set boot.agents to session, or leave this action out",
    )?;
    let files = timeout_at(action.deadline, session.seed()).await;
    let files = files.map_err(|_| "the action's time is over, and the server has not told the cloud-init data")??;
    let told = files.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let place = disk.clone();
    let written = tokio::task::spawn_blocking(move || write(&place, &files)).await;
    let place = written.unwrap_or_else(|panic| Err(io::Error::other(panic)));
    let place = place.map_err(|error| format!("{name}: {error}"))?;
    read_partitions(&disk, lines).await?;
    lines.say(&format!("{name}: partition {} ({} bytes) has {told}", place.number, place.length));
    Ok(())
}

fn write(disk: &Disk, files: &BTreeMap<String, Vec<u8>>) -> io::Result<Place> {
    let sector = u16::try_from(disk.sector).map_err(io::Error::other)?;
    let mut volume = vec![0; usize::try_from(nocloud::BYTES).map_err(io::Error::other)?];
    nocloud::write(Cursor::new(&mut volume[..]), sector, files)?;
    let file = File::options().read(true).write(true).open(&disk.node)?;
    let place = at_the_end(&file, (disk.size_bytes, disk.sector), NAME, nocloud::BYTES, unique()?)?;
    file.write_all_at(&volume, place.offset)?;
    file.sync_all()?;
    Ok(place)
}

/// A random GUID (RFC 9562, 5.4), its first three fields in little endian as GPT has them.
pub(super) fn unique() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    if getrandom(&mut bytes, GetRandomFlags::empty())? < bytes.len() {
        return Err(io::Error::other("too few random bytes"));
    }
    bytes[7] = bytes[7] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(bytes)
}
