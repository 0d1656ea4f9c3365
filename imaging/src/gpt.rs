//! The partition table (GPT; UEFI 2.10, 5.3) of an image that is smaller than its disk: its backup is moved to the disk's end, and a
//! partition is added there ([`partition`]); or a new table ([`create`]).
//!
//! An image has its backup GPT at its own end, which lies anywhere on a larger disk: firmware and tools call such a table
//! damaged, and no partition can grow behind it.

pub mod create;
pub mod partition;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const SIGNATURE: &[u8] = b"EFI PART";
/// What Linux reads at most.
const ENTRIES: u64 = 1 << 20;
const SECTORS: [u64; 2] = [512, 4096];

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backup {
    /// The disk has no GPT.
    NoTable,
    Moved,
}

/// Fields of a header, by their offsets.
mod at {
    pub(super) const HEADER_SIZE: usize = 12;
    pub(super) const HEADER_CRC: usize = 16;
    pub(super) const MY_LBA: usize = 24;
    pub(super) const ALTERNATE_LBA: usize = 32;
    pub(super) const FIRST_USABLE: usize = 40;
    pub(super) const LAST_USABLE: usize = 48;
    pub(super) const DISK: usize = 56;
    pub(super) const ENTRIES_LBA: usize = 72;
    pub(super) const ENTRY_COUNT: usize = 80;
    pub(super) const ENTRY_SIZE: usize = 84;
    pub(super) const ENTRIES_CRC: usize = 88;
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The backup of the disk's partition table goes to its last sectors, where `sector` is the disk's own size of one.
pub fn to_the_end(disk: &File, size_bytes: u64, sector: u64) -> io::Result<Backup> {
    let Some(mut table) = Table::read(disk, size_bytes, sector)? else { return Ok(Backup::NoTable) };
    table.fit()?;
    table.write(disk)?;
    Ok(Backup::Moved)
}

/// The GUID of each partition, as its bytes are in the table; none of a disk without a GPT. Of whatever sectors the table is.
pub fn partitions(disk: &File, size_bytes: u64) -> io::Result<Vec<[u8; 16]>> {
    let mut all = Vec::new();
    for sector in SECTORS.into_iter().filter(|sector| size_bytes >= 2 * sector) {
        if !read(disk, sector, 512)?.starts_with(SIGNATURE) {
            continue;
        }
        let Some(table) = Table::read(disk, size_bytes, sector)? else { continue };
        let size = u32_at(&table.header, at::ENTRY_SIZE) as usize;
        let entries = table.entries[..table.used].chunks_exact(size.max(1));
        // The type, which is zero where there is no partition; its own GUID.
        all.extend(entries.filter_map(|entry| {
            let (kind, rest) = entry.split_first_chunk::<16>()?;
            rest.first_chunk::<16>().copied().filter(|_| *kind != [0; 16])
        }));
    }
    Ok(all)
}

/// Neither header of a GPT, of whatever sectors, is left on a disk that gets a partition table of another kind: it would be taken for damaged.
pub(crate) fn none_any_more(disk: &File, size_bytes: u64) -> io::Result<()> {
    for sector in SECTORS.into_iter().filter(|sector| size_bytes >= 2 * sector) {
        for place in [sector, (size_bytes / sector - 1) * sector] {
            if read(disk, place, 512)?.starts_with(SIGNATURE) {
                disk.write_all_at(&[0; 512], place)?;
            }
        }
    }
    Ok(())
}

/// A table whose header and entries are what their checksums say.
struct Table {
    header: Vec<u8>,
    /// What the checksum covers.
    header_size: usize,
    /// Whole sectors, of which `used` bytes are entries.
    entries: Vec<u8>,
    used: usize,
    first_entries: u64,
    sectors: u64,
    sector: u64,
}

impl Table {
    /// `None`: the disk has no GPT.
    fn read(disk: &File, size_bytes: u64, sector: u64) -> io::Result<Option<Self>> {
        if size_bytes < 2 * sector {
            return Ok(None);
        }
        let header = read(disk, sector, sector)?;
        if !header.starts_with(SIGNATURE) {
            for other in SECTORS.into_iter().filter(|other| *other != sector && size_bytes >= 2 * other) {
                if read(disk, other, 512)?.starts_with(SIGNATURE) {
                    let message = format!(
                        "its partition table is made for sectors of {other} bytes, the disk has sectors of {sector}: \
                         it needs an image that was made for such a disk"
                    );
                    return Err(wrong(message));
                }
            }
            return Ok(None);
        }
        let header_size = u32_at(&header, at::HEADER_SIZE) as usize;
        if !(92..=header.len()).contains(&header_size) {
            return Err(wrong(format!("its partition table says that its header has {header_size} bytes")));
        }
        if u32_at(&header, at::HEADER_CRC) != header_crc(&header, header_size) || u64_at(&header, at::MY_LBA) != 1 {
            return Err(wrong("the header of its partition table is damaged".to_owned()));
        }
        let entries_bytes = u64::from(u32_at(&header, at::ENTRY_COUNT)) * u64::from(u32_at(&header, at::ENTRY_SIZE));
        let first_entries = u64_at(&header, at::ENTRIES_LBA);
        let sectors = size_bytes / sector;
        let entry_sectors = entries_bytes.div_ceil(sector);
        let end = first_entries.checked_add(entry_sectors);
        if entries_bytes == 0 || entries_bytes > ENTRIES || first_entries < 2 || end.is_none_or(|end| end > sectors) {
            return Err(wrong(format!(
                "its partition table has {entries_bytes} bytes of entries at sector {first_entries}"
            )));
        }
        let mut entries = read(disk, first_entries * sector, entry_sectors * sector)?;
        let used = usize::try_from(entries_bytes).expect("at most a megabyte");
        if crc32fast::hash(&entries[..used]) != u32_at(&header, at::ENTRIES_CRC) {
            return Err(wrong("the entries of its partition table are damaged".to_owned()));
        }
        entries[used..].fill(0);
        Ok(Some(Self { header, header_size, entries, used, first_entries, sectors, sector }))
    }

