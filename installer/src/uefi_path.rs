//! The device path of a disk as UEFI firmware has it (UEFI 2.10, section 10.6), from where the kernel has the disk: by that the firmware's
//! own boot option of the disk is known. It tells the place, not the disk; who compares it with an option's leaves out what is behind the
//! disk's node.
//!
//! `None` where the way is not one that every firmware writes alike: SAS and RAID adapters, whose nodes are a vendor's own, USB, Intel's VMD,
//! a root bridge that ACPI does not number.

use super::by_path::controller;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// `disk`: its own folder, below `sys`.
pub fn of(disk: &Path, sys: &Path) -> Option<String> {
    let place = real(disk, sys)?;
    let names: Vec<&str> = place.components().filter_map(normal).collect();
    let bridge = names.iter().position(|name| name.starts_with("pci0000:"))?;
    let folder: PathBuf = place.components().take_while(|part| normal(*part) != Some(names[bridge])).collect();
    let uid: u32 = text(&folder.join(names[bridge]), "firmware_node/uid")?.parse().ok()?;
    let mut path = format!("PciRoot(0x{uid:X})");
    let functions = names[bridge + 1..].iter().map_while(|name| function(name));
    let count = functions.clone().count();
    if count == 0 {
        return None;
    }
    for (device, function) in functions {
        path.push_str(&format!("/Pci(0x{device:X},0x{function:X})"));
    }
    path.push_str(&unit(&names[bridge + 1 + count..], disk, sys)?);
    Some(path)
}

/// A namespace that several controllers may reach has no place of its own: that of the controller with its number.
fn real(disk: &Path, sys: &Path) -> Option<PathBuf> {
    let above = disk.parent()?;
    let is_shared = above.file_name()?.to_str()?.starts_with("nvme-subsys");
    if is_shared { Some(controller(disk, above, sys)?.join(disk.file_name()?)) } else { Some(disk.to_owned()) }
}

/// What is behind the adapter.
fn unit(below: &[&str], disk: &Path, sys: &Path) -> Option<String> {
    match *below {
        ["nvme", _, _] => {
            let nsid: u32 = text(disk, "nsid")?.parse().ok()?;
            let eui64 = text(disk, "eui").map(|bytes| bytes.to_uppercase().replace(' ', "-"));
            // Firmware writes zeros for none.
            let eui64 = eui64.filter(|eui64| eui64.len() == 23).unwrap_or_else(|| ["00"; 8].join("-"));
            Some(format!("/NVMe(0x{nsid:X},{eui64})"))
        }
        [port, .., "block", _] if port.starts_with("ata") => {
            let number: u32 = text(&sys.join("class/ata_port").join(port), "port_no")?.parse().ok()?;
            // The kernel counts ports from 1. Not behind a port multiplier.
            Some(format!("/Sata(0x{:X},0xFFFF,0x0)", number.checked_sub(1)?))
        }
        [device, "block", _] if device.starts_with("virtio") => Some(String::new()),
        [device, host, _, address, "block", _] if device.starts_with("virtio") && host.starts_with("host") => {
            let numbers: Option<Vec<u32>> = address.split(':').map(|number| number.parse().ok()).collect();
            let [_, 0, target, unit] = *numbers? else { return None };
            Some(format!("/Scsi(0x{target:X},0x{unit:X})"))
        }
        _ => None,
    }
}

fn normal(part: Component<'_>) -> Option<&str> {
    match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    }
}

/// Device and function of `0000:3d:00.1`.
fn function(name: &str) -> Option<(u8, u8)> {
    let [domain, _, last] = *name.split(':').collect::<Vec<_>>() else { return None };
    let (device, function) = last.split_once('.').filter(|_| domain.len() == 4)?;
    Some((u8::from_str_radix(device, 16).ok()?, u8::from_str_radix(function, 16).ok()?))
}

