use super::*;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
/// So long is the image.
const WRITTEN: u64 = 6 * MIB;

/// A sparse disk full of zeros but for these, with a byte of data behind each, if there is room.
fn disk(labels: &[(u64, &[u8])]) -> File {
    let disk = tempfile::tempfile().expect("a file");
    disk.set_len(SIZE).expect("its length");
    for (at, magic) in labels {
        disk.write_all_at(magic, *at).expect("written");
        if at + 1000 < SIZE {
            disk.write_all_at(b"d", at + 1000).expect("written");
        }
    }
    disk
}

fn has(disk: &File, at: u64, magic: &[u8]) -> bool {
    let (mut read, mut data) = (vec![0; magic.len()], *b"d");
    disk.read_exact_at(&mut read, at).expect("read");
    if at + 1000 < SIZE {
        disk.read_exact_at(&mut data, at + 1000).expect("read");
    }
    assert_eq!(data, *b"d", "what is no label stays");
    read == magic
}

/// Where each of them stands on a device of that size, as its own program puts it.
fn at_the_end(size: u64) -> [(&'static str, u64, Vec<u8>); 8] {
    let md = 0xa92b_4efc_u32.to_le_bytes().to_vec();
    let zfs = 0x00ba_b10c_u64.to_le_bytes().to_vec();
    [
        // mdadm's 0.90: the last whole 64 KiB but one.
        ("Linux RAID", (size & !0xffff) - 0x1_0000, md.clone()),
        // mdadm's 1.0: 8 KiB before the end, at a multiple of 4 KiB.
        ("Linux RAID", ((size / 512 - 16) & !7) * 512, md),
        // The last sector but one.
        ("Intel RAID", size - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00".to_vec()),
        // The last sector.
        ("DDF RAID", size - 512, 0xde11_de11_u32.to_be_bytes().to_vec()),
        // The third and the fourth label: of 256 KiB each, with uberblocks from their middle on.
        ("ZFS", (size & !0x3_ffff) - 0x8_0000 + 0x2_0000, zfs.clone()),
        ("ZFS", (size & !0x3_ffff) - 0x8_0000 + 0x2_0000 + 4096, zfs.clone()),
        ("ZFS", (size & !0x3_ffff) - 0x4_0000 + 0x2_0000, zfs.clone()),
        ("ZFS", (size & !0x3_ffff) - 0x4_0000 + 0x2_0000 + 8192, zfs),
    ]
}

fn at_the_beginning() -> [(&'static str, u64, Vec<u8>); 9] {
    let md = 0xa92b_4efc_u32.to_le_bytes().to_vec();
    [
        // mdadm's 1.1 and 1.2.
        ("Linux RAID", 0, md.clone()),
        ("Linux RAID", 4096, md),
        // In one of the first four sectors, the second one by default.
        ("LVM", 512, b"LABELONE".to_vec()),
        ("ZFS", 0x2_0000, 0x00ba_b10c_u64.to_be_bytes().to_vec()),
        ("Btrfs", 0x1_0000 + 64, b"_BHRfS_M".to_vec()),
        ("LUKS", 0, b"LUKS\xba\xbe\0\x02".to_vec()),
        ("LUKS", 4 * MIB, b"SKUL\xba\xbe\0\x02".to_vec()),
        ("bcache", 4096 + 24, LABELS[10].magic.to_vec()),
        ("VDO", 0, b"dmvdo001".to_vec()),
    ]
}

#[test]
fn each_label_at_the_end_of_the_disk_is_cleared() {
    for (name, at, magic) in at_the_end(SIZE) {
        let disk = disk(&[(at, &magic[..])]);
        let found = clear(&disk, (WRITTEN, SIZE), &[], &[]).expect("cleared");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [name], "{at}");
        assert!(!has(&disk, at, &magic), "{name} at {at}");
    }
}

#[test]
fn each_label_at_either_end_of_an_old_partition_is_cleared() {
    let partition = 9 * MIB..40 * MIB + 512;
    let length = partition.end - partition.start;
    let all = at_the_beginning().into_iter().chain(at_the_end(length));
    for (name, at, magic) in all {
        let at = partition.start + at;
        let disk = disk(&[(at, &magic[..])]);
        assert!(
            clear(&disk, (WRITTEN, SIZE), &[], &[]).expect("read").is_empty(),
            "{at}: it is in the middle of the disk"
        );
        assert!(has(&disk, at, &magic));
        let found = clear(&disk, (WRITTEN, SIZE), std::slice::from_ref(&partition), &[]).expect("cleared");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [name], "{at}");
        assert!(!has(&disk, at, &magic), "{name} at {at}");
    }
}

#[test]
fn what_the_image_wrote_and_what_it_keeps_stays() {
    let md = 0xa92b_4efc_u32.to_le_bytes();
    let (own, old, data) = (2 * MIB, 7 * MIB, 30 * MIB);
    let disk = disk(&[(own, &md[..]), (old, &md[..]), (data + 512, &b"LABELONE"[..])]);
    let before = [MIB..3 * MIB, 5 * MIB..20 * MIB, data..SIZE];
    let found = clear(&disk, (WRITTEN, SIZE), &before, std::slice::from_ref(&(data..SIZE))).expect("cleared");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["Linux RAID"]);
    assert!(has(&disk, own, &md), "the image's own");
    assert!(!has(&disk, old, &md), "behind it");
    assert!(has(&disk, data + 512, b"LABELONE"), "in a partition that the new table has too");
}

#[test]
fn a_disk_that_the_image_fills_is_not_read() {
    let md = 0xa92b_4efc_u32.to_le_bytes();
    let disk = disk(&[(SIZE - 65536, &md[..])]);
    assert!(clear(&disk, (SIZE, SIZE), std::slice::from_ref(&(0..SIZE)), &[]).expect("nothing").is_empty());
    assert!(has(&disk, SIZE - 65536, &md));
    // A partition that ends behind the disk, as a kernel tells of a table that is wrong.
    assert!(clear(&disk, (0, SIZE), std::slice::from_ref(&(SIZE - 4096..2 * SIZE)), &[]).is_ok());
}
