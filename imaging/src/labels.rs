//! Labels by which a system assembles arrays, volume groups and pools by itself, left on a disk by what it was a part of before. An image
//! overwrites those at the disk's beginning. Those at its end, and at both ends of its old partitions, are behind the image, and the
//! initramfs of the new system may find them once a partition begins or ends where an old one did.
//!
//! Cleared is the sector that has the label's magic number; nothing else of it is of use then. Data stays.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// What is looked through at the end of a disk: RAID's are within its last 128 KiB, ZFS's within 512 KiB, and a partition may have ended some MiB
/// before the disk.
pub const END: u64 = 16 << 20;
/// And at either end of a partition: the second header of LUKS is up to 4 MiB behind its beginning.
pub const PARTITION: u64 = 8 << 20;

const SECTOR: u64 = 512;
const AT_ONCE: u64 = 1 << 20;

struct Label {
    name: &'static str,
    /// Within a sector.
    at: usize,
    magic: &'static [u8],
}

const fn label(name: &'static str, at: usize, magic: &'static [u8]) -> Label {
    Label { name, at, magic }
}

/// In either order of bytes where the label's writer chooses it.
const LABELS: [Label; 13] = [
    // 0.90, at the last 64 KiB but one, or less; 1.0, 8 KiB before the end; 1.1 at the beginning, 1.2 4 KiB behind it.
    label("Linux RAID", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    label("Linux RAID", 0, &[0xa9, 0x2b, 0x4e, 0xfc]),
    label("LVM", 0, b"LABELONE"),
    label("Intel RAID", 0, b"Intel Raid ISM Cfg Sig. "),
    label("DDF RAID", 0, &[0xde, 0x11, 0xde, 0x11]),
    // Up to 128 in each of a pool's four labels.
    label("ZFS", 0, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]),
    label("ZFS", 0, &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c]),
    label("Btrfs", 64, b"_BHRfS_M"),
    label("LUKS", 0, b"LUKS\xba\xbe"),
    label("LUKS", 0, b"SKUL\xba\xbe"),
    label(
        "bcache",
        24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
    ),
    label("Ceph OSD", 0, b"bluestore block device\n"),
    label("VDO", 0, b"dmvdo001"),
];

/// Clears them behind the first `written` bytes: at the end of the disk, and at both ends of the partitions it had `before`. What is in
/// one of `kept` stays. Their names.
pub fn clear(
    disk: &File,
    (written, size): (u64, u64),
    before: &[Range<u64>],
    kept: &[Range<u64>],
) -> io::Result<BTreeSet<&'static str>> {
    let written = written.next_multiple_of(SECTOR);
    let ends = before.iter().flat_map(|partition| {
        let last = partition.end.saturating_sub(PARTITION).max(partition.start);
        [partition.start..partition.end.min(partition.start.saturating_add(PARTITION)), last..partition.end]
    });
    let mut found = BTreeSet::new();
    for place in ends.chain(std::iter::once(size.saturating_sub(END)..size)) {
        let place = place.start.max(written)..place.end.min(size);
        clear_in(disk, place, kept, &mut found)?;
    }
    if !found.is_empty() {
        disk.sync_all()?;
    }
    Ok(found)
}

fn clear_in(disk: &File, place: Range<u64>, kept: &[Range<u64>], found: &mut BTreeSet<&'static str>) -> io::Result<()> {
    let (mut at, end) = (place.start.next_multiple_of(SECTOR), place.end - place.end % SECTOR);
    while at < end {
        let length = AT_ONCE.min(end - at);
        let mut piece = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        disk.read_exact_at(&mut piece, at)?;
        for (sector, offset) in piece.chunks(SECTOR as usize).zip((at..).step_by(SECTOR as usize)) {
            let is_kept = || kept.iter().any(|kept| kept.contains(&offset));
            if let Some(name) = label_of(sector).filter(|_| !is_kept()) {
                disk.write_all_at(&[0; SECTOR as usize], offset)?;
                found.insert(name);
            }
        }
        at += length;
    }
    Ok(())
}

fn label_of(sector: &[u8]) -> Option<&'static str> {
    let has = |label: &&Label| sector.get(label.at..).is_some_and(|rest| rest.starts_with(label.magic));
    LABELS.iter().find(has).map(|label| label.name)
}

#[cfg(test)]
mod tests;
