//! Where the partitions of a disk go.

use super::metadata::Partition as Wanted;
use imaging::gpt::create::{Kind, Partition};

/// What each partition begins on a multiple of.
const ALIGNED: u64 = 1 << 20;
/// Of `size`, whatever the disk's sectors are.
const UNIT: u64 = 512;

/// `key`: as messages have the list; `usable`: from the first byte that a partition may have to that behind the last one.
pub(super) fn of(
    key: &str,
    partitions: &[Wanted],
    sector: u64,
    (first, end): (u64, u64),
) -> Result<Vec<Partition>, String> {
    let mut next = first;
    let mut all = Vec::with_capacity(partitions.len());
    for (at, wanted) in partitions.iter().enumerate() {
        let Wanted { label, number, size, .. } = wanted;
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
        let kind = match label.as_str() {
            "SWAP" => Kind::Swap,
            "BIOS" => Kind::BiosBoot,
            "EFI" => Kind::EfiSystem,
            _ => Kind::Linux,
        };
        all.push(Partition { name: label.clone(), kind, offset, length });
        next = offset + length;
    }
    Ok(all)
}
