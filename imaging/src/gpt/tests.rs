//! Tables that sgdisk made and judges, and damaged ones.

use super::*;
use std::process::Command;

const IMAGE: u64 = 8 << 20;
const DISK: u64 = 24 << 20;

fn disk_of(bytes: &[u8], size: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().write_all_at(bytes, 0).expect("written");
    file.as_file().set_len(size).expect("sized");
    file
}

/// A table of our own making, for sectors of `sector` bytes, with one partition.
fn image(sector: u64) -> Vec<u8> {
    let mut image = vec![0; usize::try_from(IMAGE).expect("small")];
    image[446 + 4] = 0xee;
    image[446 + 8] = 1;
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    let sectors = IMAGE / sector;
    let entry_sectors = 128 * 128 / sector;
    let entries_at = usize::try_from(2 * sector).expect("small");
    image[entries_at..entries_at + 48].fill(7);
    let mut header = vec![0; 92];
    header[..8].copy_from_slice(SIGNATURE);
    header[8..12].copy_from_slice(&[0, 0, 1, 0]);
    header[12..16].copy_from_slice(&92u32.to_le_bytes());
    put(&mut header, at::MY_LBA, 1);
    put(&mut header, at::ALTERNATE_LBA, sectors - 1);
    put(&mut header, at::FIRST_USABLE, 2 + entry_sectors);
    put(&mut header, at::LAST_USABLE, sectors - 2 - entry_sectors);
    put(&mut header, at::ENTRIES_LBA, 2);
    header[80..84].copy_from_slice(&128u32.to_le_bytes());
    header[84..88].copy_from_slice(&128u32.to_le_bytes());
    let crc = crc32fast::hash(&image[entries_at..entries_at + 128 * 128]);
    header[88..92].copy_from_slice(&crc.to_le_bytes());
    let crc = header_crc(&header, 92);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    let at = usize::try_from(sector).expect("small");
    image[at..at + 92].copy_from_slice(&header);
    image
}

#[test]
fn the_backup_is_at_the_disks_end_and_each_header_names_the_other() {
    for sector in SECTORS {
        let file = disk_of(&image(sector), DISK);
        assert_eq!(to_the_end(file.as_file(), DISK, sector).expect("moved"), Backup::Moved);
        let last = DISK / sector - 1;
        let first = read(file.as_file(), sector, sector).expect("read");
        let backup = read(file.as_file(), last * sector, sector).expect("read");
        for (header, own, other) in [(&first, 1, last), (&backup, last, 1)] {
            assert_eq!((u64_at(header, at::MY_LBA), u64_at(header, at::ALTERNATE_LBA)), (own, other));
            assert_eq!(u32_at(header, at::HEADER_CRC), header_crc(header, 92));
            assert_eq!(u64_at(header, at::LAST_USABLE), last - 128 * 128 / sector - 1);
        }
        let entries = |header: &[u8]| read(file.as_file(), u64_at(header, at::ENTRIES_LBA) * sector, 128 * 128);
        assert_eq!(entries(&first).expect("read"), entries(&backup).expect("read"));
        let before = std::fs::read(file.path()).expect("read");
        to_the_end(file.as_file(), DISK, sector).expect("again");
        assert!(before == std::fs::read(file.path()).expect("read"), "a second time changes nothing");
    }
}

#[test]
fn a_disk_without_a_table_is_left_alone_and_one_for_other_sectors_is_refused() {
    let empty = disk_of(&[1; 100], DISK);
    let before = std::fs::read(empty.path()).expect("read");
    assert_eq!(to_the_end(empty.as_file(), DISK, 512).expect("nothing to do"), Backup::NoTable);
    assert!(before == std::fs::read(empty.path()).expect("read"));
    let file = disk_of(&image(512), DISK);
    let error = to_the_end(file.as_file(), DISK, 4096).expect_err("refused").to_string();
    assert!(error.contains("512") && error.contains("4096"), "{error}");
}

