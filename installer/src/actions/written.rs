//! The disk that got a system, by what its firmware's boot options are compared with: a line of the action's report, which the controller
//! reads (`proto/golden/written.txt`).

use crate::boot_entries;
use crate::disks::{Disk, Disks};
use crate::lines::Lines;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Written {
    /// As this kernel calls it, in this boot.
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    serial: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    wwid: String,
    /// UEFI's device path of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The GUIDs of its partitions that no other disk has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    partitions: Vec<String>,
}

impl Written {
    fn line(&self) -> String {
        format!("written {}", serde_json::to_string(self).unwrap_or_default())
    }
}

/// Of a whole disk; of a partition nothing is told.
pub(super) fn tell(disks: &Disks, disk: &Disk, lines: &Lines) {
    let Some(known) = disks.all().into_iter().find(|known| known.name == disk.name) else { return };
    // Where a disk cannot be read, what else is on it is not known.
    let partitions = boot_entries::own_partitions(disks, &known).unwrap_or_default();
    let path = disks.uefi_path(&known);
    lines.report(Written { name: known.name, serial: known.serial, wwid: known.wwn, path, partitions }.line());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The controller reads these lines: its own test holds it to the same file.
    #[test]
    fn the_line_is_as_the_controller_reads_it() {
        let first = Written {
            name: "nvme0n1".to_owned(),
            serial: "S3X \"1\"".to_owned(),
            wwid: "eui.0025385b01234567".to_owned(),
            path: Some("PciRoot(0x0)/Pci(0x3,0x2)/Pci(0x0,0x0)/NVMe(0x1,67-45-23-01-5B-38-25-00)".to_owned()),
            partitions: vec!["bfbe3bd4-61a5-4f1b-8e5a-3f2b7a3f1c55".to_owned()],
        };
        let second = Written {
            name: "sda".to_owned(),
            serial: String::new(),
            wwid: String::new(),
            path: None,
            partitions: Vec::new(),
        };
        let lines = format!("{}\n{}\n", first.line(), second.line());
        assert_eq!(lines, include_str!("../../../proto/golden/written.txt"));
    }
}
