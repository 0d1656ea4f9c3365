//! Which boot option is the disk that a server was installed on.
//!
//! The rules, in their order; one that finds options of several disks finds none:
//!
//! 1. The EUI-64 of the disk's NVMe namespace in the option's device path.
//! 2. The disk's serial number, as a whole word of the option's name.
//! 3. The disk's place: the whole device path, as the installer has it from the kernel. Where options have no EUI-64 the disk that is in that
//!    place now is taken for it: who moves disks between slots names the option.
//!
//! Where none finds one, the firmware's own order stands. An option of an installed system (`HD(…)`) is never chosen; one that names a
//! partition of this disk, and of no other one in the server, is known as this disk's.

use super::path::{self, Path, Place};
use super::{is_same_eui64, text};
use crate::host::BootOption;
use api::machine::InstalledDisk;

/// Where the kernel tells of no namespace it is the first.
const NSID: u32 = 1;

/// The option by which the firmware boots the disk itself.
pub fn of_disk<'a>(disk: &InstalledDisk, options: &'a [BootOption]) -> Option<&'a BootOption> {
    let place = disk.uefi_device_path.as_deref();
    let nsid = place.and_then(namespace).map_or(NSID, |path| path.nsid);
    let known = eui64(disk);
    let is_candidate = |option: &&BootOption| {
        option.enabled && option.present && !is_of_a_system(option) && !is_foreign(option, known)
    };
    let candidates: Vec<&BootOption> = options.iter().filter(is_candidate).collect();
    let has_eui64 = |option: &BootOption| {
        let seen = path_of(option).and_then(namespace).filter(|seen| seen.nsid == nsid);
        seen.and_then(|seen| seen.eui64).zip(known).is_some_and(|(seen, known)| is_same_eui64(seen, known))
    };
    let has_serial = |option: &BootOption| {
        let serial = disk.serial_number.as_deref();
        serial.is_some_and(|serial| text::names_serial(&option.display_name, serial, nsid))
    };
    let is_there = |option: &BootOption| {
        place.zip(path_of(option)).is_some_and(|(place, seen)| path::rest_of(seen, place).is_some())
    };
    let rules: [&dyn Fn(&BootOption) -> bool; 3] = [&has_eui64, &has_serial, &is_there];
    let found = rules.iter().map(|rule| candidates.iter().copied().filter(|option| rule(option)).collect::<Vec<_>>());
    one_disk(&found.into_iter().find(|found| !found.is_empty())?)
}

/// An option that a system on that disk made for itself: it names a partition alone.
pub fn is_system_of(disk: &InstalledDisk, option: &BootOption) -> bool {
    let guid = path_of(option).and_then(path::partition);
    option.enabled
        && option.present
        && guid.is_some_and(|guid| disk.partition_guids.iter().any(|known| known.eq_ignore_ascii_case(guid)))
}

/// A path that begins at a partition is of an entry that a system made, whatever its name tells.
fn is_of_a_system(option: &BootOption) -> bool {
    path_of(option).is_some_and(|path| path.starts_with("HD("))
}

fn path_of(option: &BootOption) -> Option<&str> {
    option.uefi_device_path.as_deref().map(str::trim)
}

fn namespace(text: &str) -> Option<Path<'_>> {
    match Path::parse(text) {
        Place::Namespace(path) => Some(path),
        Place::Opaque | Place::Other => None,
    }
}

/// As Linux names a namespace that has one: `eui.` and sixteen digits.
fn eui64(disk: &InstalledDisk) -> Option<[u8; 8]> {
    let digits = disk.wwid.as_deref()?.strip_prefix("eui.").filter(|digits| digits.len() == 16)?;
    Some(u64::from_str_radix(digits, 16).ok().filter(|eui64| *eui64 != 0)?.to_be_bytes())
}

/// The option says that it is another disk.
fn is_foreign(option: &BootOption, known: Option<[u8; 8]>) -> bool {
    let seen = path_of(option).and_then(namespace).and_then(|path| path.eui64).filter(|eui64| *eui64 != [0; 8]);
    seen.zip(known).is_some_and(|(seen, known)| !is_same_eui64(seen, known))
}

