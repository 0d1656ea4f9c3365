//! Entries as firmware writes them, and disks whose tables sgdisk made.

use super::*;
use crate::disks::tests::Machine;
use std::fs::File;
use std::process::Command;

const MIB: u64 = 1 << 20;
const GONE: &str = "11111111-2222-3333-4444-555555555555";
const HERE: &str = "6B2C1E9A-0D3F-4B5A-8C7D-9E0F1A2B3C4D";

fn guid(text: &str) -> Guid {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let pairs =
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16).expect("hex"));
    let bytes: Vec<u8> = pairs.collect();
    let mut guid: Guid = bytes.try_into().expect("sixteen");
    for part in [0..4, 4..6, 6..8] {
        guid[part].reverse();
    }
    guid
}

fn node(kind: u8, of: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len() + 4).expect("short").to_le_bytes();
    [&[kind, of][..], &length, content].concat()
}

fn hard_drive(partition: &str) -> Vec<u8> {
    node(
        4,
        1,
        &[&1u32.to_le_bytes()[..], &2048u64.to_le_bytes(), &204_800u64.to_le_bytes(), &guid(partition), &[2, 2]]
            .concat(),
    )
}

fn by_disk_signature() -> Vec<u8> {
    node(4, 1, &[&[0; 20][..], &[7; 16], &[1, 1]].concat())
}

/// `\EFI\debian\shimx64.efi`, or what it is of.
fn file() -> Vec<u8> {
    let name: Vec<u8> = "\\EFI\\debian\\shimx64.efi\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    node(4, 4, &name)
}

fn pci() -> Vec<u8> {
    [node(2, 1, &[0xd0, 0x41, 3, 0x0a, 0, 0, 0, 0]), node(1, 1, &[0, 0x1d])].concat()
}

