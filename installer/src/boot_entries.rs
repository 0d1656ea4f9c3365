//! The boot entries of a UEFI firmware (UEFI 2.10, 3.1.3) that an installation has made stale: `Boot####` whose partition was on a disk
//! that has been written anew. Some firmware stops at such an entry, or starts over, and never comes to the new system's own program
//! (`\EFI\BOOT\BOOTX64.EFI`), which needs no entry.
//!
//! An entry is removed if its device path names a partition by its GUID, on a local disk, and no disk has a partition of that GUID. All
//! others stay: of the network, of USB and other media, of the firmware's own programs, by a path that is not understood. Nothing is
//! removed while it is not known what is on every disk: one that cannot be read, or a controller that no driver has taken.

use crate::disks::{Disks, Known};
use crate::lines::Lines;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel shows the firmware's variables.
pub const FOLDER: &str = "/sys/firmware/efi/efivars";
/// Whose variables those are that UEFI itself defines.
const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
const ORDER: &str = "BootOrder";
/// In front of a variable's value: its attributes.
const ATTRIBUTES: usize = 4;

type Guid = [u8; 16];

/// Nodes of a device path (UEFI 2.10, 10.3): type and subtype.
mod node {
    pub(super) const HARDWARE: u8 = 1;
    pub(super) const ACPI: u8 = 2;
    pub(super) const MESSAGING: u8 = 3;
    pub(super) const MEDIA: u8 = 4;
    pub(super) const END: u8 = 0x7f;
    /// ATAPI, SCSI, SATA, SAS, NVMe: disks of this server alone.
    pub(super) const LOCAL: [u8; 5] = [1, 2, 18, 22, 23];
    pub(super) const HARD_DRIVE: u8 = 1;
    pub(super) const FILE: u8 = 4;
    /// How a hard drive's node names its partition: by a GUID.
    pub(super) const BY_GUID: u8 = 2;
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    description: String,
    partition: Guid,
}

/// Says which are removed. What cannot be done is said too, and keeps nothing from going on: most firmware passes over such an entry.
pub fn tidy(variables: &Path, disks: &Disks, lines: &Lines) {
    if let Err(why) = removed(variables, disks, lines) {
        lines.say(&format!("boot entries of the firmware stay as they are: {why}"));
    }
}

fn removed(variables: &Path, disks: &Disks, lines: &Lines) -> Result<(), String> {
    let entries = entries(variables).map_err(|error| format!("{}: {error}", variables.display()))?;
    if entries.is_empty() {
        return Ok(());
    }
    let blind = disks.without_driver();
    if let Some(controller) = blind.first() {
        return Err(format!("no driver has taken the controller {controller}, and what is behind it is not known"));
    }
    let there = disks.partitions()?;
    for (number, entry) in entries.into_iter().filter(|(_, entry)| !there.contains(&entry.partition)) {
        let name = format!("Boot{number:04X}");
        remove(variables, number).map_err(|error| format!("{name}: {error}"))?;
        lines.say(&format!(
            "removed {name} of the firmware's boot entries, {:?}: no disk has its partition {}",
            entry.description,
            text(&entry.partition)
        ));
    }
    Ok(())
}

/// The GUIDs of a disk's partitions, but for those that another disk has too: copies of one image have the same.
pub fn own_partitions(disks: &Disks, disk: &Known) -> Result<Vec<String>, String> {
    let mut own = disks.partitions_of(disk)?;
    for other in disks.all().iter().filter(|other| other.name != disk.name && other.size_bytes > 0) {
        let others = disks.partitions_of(other)?;
        own.retain(|guid| !others.contains(guid));
    }
    Ok(own.iter().map(text).collect())
}

fn variable(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}-{GLOBAL}"))
}

/// Those that name a partition of a local disk, by their numbers.
fn entries(folder: &Path) -> io::Result<Vec<(u16, Entry)>> {
    let mut found = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        let Some(number) = file.file_name().to_str().and_then(number) else { continue };
        let bytes = fs::read(file.path())?;
        found.extend(bytes.get(ATTRIBUTES..).and_then(parse).map(|entry| (number, entry)));
    }
    found.sort_by_key(|(number, _)| *number);
    Ok(found)
}

