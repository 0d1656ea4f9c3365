//! A partition at the disk's end, known by its name: where there is one of that name already, that one. Those before it may grow up to it.

use super::{Table, at, put, u32_at, u64_at, wrong};
use std::fs::File;
use std::io;

/// What a partition begins on a multiple of.
const ALIGNED: u64 = 1 << 20;
/// Microsoft basic data, EBD0A0A2-B9E5-4433-87C0-68B6B72699C7, which is that of FAT file systems: its bytes as they stand in an entry.
const BASIC_DATA: [u8; 16] =
    [0xa2, 0xa0, 0xd0, 0xeb, 0xe5, 0xb9, 0x33, 0x44, 0x87, 0xc0, 0x68, 0xb6, 0xb7, 0x26, 0x99, 0xc7];

/// Fields of an entry, by their offsets.
pub(super) mod field {
    pub(in crate::gpt) const TYPE: usize = 0;
    pub(in crate::gpt) const UNIQUE: usize = 16;
    pub(in crate::gpt) const FIRST: usize = 32;
    pub(in crate::gpt) const LAST: usize = 40;
    pub(in crate::gpt) const NAME: usize = 56;
    pub(in crate::gpt) const END: usize = 128;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub number: usize,
    pub offset: u64,
    pub length: u64,
}

/// `unique`: the new partition's own GUID. The file system in it is the caller's to write.
pub fn at_the_end(
    disk: &File,
    (size_bytes, sector): (u64, u64),
    name: &str,
    length: u64,
    unique: [u8; 16],
) -> io::Result<Place> {
    let Some(mut table) = Table::read(disk, size_bytes, sector)? else {
        return Err(wrong("it has no GPT, and so no place for one more partition".to_owned()));
    };
    table.fit()?;
    let size = u32_at(&table.header, at::ENTRY_SIZE) as usize;
    if size < field::END {
        return Err(wrong(format!("the entries of its partition table have {size} bytes")));
    }
    let (name, length) = (encoded(name), length.next_multiple_of(ALIGNED));
    let all = || table.entries[..table.used].chunks_exact(size).enumerate();
    let there = || all().filter(|(_, entry)| entry[field::TYPE..field::UNIQUE] != [0; 16]);
    let place = |at: usize, first: u64, last: u64| Place {
        number: at + 1,
        offset: first * sector,
        length: (last + 1).saturating_sub(first) * sector,
    };
    let is_named = |entry: &[u8]| entry[field::NAME..field::END] == name;
    if let Some((at, entry)) = there().find(|(_, entry)| is_named(entry)) {
        let place = place(at, u64_at(entry, field::FIRST), u64_at(entry, field::LAST));
        let is_on_disk = place.offset.checked_add(place.length).is_some_and(|end| end <= size_bytes);
        if place.length < length || !is_on_disk {
            return Err(wrong(format!(
                "its partition {} has the name of this one, and {} bytes",
                place.number, place.length
            )));
        }
        return Ok(place);
    }
    let used_up_to = there().map(|(_, entry)| u64_at(entry, field::LAST)).max().unwrap_or_default();
    let usable_end = u64_at(&table.header, at::LAST_USABLE) + 1;
    let aligned = ALIGNED / sector;
    let first = usable_end.saturating_sub(length / sector) / aligned * aligned;
    if first <= used_up_to || first < u64_at(&table.header, at::FIRST_USABLE) {
        return Err(wrong(format!(
            "there are no {length} bytes behind its last partition, which ends with sector {used_up_to}"
        )));
    }
    // Behind all others: those keep their numbers.
    let at = there().map(|(at, _)| at + 1).max().unwrap_or_default();
    if all().nth(at).is_none() {
        return Err(wrong("its partition table has no entry left".to_owned()));
    }
    let last = first + length / sector - 1;
    let entry = &mut table.entries[at * size..(at + 1) * size];
    entry.fill(0);
    entry[field::TYPE..field::UNIQUE].copy_from_slice(&BASIC_DATA);
    entry[field::UNIQUE..field::FIRST].copy_from_slice(&unique);
    put(entry, field::FIRST, first);
    put(entry, field::LAST, last);
    entry[field::NAME..field::END].copy_from_slice(&name);
    table.write(disk)?;
    Ok(place(at, first, last))
}

/// UTF-16LE, 36 characters.
pub(super) fn encoded(name: &str) -> [u8; field::END - field::NAME] {
    let mut bytes = [0; field::END - field::NAME];
    for (into, unit) in bytes.chunks_exact_mut(2).zip(name.encode_utf16()) {
        into.copy_from_slice(&unit.to_le_bytes());
    }
    bytes
}