fn text(folder: &Path, file: &str) -> Option<String> {
    fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk there, with files below its folder and below `/sys`.
    fn path(place: &str, files: &[(&str, &str)]) -> Option<String> {
        let sys = tempfile::tempdir().expect("a folder");
        let disk = sys.path().join("devices").join(place);
        fs::create_dir_all(&disk).expect("made");
        for (file, text) in files {
            let path = file.strip_prefix("sys/").map_or_else(|| disk.join(file), |below| sys.path().join(below));
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, format!("{text}\n")).expect("written");
        }
        of(&disk, sys.path())
    }

    const UID: (&str, &str) = ("sys/devices/pci0000:20/firmware_node/uid", "32");

    #[test]
    fn nvme_by_its_namespace() {
        let place = "pci0000:20/0000:20:03.2/0000:21:00.0/nvme/nvme0/nvme0n1";
        let known = [UID, ("nsid", "1"), ("eui", "60 33 01 21 9a 38 25 00")];
        let found = "PciRoot(0x20)/Pci(0x3,0x2)/Pci(0x0,0x0)/NVMe(0x1,60-33-01-21-9A-38-25-00)";
        assert_eq!(path(place, &known).as_deref(), Some(found));
        let found = "PciRoot(0x20)/Pci(0x3,0x2)/Pci(0x0,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)";
        assert_eq!(path(place, &known[..2]).as_deref(), Some(found), "without an EUI-64");
        assert_eq!(path(place, &known[1..]), None, "no number of the root bridge");
        assert_eq!(path(place, &[("sys/devices/pci0000:20/firmware_node/uid", "PC00"), known[1]]), None, "no number");
    }

    #[test]
    fn a_namespace_of_several_controllers_by_the_one_of_its_number() {
        let sys = tempfile::tempdir().expect("a folder");
        let real = sys.path().join("devices/pci0000:20/0000:20:03.2/nvme/nvme0");
        let all = sys.path().join("devices/virtual/nvme-subsystem/nvme-subsys0");
        let (disk, uid) = (all.join("nvme0n1"), sys.path().join("devices/pci0000:20/firmware_node"));
        for folder in [&real, &disk, &uid, &sys.path().join("class/nvme")] {
            fs::create_dir_all(folder).expect("made");
        }
        fs::write(disk.join("nsid"), "2\n").expect("written");
        fs::write(uid.join("uid"), "0\n").expect("written");
        for link in [sys.path().join("class/nvme/nvme0"), all.join("nvme0")] {
            std::os::unix::fs::symlink(&real, link).expect("linked");
        }
        let found = "PciRoot(0x0)/Pci(0x3,0x2)/NVMe(0x2,00-00-00-00-00-00-00-00)";
        assert_eq!(of(&disk, sys.path()).as_deref(), Some(found));
    }

    #[test]
    fn sata_by_its_port_and_virtio_by_its_function() {
        let ata = "pci0000:20/0000:20:1f.2/ata5/host4/target4:0:0/4:0:0:0/block/sda";
        let port = ("sys/class/ata_port/ata5/port_no", "5");
        assert_eq!(path(ata, &[UID, port]).as_deref(), Some("PciRoot(0x20)/Pci(0x1F,0x2)/Sata(0x4,0xFFFF,0x0)"));
        let disk = "pci0000:20/0000:20:05.0/virtio2/block/vda";
        assert_eq!(path(disk, &[UID]).as_deref(), Some("PciRoot(0x20)/Pci(0x5,0x0)"));
        let scsi = "pci0000:20/0000:20:05.0/virtio2/host2/target2:0:3/2:0:3:1/block/sda";
        assert_eq!(path(scsi, &[UID]).as_deref(), Some("PciRoot(0x20)/Pci(0x5,0x0)/Scsi(0x3,0x1)"));
    }

    #[test]
    fn a_way_that_firmware_writes_its_own_way_is_none() {
        for place in [
            "pci0000:20/0000:20:05.0/host0/target0:2:0/0:2:0:0/block/sda",
            "pci0000:20/0000:20:05.0/host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0/block/sda",
            "pci0000:20/0000:20:14.0/usb1/1-1/1-1:1.0/host3/target3:0:0/3:0:0:0/block/sdb",
            "pci0000:20/0000:20:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0/nvme/nvme0/nvme0n1",
            "platform/a/virtio0/block/vda",
            "virtual/nvme-fabrics/ctl/nvme0/nvme0n1",
        ] {
            assert_eq!(path(place, &[UID, ("nsid", "1")]), None, "{place}");
        }
    }
}
