//! A partition table of a PC's BIOS (MBR) that an administrator describes, in the place of whatever the disk had.

use crate::gpt::none_any_more;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// As many as it has room for. Logical partitions, in an extended one, are not made.
pub const ENTRIES: usize = 4;
/// Where the disk's identifier is, and where the first entry is.
const DISK: usize = 440;
const FIRST: usize = 446;
const ENTRY: usize = 16;
const SIGNATURE: [u8; 2] = [0x55, 0xaa];
/// Of a place that is told by its sector's number, for cylinders, heads and sectors reach over 8 GB alone.
const BEYOND: [u8; 3] = [0xfe, 0xff, 0xff];

/// What a partition is for: the byte as it stands in an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Fat32 = 0x0c,
    Swap = 0x82,
    Linux = 0x83,
}

/// In bytes; multiples of the disk's sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub kind: Kind,
    /// A BIOS boots from it.
    pub is_active: bool,
    pub offset: u64,
    pub length: u64,
}

/// What partitions may have: the first byte, and that behind the last one. Sectors have numbers of 32 bits.
pub fn usable(size_bytes: u64, sector: u64) -> (u64, u64) {
    (sector, (size_bytes / sector).min(1 << 32) * sector)
}

/// `id`: tells the disk from others. Partitions are numbered in their order.
pub fn create(disk: &File, (size_bytes, sector): (u64, u64), partitions: &[Partition], id: [u8; 4]) -> io::Result<()> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if partitions.len() > ENTRIES {
        return Err(wrong(format!("{} partitions are more than {ENTRIES}", partitions.len())));
    }
    let mut table = vec![0; usize::try_from(sector).map_err(io::Error::other)?];
    table[DISK..DISK + id.len()].copy_from_slice(&id);
    table[FIRST + ENTRIES * ENTRY..][..SIGNATURE.len()].copy_from_slice(&SIGNATURE);
    let (mut behind, end) = usable(size_bytes, sector);
    for ((number, partition), entry) in (1..).zip(partitions).zip(table[FIRST..].chunks_exact_mut(ENTRY)) {
        let stop = partition.offset.checked_add(partition.length).filter(|stop| *stop <= end);
        let stop = stop.filter(|_| partition.offset >= behind && partition.length > 0);
        let no_room = || wrong(format!("there is no room for its partition {number}"));
        let [first, length] = [partition.offset, partition.length].map(|bytes| u32::try_from(bytes / sector));
        behind = stop.ok_or_else(no_room)?;
        entry[0] = if partition.is_active { 0x80 } else { 0 };
        entry[1..4].copy_from_slice(&BEYOND);
        entry[4] = partition.kind as u8;
        entry[5..8].copy_from_slice(&BEYOND);
        entry[8..12].copy_from_slice(&first.map_err(|_| no_room())?.to_le_bytes());
        entry[12..16].copy_from_slice(&length.map_err(|_| no_room())?.to_le_bytes());
    }
    none_any_more(disk, size_bytes)?;
    disk.write_all_at(&table, 0)?;
    disk.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpt::create as gpt;
    use std::process::Command;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 64 * MIB;

    fn disk(bytes: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(bytes).expect("sized");
        file
    }

    fn of(kind: Kind, is_active: bool, offset: u64, length: u64) -> Partition {
        Partition { kind, is_active, offset, length }
    }

    fn three() -> [Partition; 3] {
        [
            of(Kind::Fat32, true, MIB, 8 * MIB),
            of(Kind::Swap, false, 9 * MIB, 4 * MIB),
            of(Kind::Linux, false, 13 * MIB, SIZE - 13 * MIB),
        ]
    }

    #[test]
    fn blkid_and_sgdisk_find_the_table_and_no_other_one() {
        let disk = disk(SIZE);
        let root = gpt::Partition { name: "ROOT".to_owned(), kind: gpt::Kind::Linux, offset: MIB, length: MIB };
        gpt::create(disk.as_file(), (SIZE, 512), &[root], || Ok([7; 16])).expect("a GPT of before");
        create(disk.as_file(), (SIZE, 512), &three(), [1, 2, 3, 4]).expect("created");
        let said = |program: &str, arguments: &[&str]| {
            let ran = Command::new(program).args(arguments).arg(disk.path()).output().expect(program);
            String::from_utf8_lossy(&ran.stdout).into_owned()
        };
        let table = said("blkid", &["-p"]);
        assert!(table.contains("PTTYPE=\"dos\"") && table.contains("PTUUID=\"04030201\""), "{table}");
        let read = said("sgdisk", &["--print"]);
        assert!(read.contains("Found invalid GPT and valid MBR"), "{read}");
        for line in ["2048           18431   8.0 MiB     0700", "18432           26623   4.0 MiB     8200", "26624"] {
            assert!(read.contains(line), "{line}: {read}");
        }
        let bytes = std::fs::read(disk.path()).expect("read");
        assert!(!bytes.windows(8).any(|window| window == b"EFI PART"), "both headers of the GPT are none any more");
    }

    #[test]
    fn each_partition_has_its_type_and_one_is_active() {
        for sector in [512_u64, 4096] {
            let disk = disk(SIZE);
            create(disk.as_file(), (SIZE, sector), &three(), [0; 4]).expect("created");
            let bytes = std::fs::read(disk.path()).expect("read");
            let entries: Vec<_> = bytes[FIRST..FIRST + ENTRIES * ENTRY].chunks_exact(ENTRY).collect();
            let kinds: Vec<_> = entries.iter().map(|entry| (entry[0], entry[4])).collect();
            assert_eq!(kinds, [(0x80, 0x0c), (0, 0x82), (0, 0x83), (0, 0)]);
            let numbers = |at: usize| {
                let number = |entry: &&[u8]| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four"));
                entries.iter().map(number).map(u64::from).collect::<Vec<_>>()
            };
            assert_eq!(numbers(8), [MIB, 9 * MIB, 13 * MIB, 0].map(|bytes| bytes / sector));
            assert_eq!(numbers(12), [8 * MIB, 4 * MIB, SIZE - 13 * MIB, 0].map(|bytes| bytes / sector));
            assert_eq!(bytes[510..512], SIGNATURE);
        }
    }

    #[test]
    fn what_has_no_room_is_refused_and_nothing_is_written() {
        let disk = disk(SIZE);
        let five = vec![of(Kind::Linux, false, MIB, MIB); 5];
        let overlap = [of(Kind::Linux, false, MIB, 2 * MIB), of(Kind::Linux, false, 2 * MIB, MIB)];
        for partitions in [&five[..], &overlap, &[of(Kind::Linux, false, MIB, SIZE)], &[of(Kind::Linux, false, 0, MIB)]]
        {
            create(disk.as_file(), (SIZE, 512), partitions, [0; 4]).expect_err("refused");
            assert!(std::fs::read(disk.path()).expect("read").iter().all(|byte| *byte == 0));
        }
        let large = 3 << 40;
        assert_eq!(usable(large, 512), (512, 2 << 40), "the rest of it has no numbers");
        assert_eq!(usable(large, 4096), (4096, large));
    }
}
