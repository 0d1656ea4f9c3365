//! Labels of arrays, volume groups and pools that a disk was a part of, behind the image that was written onto it, or what was wiped.

use crate::disks::{Disk, Disks};
use crate::lines::Lines;
use std::fs::File;
use std::io;
use std::ops::Range;

/// `before`: the partitions of the disk until then; `end`: of the image, or of what was wiped. A partition that the image's own table has where one was before is
/// meant to stay, labels and all, if it is behind the image: so a Template keeps data on the disk of the system.
pub(super) async fn clear(
    (disks, disk): (&Disks, &Disk),
    before: Vec<Range<u64>>,
    end: u64,
    lines: &Lines,
) -> Result<(), String> {
    let kept = kept(&before, disks.partition_places(disk), end);
    let place = disk.clone();
    let cleared = tokio::task::spawn_blocking(move || {
        let file = File::options().read(true).write(true).open(&place.node)?;
        imaging::labels::clear(&file, (end, place.size_bytes), &before, &kept)
    });
    let cleared = cleared.await.unwrap_or_else(|panic| Err(io::Error::other(panic)));
    let name = format!("disk {}", disk.node.display());
    let cleared = cleared.map_err(|error| format!("{name}: clearing old labels: {error}"))?;
    if !cleared.is_empty() {
        let all: Vec<_> = cleared.into_iter().collect();
        lines.say(&format!("{name}: cleared old labels: {}", all.join(", ")));
    }
    Ok(())
}

fn kept(before: &[Range<u64>], now: Vec<Range<u64>>, end: u64) -> Vec<Range<u64>> {
    let was_there = |place: &Range<u64>| before.iter().any(|old| old.start == place.start);
    now.into_iter().filter(|place| place.start >= end && was_there(place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::tests::Machine;
    use std::os::unix::fs::FileExt;
    use std::slice::from_ref;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 64 * MIB;

    #[test]
    fn a_partition_behind_the_image_that_was_there_before_is_kept() {
        let before = [MIB..10 * MIB, 30 * MIB..60 * MIB];
        let now = vec![MIB..4 * MIB, 6 * MIB..20 * MIB, 30 * MIB..64 * MIB];
        assert_eq!(kept(&before, now.clone(), 5 * MIB), from_ref(&(30 * MIB..64 * MIB)));
        assert!(kept(&before, now.clone(), 40 * MIB).is_empty(), "the image reaches into it");
        assert!(kept(&[], now, 0).is_empty(), "nothing was there");
    }

    /// On a file as its node: an array's superblock at its end, and a volume group's label in a partition that only the old table had.
    #[tokio::test]
    async fn labels_behind_the_image_are_cleared_and_told() {
        let machine = Machine::empty();
        machine.disk("pci0/ata1/sda", SIZE, &[]);
        machine.partition("pci0/ata1/sda", "sda2", 20 * MIB..40 * MIB);
        let node = machine.dev("sda");
        let disks = machine.disks();
        let file = File::options().read(true).write(true).open(&node).expect("its node");
        file.set_len(SIZE).expect("its length");
        let labels: [(u64, &[u8]); 3] =
            [(MIB, &[0xfc, 0x4e, 0x2b, 0xa9]), (20 * MIB + 512, b"LABELONE"), (SIZE - 8192, &[0xfc, 0x4e, 0x2b, 0xa9])];
        for (at, magic) in labels {
            file.write_all_at(magic, at).expect("written");
        }
        let disk = disks.find(&node.display().to_string()).expect("the disk");
        let before = disks.partition_places(&disk);
        assert_eq!(before, from_ref(&(20 * MIB..40 * MIB)));
        // The new table has none there.
        machine.remove_partition("pci0/ata1/sda", "sda2");
        let lines = Lines::default();
        clear((&disks, &disk), before, 8 * MIB, &lines).await.expect("cleared");
        assert!(lines.last().ends_with("cleared old labels: LVM, Linux RAID"), "{}", lines.last());
        let is_there = labels.map(|(at, magic)| {
            let mut read = vec![0; magic.len()];
            file.read_exact_at(&mut read, at).expect("read");
            read == magic
        });
        assert_eq!(is_there, [true, false, false], "the image's own stays");
    }
}