/// Of several options of one disk the one with the shortest path; `None`: they are of several, or nobody knows of which.
fn one_disk<'a>(found: &[&'a BootOption]) -> Option<&'a BootOption> {
    let shortest = found.iter().copied().min_by_key(|option| path_of(option).map_or(0, str::len))?;
    let is_of_it = |option: &&BootOption| {
        let both = path_of(option).zip(path_of(shortest));
        **option == *shortest || both.is_some_and(|(path, disk)| path::rest_of(path, disk).is_some())
    };
    found.iter().all(is_of_it).then_some(shortest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EUI64: &str = "60-33-01-21-9A-38-25-00";
    const PLACE: &str = "PciRoot(0x0)/Pci(0x3,0x2)/Pci(0x0,0x0)";

    fn options(all: &[(&str, &str)]) -> Vec<BootOption> {
        let option = |(at, (name, path)): (usize, &(&str, &str))| BootOption {
            reference: format!("Boot{at:04}"),
            display_name: (*name).to_owned(),
            uefi_device_path: Some((*path).to_owned()),
            enabled: true,
            present: true,
        };
        all.iter().enumerate().map(option).collect()
    }

    fn chosen(disk: &InstalledDisk, all: &[(&str, &str)]) -> Option<String> {
        of_disk(disk, &options(all)).map(|option| option.reference.clone())
    }

    fn nvme(path: &str) -> InstalledDisk {
        InstalledDisk {
            serial_number: Some("S64FNE0R300123".to_owned()),
            wwid: Some("eui.603301219a382500".to_owned()),
            uefi_device_path: Some(path.to_owned()),
            partition_guids: vec!["bfbe3bd4-61a5-4f1b-8e5a-3f2b7a3f1c55".to_owned()],
        }
    }

    #[test]
    fn by_the_disk_before_its_place() {
        let other = "NVMe(0x1,61-33-01-21-9A-38-25-00)";
        let disk = nvme(&format!("{PLACE}/NVMe(0x1,{EUI64})"));
        let moved = format!("PciRoot(0x0)/Pci(0x3,0x3)/Pci(0x0,0x0)/NVMe(0x1,{EUI64})");
        let there = format!("{PLACE}/{other}");
        assert_eq!(chosen(&disk, &[("UEFI a", &there), ("UEFI b", &moved)]).as_deref(), Some("Boot0001"));
        // The other way round, as some print it.
        let reversed = format!("{PLACE}/NVMe(0x1,00-25-38-9A-21-01-33-60)");
        assert_eq!(chosen(&disk, &[("UEFI a", &there), ("UEFI b", &reversed)]).as_deref(), Some("Boot0001"));
        assert_eq!(chosen(&disk, &[("UEFI a", &there)]), None, "another disk in its place");
        let named = ("UEFI SAMSUNG MZQL21T9 S64FNE0R300123 1", "VenHw(986D1755-B9D0)/Slot(2)");
        assert_eq!(chosen(&disk, &[("UEFI a", &there), named]).as_deref(), Some("Boot0001"));
        assert_eq!(chosen(&InstalledDisk::default(), &[named]), None, "nothing is known of the disk");
        let system = ("Debian on S64FNE0R300123 1", "HD(1,GPT,BFBE3BD4-61A5-4F1B-8E5A-3F2B7A3F1C55,0x800,0x100000)");
        assert_eq!(chosen(&disk, &[system]), None, "the entry of a system");
    }

    #[test]
    fn by_its_place_to_the_last_node() {
        let no_eui64 = "00-00-00-00-00-00-00-00";
        let at = |path: String| InstalledDisk { wwid: None, ..nvme(&path) };
        let disk = at(format!("{PLACE}/NVMe(0x1,{no_eui64})"));
        for (path, is_it) in [
            (format!("{PLACE}/NVMe(0x1,{no_eui64})"), true),
            ("pcieroot(0x0)/Pci(0x03,0x2)/Pci(0,0)/NVMe(0x1)/HD(1,GPT,X)/\\EFI\\a.efi".to_owned(), true),
            (format!("{PLACE}/NVMe(0x2,{no_eui64})"), false),
            (format!("{PLACE}/Pci(0x0,0x0)/NVMe(0x1,{no_eui64})"), false),
            (PLACE.to_owned(), false),
            ("PciRoot(0x1)/Pci(0x3,0x2)/Pci(0x0,0x0)/NVMe(0x1)".to_owned(), false),
        ] {
            assert_eq!(chosen(&disk, &[("UEFI Misc Device", &path)]).is_some(), is_it, "{path}");
        }
        let sata = at("PciRoot(0x0)/Pci(0x17,0x0)/Sata(0x4,0xFFFF,0x0)".to_owned());
        let ports = ["PciRoot(0x0)/Pci(0x17,0x0)/Sata(0x3,0x0,0x0)", "PciRoot(0x0)/Pci(0x17,0x0)/Sata(0x4,0x8000,0x0)"];
        assert_eq!(chosen(&sata, &ports.map(|port| ("UEFI Hard Disk", port))).as_deref(), Some("Boot0001"));
        // A NIC's option begins with a path, too.
        let virtio = at("PciRoot(0x0)/Pci(0x5,0x0)".to_owned());
        let nic = "PciRoot(0x0)/Pci(0x5,0x0)/MAC(525400AA0001,0x1)/IPv4(0.0.0.0)";
        assert_eq!(chosen(&virtio, &[("UEFI PXEv4", nic)]), None);
        assert!(chosen(&virtio, &[("UEFI Misc Device", "PciRoot(0x0)/Pci(0x5,0x0)")]).is_some());
    }

    #[test]
    fn what_several_disks_are_is_none() {
        let disk = nvme(&format!("{PLACE}/NVMe(0x1,{EUI64})"));
        let name = "UEFI SAMSUNG MZQL21T9 S64FNE0R300123 1";
        let all = [(name, "VenHw(986D1755-B9D0)"), (name, "VenHw(986D1755-B9D1)")];
        assert_eq!(chosen(&disk, &all), None);
        // Two of one disk: the disk, not its partition.
        let partition = format!("{PLACE}/NVMe(0x1,{EUI64})/HD(1,GPT,X)");
        let whole = format!("{PLACE}/NVMe(0x1,{EUI64})");
        assert_eq!(chosen(&disk, &[("a", &partition), ("b", &whole)]).as_deref(), Some("Boot0001"));
        let mut off = options(&[("b", &whole)]);
        off[0].enabled = false;
        assert_eq!(of_disk(&disk, &off), None, "the firmware skips it");
    }

    #[test]
    fn an_entry_of_a_system_by_its_partition() {
        let disk = nvme("");
        let is_own = |path: &str| is_system_of(&disk, &options(&[("debian", path)])[0]);
        assert!(is_own("HD(1,GPT,BFBE3BD4-61A5-4F1B-8E5A-3F2B7A3F1C55,0x800,0x100000)/\\EFI\\debian\\shimx64.efi"));
        assert!(!is_own("HD(1,GPT,AFBE3BD4-61A5-4F1B-8E5A-3F2B7A3F1C55,0x800,0x100000)/\\EFI\\debian\\shimx64.efi"));
        assert!(!is_own(PLACE));
    }
}
