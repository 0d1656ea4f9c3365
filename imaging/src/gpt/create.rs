//! A table of partitions that an administrator describes, in the place of whatever the disk had.

use super::partition::{encoded, field};
use super::{SIGNATURE, Table, at, put, wrong};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// As many as every tool has room for.
const ENTRIES: usize = 128;
const HEADER: usize = 92;

/// What a partition is for (UEFI 2.10, 5.3.3, and the Discoverable Partitions Specification): the GUID as it stands in an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 0FC63DAF-8483-4772-8E79-3D69D8477DE4
    Linux,
    /// 0657FD6D-A4AB-43C4-84E5-0933C84B4F4F
    Swap,
    /// 21686148-6449-6E6F-744E-656564454649
    BiosBoot,
    /// C12A7328-F81F-11D2-BA4B-00A0C93EC93B
    EfiSystem,
}

impl Kind {
    fn guid(self) -> [u8; 16] {
        match self {
            Self::Linux => *b"\xaf\x3d\xc6\x0f\x83\x84\x72\x47\x8e\x79\x3d\x69\xd8\x47\x7d\xe4",
            Self::Swap => *b"\x6d\xfd\x57\x06\xab\xa4\xc4\x43\x84\xe5\x09\x33\xc8\x4b\x4f\x4f",
            Self::BiosBoot => *b"Hah!IdontNeedEFI",
            Self::EfiSystem => *b"\x28\x73\x2a\xc1\x1f\xf8\xd2\x11\xba\x4b\x00\xa0\xc9\x3e\xc9\x3b",
        }
    }
}

/// In bytes; multiples of the disk's sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub name: String,
    pub kind: Kind,
    pub offset: u64,
    pub length: u64,
}

/// What partitions may have: the first byte, and that behind the last one.
pub fn usable(size_bytes: u64, sector: u64) -> io::Result<(u64, u64)> {
    let (sectors, entries) = (size_bytes / sector, ((ENTRIES * field::END) as u64).div_ceil(sector));
    match sectors > 2 * (entries + 2) {
        true => Ok(((2 + entries) * sector, (sectors - 1 - entries) * sector)),
        false => Err(wrong(format!("{size_bytes} bytes are too few for a partition table"))),
    }
}

/// `unique`: a GUID for the disk, then one for each partition. They are numbered in their order.
pub fn create(
    disk: &File,
    (size_bytes, sector): (u64, u64),
    partitions: &[Partition],
    mut unique: impl FnMut() -> io::Result<[u8; 16]>,
) -> io::Result<()> {
    let (first, end) = usable(size_bytes, sector)?;
    if partitions.len() > ENTRIES {
        return Err(wrong(format!("{} partitions are more than {ENTRIES}", partitions.len())));
    }
    let mut header = vec![0; usize::try_from(sector).map_err(io::Error::other)?];
    header[..SIGNATURE.len()].copy_from_slice(SIGNATURE);
    // Revision 1.0.
    header[8..12].copy_from_slice(&[0, 0, 1, 0]);
    for (at, value) in [(at::HEADER_SIZE, HEADER), (at::ENTRY_COUNT, ENTRIES), (at::ENTRY_SIZE, field::END)] {
        header[at..at + 4].copy_from_slice(&u32::try_from(value).map_err(io::Error::other)?.to_le_bytes());
    }
    put(&mut header, at::MY_LBA, 1);
    put(&mut header, at::FIRST_USABLE, first / sector);
    put(&mut header, at::ENTRIES_LBA, 2);
    header[at::DISK..at::DISK + 16].copy_from_slice(&unique()?);
    let used = ENTRIES * field::END;
    let mut entries = vec![0; used.next_multiple_of(header.len())];
    let mut behind = first;
    for (partition, entry) in partitions.iter().zip(entries.chunks_exact_mut(field::END)) {
        let stop = partition.offset.checked_add(partition.length).filter(|stop| *stop <= end);
        let stop = stop.filter(|_| partition.offset >= behind && partition.length > 0);
        let stop = stop.ok_or_else(|| wrong(format!("there is no room for its partition '{}'", partition.name)))?;
        entry[field::TYPE..field::UNIQUE].copy_from_slice(&partition.kind.guid());
        entry[field::UNIQUE..field::FIRST].copy_from_slice(&unique()?);
        put(entry, field::FIRST, partition.offset / sector);
        put(entry, field::LAST, stop / sector - 1);
        entry[field::NAME..field::END].copy_from_slice(&encoded(&partition.name));
        behind = stop;
    }
    let sectors = size_bytes / sector;
    let mut table = Table { header, header_size: HEADER, entries, used, first_entries: 2, sectors, sector };
    table.fit()?;
    // The table's writing sets its length.
    let mut protective = vec![0; table.header.len()];
    protective[446..462].copy_from_slice(&[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0]);
    protective[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.write_all_at(&protective, 0)?;
    table.write(disk)
}