fn nvme() -> Vec<u8> {
    node(3, 23, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

fn option(description: &str, nodes: &[Vec<u8>]) -> Vec<u8> {
    let path = [nodes.concat(), node(0x7f, 0xff, &[])].concat();
    let name: Vec<u8> = description.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    let length = u16::try_from(path.len()).expect("short").to_le_bytes();
    // Active; behind the paths is what is the loader's own.
    [&1u32.to_le_bytes()[..], &length, &name, &path, b"more"].concat()
}

/// Of a variable: non-volatile, of boot services and of the running system.
fn write(folder: &Path, name: &str, value: &[u8]) {
    fs::write(variable(folder, name), [&7u32.to_le_bytes()[..], value].concat()).expect("written");
}

fn order(folder: &Path) -> Vec<u16> {
    let bytes = fs::read(variable(folder, ORDER)).expect("an order");
    assert_eq!(bytes[..4], 7u32.to_le_bytes());
    bytes[4..].chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("a folder")
        .map(|file| file.expect("a file").file_name().to_string_lossy().split('-').next().expect("a name").to_owned())
        .collect();
    names.sort();
    names
}

/// The firmware of a server, on whose disk one of two systems is.
pub(crate) fn firmware() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let entries: [(&str, &[Vec<u8>]); 13] = [
        ("before", &[hard_drive(GONE), file()]),
        ("before, by its whole path", &[pci(), nvme(), hard_drive(GONE), file()]),
        ("installed", &[hard_drive(HERE), file()]),
        ("network", &[pci(), node(3, 11, &[0; 33]), node(3, 12, &[0; 23])]),
        ("HTTP", &[pci(), node(3, 11, &[0; 33]), node(3, 24, b"http://x/")]),
        ("USB", &[pci(), node(3, 5, &[0, 0]), hard_drive(GONE), file()]),
        ("iSCSI", &[pci(), node(3, 19, &[0; 14]), hard_drive(GONE)]),
        ("CD", &[pci(), node(4, 2, &[0; 20])]),
        ("setup", &[node(4, 7, &[0; 16]), node(4, 6, &[0; 16])]),
        ("legacy", &[node(5, 1, &[2, 0, 0, 0])]),
        ("MBR", &[by_disk_signature(), file()]),
        ("whole disk", &[pci(), nvme()]),
        ("cut", &[vec![4, 1, 42, 0, 1]]),
    ];
    for (at, (description, nodes)) in entries.iter().enumerate() {
        write(folder.path(), &format!("Boot{at:04X}"), &option(description, nodes));
    }
    let numbers: Vec<u8> = [3u16, 0, 2, 1, 12].into_iter().flat_map(u16::to_le_bytes).collect();
    write(folder.path(), ORDER, &numbers);
    write(folder.path(), "BootCurrent", &3u16.to_le_bytes());
    write(folder.path(), "Timeout", &[5, 0]);
    // Of a vendor, and of another form.
    fs::write(folder.path().join("Boot0000-11111111-93ca-11d2-aa0d-00e098032b8c"), option("x", &[hard_drive(GONE)]))
        .expect("written");
    fs::write(variable(folder.path(), "Boot000a"), option("x", &[hard_drive(GONE)])).expect("written");
    folder
}

/// A server with one disk of one partition.
pub(crate) fn server() -> Option<Machine> {
    let machine = Machine::empty();
    machine.disk("pci0/nvme/nvme0/nvme0n1", 64 * MIB, &[]);
    machine.disk("pci0/ata1/sr0", 0, &[("removable", "1")]);
    let node = machine.dev("nvme0n1");
    File::create(&node).and_then(|file| file.set_len(64 * MIB)).expect("a disk");
    let mut made = Command::new("sgdisk");
    made.args(["--new=1:2048:+8M", "--typecode=1:ef00"]).arg(format!("--partition-guid=1:{HERE}")).arg(&node);
    let done = made.output().ok()?;
    assert!(done.status.success(), "{done:?}");
    Some(machine)
}

fn said(lines: &Lines) -> Vec<String> {
    lines.last().lines().map(str::to_owned).collect()
}

#[test]
fn entries_of_partitions_that_are_gone_are_removed_and_no_other() {
    let name = "entries_of_partitions_that_are_gone_are_removed_and_no_other";
    let Some(machine) = server() else {
        eprintln!("SKIP {name}: sgdisk (Debian's gdisk) is not installed");
        return;
    };
    let (folder, lines) = (firmware(), Lines::default());
    let before = names(folder.path());
    tidy(folder.path(), &machine.disks(), &lines);
    assert_eq!(order(folder.path()), [3, 2, 12], "the order of those that stay is theirs");
    let gone: Vec<_> = before.iter().filter(|name| !names(folder.path()).contains(name)).collect();
    // The vendor's variable has the number of one of them.
    assert_eq!(gone, ["Boot0001"]);
    assert!(!variable(folder.path(), "Boot0000").exists());
    assert_eq!(names(folder.path()).len() + 2, before.len());
    let expected = |number: &str, description: &str| {
        format!("removed {number} of the firmware's boot entries, {description:?}: no disk has its partition {GONE}")
    };
    assert_eq!(said(&lines), [expected("Boot0000", "before"), expected("Boot0001", "before, by its whole path")]);
    let again = Lines::default();
    tidy(folder.path(), &machine.disks(), &again);
    assert_eq!(said(&again), Vec::<String>::new());
}

#[test]
fn nothing_is_removed_while_what_is_on_a_disk_is_not_known() {
    let name = "nothing_is_removed_while_what_is_on_a_disk_is_not_known";
    let unread = |machine: &Machine, why: &str| {
        let (folder, lines) = (firmware(), Lines::default());
        let before = names(folder.path());
        tidy(folder.path(), &machine.disks(), &lines);
        assert_eq!((names(folder.path()), order(folder.path())), (before, vec![3, 0, 2, 1, 12]));
        let said = said(&lines);
        assert!(
            said.len() == 1 && said[0].starts_with("boot entries of the firmware stay") && said[0].contains(why),
            "{said:?}"
        );
    };
    let Some(machine) = server() else {
        eprintln!("SKIP {name}: sgdisk (Debian's gdisk) is not installed");
        return;
    };
    machine.controller("0000:03:00.0", "0x010700", false);
    unread(&machine, "0000:03:00.0");
    let machine = server().expect("sgdisk");
    machine.disk("pci0/ata1/sda", 64 * MIB, &[]);
    // It has not the size that the kernel tells.
    unread(&machine, "sda: failed to fill whole buffer");
    let damaged = File::create(machine.dev("sda")).expect("a disk");
    damaged.set_len(64 * MIB).expect("sized");
    std::os::unix::fs::FileExt::write_all_at(&damaged, b"EFI PART", 512).expect("written");
    unread(&machine, "sda: its partition table");
}

#[test]
fn a_server_without_such_entries_is_asked_nothing() {
    let (folder, lines) = (tempfile::tempdir().expect("a folder"), Lines::default());
    write(folder.path(), "Boot0000", &option("network", &[pci(), node(3, 11, &[0; 33])]));
    let machine = Machine::empty();
    machine.controller("0000:03:00.0", "0x010700", false);
    tidy(folder.path(), &machine.disks(), &lines);
    assert_eq!(said(&lines), Vec::<String>::new());
}

#[test]
fn the_order_never_becomes_empty() {
    let order = |numbers: &[u16]| {
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        [&7u32.to_le_bytes()[..], &numbers].concat()
    };
    assert_eq!(without(&order(&[1, 2, 1]), 1), Some(order(&[2])));
    assert_eq!(without(&order(&[1]), 1), None);
    assert_eq!(without(&order(&[2]), 1), None);
    assert_eq!(without(&[7], 1), None);
}

#[test]
fn whatever_firmware_has_written_is_read_or_passed_over() {
    let whole = option("before", &[pci(), nvme(), hard_drive(GONE), file()]);
    assert_eq!(parse(&whole).map(|entry| entry.partition), Some(guid(GONE)));
    for length in 0..whole.len() {
        let cut = parse(&whole[..length]);
        assert!(cut.is_none() || length >= whole.len() - b"more".len(), "{length}");
        let mut other = whole.clone();
        for value in [0, 1, 3, 4, 0x7f, 0xff] {
            other[length] = value;
            let _ = parse(&other);
        }
    }
    assert_eq!(text(&guid(GONE)), GONE);
}