/// Of `Boot0001-8be4df61-…`: four digits of base 16 in capitals.
fn number(file: &str) -> Option<u16> {
    let digits = file.strip_prefix("Boot")?.strip_suffix(GLOBAL)?.strip_suffix('-')?;
    let is_digit = |c: char| c.is_ascii_digit() || ('A'..='F').contains(&c);
    (digits.len() == 4 && digits.chars().all(is_digit)).then(|| u16::from_str_radix(digits, 16).ok())?
}

/// The order first: what is in it then is there.
fn remove(folder: &Path, number: u16) -> io::Result<()> {
    let path = variable(folder, ORDER);
    match fs::read(&path) {
        Ok(order) => {
            if let Some(without) = without(&order, number) {
                fs::write(&path, without)?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::remove_file(variable(folder, &format!("Boot{number:04X}")))
}

/// `None`: the order does not name it, or nothing else: firmware takes an order of nothing for a variable that is to be removed.
fn without(order: &[u8], number: u16) -> Option<Vec<u8>> {
    let (attributes, numbers) = order.split_at_checked(ATTRIBUTES)?;
    let kept: Vec<u8> =
        numbers.chunks_exact(2).filter(|pair| **pair != number.to_le_bytes()).flatten().copied().collect();
    (kept.len() < numbers.len() && !kept.is_empty()).then(|| [attributes, &kept].concat())
}

/// `EFI_LOAD_OPTION`: attributes, the length of its device paths, the description in UTF-16 with a zero at its end, those paths.
fn parse(option: &[u8]) -> Option<Entry> {
    let length = usize::from(u16::from_le_bytes(option.get(4..6)?.try_into().ok()?));
    let units: Vec<u16> = option[6..]
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .take_while(|unit| *unit != 0)
        .collect();
    let path = 6 + 2 * units.len() + 2;
    let partition = partition(option.get(path..path + length)?)?;
    Some(Entry { description: String::from_utf16_lossy(&units), partition })
}

/// Of the first of the paths, the one that is booted: which partition it names; `None`: it is no path to one on a local disk.
fn partition(mut path: &[u8]) -> Option<Guid> {
    let mut found = None;
    loop {
        let [kind, of, low, high, ..] = *path else { return None };
        let length = usize::from(u16::from_le_bytes([low, high]));
        let content = path.get(4..length)?;
        match (kind, of) {
            (node::END, _) => return found,
            (node::HARDWARE | node::ACPI, _) | (node::MEDIA, node::FILE) => {}
            (node::MESSAGING, of) if node::LOCAL.contains(&of) => {}
            (node::MEDIA, node::HARD_DRIVE) if found.is_none() => {
                // Number, first block and length; the signature, what kind of table, what kind of signature.
                let (signature, kinds) = content.get(20..)?.split_first_chunk::<16>()?;
                found = Some(*signature).filter(|_| kinds == [node::BY_GUID, node::BY_GUID]);
                found?;
            }
            _ => return None,
        }
        path = &path[length..];
    }
}

/// As it is written: the first three fields are little-endian in the bytes.
fn text(guid: &Guid) -> String {
    let hex = |bytes: &mut dyn Iterator<Item = &u8>| bytes.map(|byte| format!("{byte:02x}")).collect::<String>();
    [
        hex(&mut guid[..4].iter().rev()),
        hex(&mut guid[4..6].iter().rev()),
        hex(&mut guid[6..8].iter().rev()),
        hex(&mut guid[8..10].iter()),
        hex(&mut guid[10..].iter()),
    ]
    .join("-")
}

impl Disks {
    /// The GUIDs of the partitions of every disk.
    fn partitions(&self) -> Result<BTreeSet<Guid>, String> {
        let mut all = BTreeSet::new();
        // A drive without a medium has no size.
        for disk in self.all().iter().filter(|disk| disk.size_bytes > 0) {
            all.extend(self.partitions_of(disk)?);
        }
        Ok(all)
    }

    fn partitions_of(&self, disk: &Known) -> Result<Vec<Guid>, String> {
        let node = self.node(disk);
        let read = fs::File::open(&node).and_then(|file| imaging::gpt::partitions(&file, disk.size_bytes));
        read.map_err(|error| format!("disk {}: {error}", node.display()))
    }
}

#[cfg(test)]
pub(crate) mod tests;