    fn backup_entries(&self) -> u64 {
        self.sectors - 1 - self.entries.len() as u64 / self.sector
    }

    /// It names the disk's last sector as its backup's, and what is before the backup's entries as usable.
    fn fit(&mut self) -> io::Result<()> {
        let backup_entries = self.backup_entries();
        if backup_entries <= u64_at(&self.header, at::FIRST_USABLE) {
            return Err(wrong("there is no room for the backup of its partition table".to_owned()));
        }
        put(&mut self.header, at::ALTERNATE_LBA, self.sectors - 1);
        put(&mut self.header, at::LAST_USABLE, backup_entries - 1);
        Ok(())
    }

    /// Both of them, and the protective MBR. The primary last: until then it names the backup of before, which nothing has overwritten.
    fn write(&mut self, disk: &File) -> io::Result<()> {
        let (last, backup_entries, sector) = (self.sectors - 1, self.backup_entries(), self.sector);
        let crc = crc32fast::hash(&self.entries[..self.used]);
        self.header[at::ENTRIES_CRC..at::ENTRIES_CRC + 4].copy_from_slice(&crc.to_le_bytes());
        let mut backup = self.header.clone();
        put(&mut backup, at::MY_LBA, last);
        put(&mut backup, at::ALTERNATE_LBA, 1);
        put(&mut backup, at::ENTRIES_LBA, backup_entries);
        for header in [&mut self.header, &mut backup] {
            let crc = header_crc(header, self.header_size);
            header[at::HEADER_CRC..at::HEADER_CRC + 4].copy_from_slice(&crc.to_le_bytes());
        }
        let mut protective = read(disk, 0, sector)?;
        whole_disk(&mut protective, last);
        disk.write_all_at(&self.entries, backup_entries * sector)?;
        disk.write_all_at(&backup, last * sector)?;
        disk.sync_all()?;
        disk.write_all_at(&self.entries, self.first_entries * sector)?;
        disk.write_all_at(&self.header, sector)?;
        disk.write_all_at(&protective, 0)?;
        disk.sync_all()
    }
}

/// The protective MBR covers the disk. One with partitions of its own (a hybrid) is left as it is.
fn whole_disk(mbr: &mut [u8], last: u64) {
    const FIRST: usize = 446;
    let others = &mbr[FIRST + 16..FIRST + 64];
    if mbr[FIRST + 4] == 0xee && others.iter().all(|byte| *byte == 0) {
        let length = u32::try_from(last).unwrap_or(u32::MAX);
        mbr[FIRST + 12..FIRST + 16].copy_from_slice(&length.to_le_bytes());
    }
}

fn header_crc(header: &[u8], size: usize) -> u32 {
    let mut header = header[..size].to_vec();
    header[at::HEADER_CRC..at::HEADER_CRC + 4].fill(0);
    crc32fast::hash(&header)
}

fn read(disk: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).expect("at most a megabyte")];
    disk.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
