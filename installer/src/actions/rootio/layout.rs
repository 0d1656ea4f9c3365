//! Where the partitions of a disk go.

use super::metadata::Partition as Wanted;
use imaging::gpt::create as gpt;
use imaging::mbr;

/// What each partition begins on a multiple of.
const ALIGNED: u64 = 1 << 20;
/// Of `size`, whatever the disk's sectors are.
const UNIT: u64 = 512;

/// A new partition table.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Table {
    Gpt(Vec<gpt::Partition>),
    Mbr(Vec<mbr::Partition>),
}

impl Table {
    /// Upstream's labels, and its types for them. `key`: as messages have the list.
    pub(super) fn gpt(key: &str, partitions: &[Wanted], (size_bytes, sector): (u64, u64)) -> Result<Self, String> {
        let usable = gpt::usable(size_bytes, sector).map_err(|error| error.to_string())?;
        let one = |(Wanted { label, .. }, (offset, length)): (&Wanted, (u64, u64))| {
            let kind = match label.as_str() {
                "SWAP" => gpt::Kind::Swap,
                "BIOS" => gpt::Kind::BiosBoot,
                "EFI" => gpt::Kind::EfiSystem,
                _ => gpt::Kind::Linux,
            };
            gpt::Partition { name: label.clone(), kind, offset, length }
        };
        Ok(Self::Gpt(partitions.iter().zip(places(key, partitions, sector, usable)?).map(one).collect()))
    }

    /// The same of a table that has no names.
    pub(super) fn mbr(key: &str, partitions: &[Wanted], (size_bytes, sector): (u64, u64)) -> Result<Self, String> {
        let count = partitions.len();
        if count > mbr::ENTRIES {
            return Err(format!("{key} are {count}, and an MBR has {}: write no more, or leave MBR out", mbr::ENTRIES));
        }
        let one = |(Wanted { label, .. }, (offset, length)): (&Wanted, (u64, u64))| {
            let kind = match label.as_str() {
                "SWAP" => mbr::Kind::Swap,
                "FAT32" | "FAT32_ACTIVE" => mbr::Kind::Fat32,
                _ => mbr::Kind::Linux,
            };
            let is_active = matches!(label.as_str(), "FAT32_ACTIVE" | "LINUX_ACTIVE");
            mbr::Partition { kind, is_active, offset, length }
        };
        let usable = mbr::usable(size_bytes, sector);
        Ok(Self::Mbr(partitions.iter().zip(places(key, partitions, sector, usable)?).map(one).collect()))
    }
}

/// Offset and length of each. `usable`: from the first byte that a partition may have to that behind the last one.
fn places(key: &str, partitions: &[Wanted], sector: u64, (first, end): (u64, u64)) -> Result<Vec<(u64, u64)>, String> {
    let mut next = first;
    let mut all = Vec::with_capacity(partitions.len());
    for (at, wanted) in partitions.iter().enumerate() {
        let Wanted { number, size, .. } = wanted;
        if *number != at + 1 {
            return Err(format!("{key}[{at}].number is {number}: write {}: they are numbered in their order", at + 1));
        }
        let offset = next.next_multiple_of(ALIGNED);
        let left = end.saturating_sub(offset);
        let length = match size {
            0 if at + 1 < partitions.len() => {
                return Err(format!(
                    "{key}[{at}].size is 0, all that is left, and another partition follows: write its size"
                ));
            }
            0 => left,
            size => size.saturating_mul(UNIT).checked_next_multiple_of(sector).unwrap_or(u64::MAX),
        };
        if length == 0 || length > left {
            return Err(format!("{key}[{at}].size is {size} sectors of {UNIT} bytes, and {} are left", left / UNIT));
        }
        all.push((offset, length));
        next = offset + length;
    }
    Ok(all)
}