#[test]
fn a_damaged_table_is_refused_and_nothing_is_written() {
    let good = image(512);
    // Of the header all that its checksum covers, of the entries some.
    for at in (512..512 + 92).chain([1024, 1024 + 127, 1024 + 128 * 128 - 1]) {
        let mut bad = good.clone();
        bad[at] ^= 4;
        let file = disk_of(&bad, DISK);
        let before = std::fs::read(file.path()).expect("read");
        match to_the_end(file.as_file(), DISK, 512) {
            Err(_) => {}
            // Without its signature it is no table.
            Ok(Backup::NoTable) if at < 520 => {}
            other => panic!("byte {at}: {other:?}"),
        }
        assert!(before == std::fs::read(file.path()).expect("read"), "byte {at}");
    }
}

#[test]
fn sgdisk_finds_nothing_wrong() {
    let sgdisk = |arguments: &[&str], disk: &std::path::Path| {
        let done = Command::new("sgdisk").args(arguments).arg(disk).output().expect("sgdisk starts");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    if Command::new("sgdisk").arg("--version").output().is_err() {
        eprintln!("SKIP sgdisk_finds_nothing_wrong: sgdisk is not installed (package gdisk)");
        return;
    }
    let file = disk_of(&[], IMAGE);
    sgdisk(&["-n", "1:2048:4095", "-n", "2:4096:0"], file.path());
    file.as_file().set_len(DISK).expect("sized");
    let before = sgdisk(&["-v"], file.path());
    assert!(!before.contains("No problems found"), "the test shows nothing: {before}");
    to_the_end(file.as_file(), DISK, 512).expect("moved");
    let after = sgdisk(&["-v"], file.path());
    assert!(after.contains("No problems found"), "{after}");
}

/// As sgdisk finds and judges it; the one that was there keeps its number and place.
#[test]
fn a_partition_at_the_end_is_one_more_and_the_same_one_the_next_time() {
    use partition::at_the_end;
    for sector in SECTORS {
        let file = disk_of(&image(sector), DISK);
        let put = |length: u64| at_the_end(file.as_file(), (DISK, sector), "cidata", length, [9; 16]);
        let before = read(file.as_file(), 2 * sector, 128).expect("read");
        // The only entry of that image is no partition that can be: it ends far behind the disk.
        assert!(put(1 << 20).expect_err("no room").to_string().contains("last partition"));
        let mut good = image(sector);
        let entries_at = usize::try_from(2 * sector).expect("small");
        super::put(&mut good, entries_at + 32, 600);
        super::put(&mut good, entries_at + 40, 700);
        let crc = crc32fast::hash(&good[entries_at..entries_at + 128 * 128]);
        let at = usize::try_from(sector).expect("small");
        good[at + 88..at + 92].copy_from_slice(&crc.to_le_bytes());
        let crc = header_crc(&good[at..], 92);
        good[at + 16..at + 20].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(before.len(), 128);
        file.as_file().write_all_at(&good, 0).expect("written");
        let first = put(3 << 20).expect("added");
        assert_eq!((first.number, first.length, first.offset % (1 << 20)), (2, 3 << 20, 0));
        assert!(first.offset > 700 * sector && first.offset + first.length < DISK);
        let bytes = std::fs::read(file.path()).expect("read");
        assert_eq!(put(3 << 20).expect("there"), first);
        assert!(bytes == std::fs::read(file.path()).expect("read"), "a second time changes nothing");
        assert_eq!(bytes[entries_at..entries_at + 128], good[entries_at..entries_at + 128]);
        assert!(put(4 << 20).expect_err("it is too small").to_string().contains("partition 2"));
    }
}

#[test]
fn sgdisk_finds_the_partition_that_was_added() {
    let sgdisk = |arguments: &[&str], disk: &std::path::Path| {
        let done = Command::new("sgdisk").args(arguments).arg(disk).output().expect("sgdisk starts");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    if Command::new("sgdisk").arg("--version").output().is_err() {
        eprintln!("SKIP sgdisk_finds_the_partition_that_was_added: sgdisk is not installed (package gdisk)");
        return;
    }
    let file = disk_of(&[], IMAGE);
    sgdisk(&["-n", "14:2048:4095", "-n", "1:4096:0"], file.path());
    file.as_file().set_len(DISK).expect("sized");
    let place = partition::at_the_end(file.as_file(), (DISK, 512), "cidata", 4 << 20, [9; 16]).expect("added");
    assert_eq!(place.number, 15, "behind the last that is used");
    let verdict = sgdisk(&["-v"], file.path());
    assert!(verdict.contains("No problems found"), "{verdict}");
    let told = sgdisk(&["-i", "15"], file.path());
    assert!(told.contains("'cidata'") && told.contains("Microsoft basic data"), "{told}");
    assert!(told.contains(&format!("First sector: {}", place.offset / 512)), "{told}");
    assert!(partition::at_the_end(disk_of(&[], DISK).as_file(), (DISK, 512), "cidata", 1, [9; 16]).is_err());
}

#[test]
fn sgdisk_finds_a_new_table_whole() {
    use create::{Kind, Partition, create, usable};
    const MIB: u64 = 1 << 20;
    let partition = |name: &str, kind, offset, length| Partition { name: name.to_owned(), kind, offset, length };
    let mut all = vec![
        partition("BIOS", Kind::BiosBoot, MIB, MIB),
        partition("EFI", Kind::EfiSystem, 2 * MIB, 3 * MIB),
        partition("SWAP", Kind::Swap, 5 * MIB, MIB),
    ];
    for sector in SECTORS {
        let file = disk_of(&[0xff; 8192], DISK);
        let (_, end) = usable(DISK, sector).expect("room");
        all.truncate(3);
        all.push(partition("ROOT", Kind::Linux, 6 * MIB, end - 6 * MIB));
        let mut next = 0;
        let mut unique = || {
            next += 1;
            Ok([next; 16])
        };
        create(file.as_file(), (DISK, sector), &all, &mut unique).expect("created");
        let read = Table::read(file.as_file(), DISK, sector).expect("read").expect("a table");
        assert_eq!(u64_at(&read.header, at::LAST_USABLE) * sector + sector, end);
        for (overlap, length) in [(5 * MIB, MIB), (7 * MIB, DISK), (7 * MIB, 0)] {
            let with = [&all[..3], &[partition("more", Kind::Linux, overlap, length)]].concat();
            create(file.as_file(), (DISK, sector), &with, &mut unique).expect_err("no room");
        }
        if sector != 512 {
            continue;
        }
        let printed = Command::new("sgdisk").args(["--verify", "--print"]).arg(file.path()).output();
        let printed = printed.expect("sgdisk starts (package gdisk)");
        let text = String::from_utf8_lossy(&printed.stdout).into_owned();
        assert!(text.contains("No problems found"), "{text}");
        for line in ["EF02  BIOS", "EF00  EFI", "8200  SWAP", "8300  ROOT"] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}

#[test]
fn the_partitions_of_a_table_are_known_by_their_guids() {
    for sector in SECTORS {
        let file = disk_of(&image(sector), IMAGE);
        assert_eq!(partitions(file.as_file(), IMAGE).expect("read"), [[7; 16]], "{sector}");
        let mut damaged = image(sector);
        damaged[usize::try_from(2 * sector).expect("small") + 20] ^= 1;
        let file = disk_of(&damaged, IMAGE);
        assert!(partitions(file.as_file(), IMAGE).expect_err("damaged").to_string().contains("damaged"), "{sector}");
    }
    assert!(partitions(disk_of(&[1; 100], DISK).as_file(), DISK).expect("read").is_empty());
    assert!(partitions(disk_of(&[], 100).as_file(), 100).expect("read").is_empty());
}
