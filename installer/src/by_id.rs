//! The names of disks below `/dev/disk/by-id`, as udev makes them (60-persistent-storage.rules of systemd 252): there is no udev here, and
//! a disk that is meant by its serial number is the same one whatever the kernel calls it today.

use super::disks::Known;
use std::fs;
use std::path::Path;

pub const FOLDER: &str = "/dev/disk/by-id/";
/// Before a partition's number.
const PART: &str = "-part";
/// In the page of vital product data that has a disk's answer to IDENTIFY DEVICE (SAT-4, 12.4.2): where that begins.
const IDENTIFY: usize = 60;

/// The disk's name in that folder, and the number of a partition of it.
pub fn split(name: &str) -> (&str, Option<u32>) {
    let number = name.rsplit_once(PART).and_then(|(disk, number)| Some((disk, number.parse().ok()?)));
    number.map_or((name, None), |(disk, number)| (disk, Some(number)))
}

/// As the kernel calls it.
pub fn partition(disk: &str, number: u32) -> String {
    let separator = if disk.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
    format!("{disk}{separator}{number}")
}

/// `folder`: the disk's own, below `/sys`.
pub fn names(disk: &Known, folder: &Path) -> Vec<String> {
    let Known { serial, model, wwn, transport, .. } = disk;
    let mut names = Vec::new();
    let mut add = |prefix: &str, parts: &[&str]| {
        if parts.iter().all(|part| !part.is_empty()) {
            names.push(format!("{prefix}-{}", replaced(&parts.join("_"))));
        }
    };
    match *transport {
        "nvme" => {
            let namespace = fs::read_to_string(folder.join("nsid")).unwrap_or_default();
            add("nvme", &[wwn]);
            add("nvme", &[model, serial]);
            add("nvme", &[model, serial, namespace.trim()]);
        }
        "virtio" => add("virtio", &[serial]),
        _ => {
            let hex = wwn.strip_prefix("naa.").unwrap_or_default();
            if let Some([model, serial]) = identified(&folder.join("device/vpd_pg89")) {
                add("ata", &[&model, &serial]);
            } else if !hex.is_empty() {
                // The 3 is the designator's type in VPD page 0x83: NAA.
                add("scsi", &[&format!("3{hex}")]);
            }
            if !hex.is_empty() {
                add("wwn", &[&format!("0x{hex}")]);
            }
        }
    }
    names
}

/// Model and serial number of an ATA disk (ACS-4, 7.13.6): text whose bytes are swapped in each word.
fn identified(page: &Path) -> Option<[String; 2]> {
    let page = fs::read(page).ok()?;
    let text = |from: usize, to: usize| -> Option<String> {
        let words = page.get(IDENTIFY + 2 * from..IDENTIFY + 2 * to)?;
        let text: Vec<u8> = words.chunks(2).flat_map(|word| word.iter().rev().copied()).collect();
        Some(String::from_utf8_lossy(&text).trim_matches(|c: char| c == ' ' || c == '\0').to_owned())
    };
    Some([text(27, 47)?, text(10, 20)?])
}

/// What cannot stand in a link's name is an underscore, and so is each run of blanks.
fn replaced(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join("_");
    let stays = |c: char| c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c) || !c.is_ascii();
    text.chars().map(|c| if stays(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_named_as_the_kernel_does() {
        assert_eq!(split("nvme-eui.0025-part3"), ("nvme-eui.0025", Some(3)));
        assert_eq!(split("ata-Disk-partition_1"), ("ata-Disk-partition_1", None));
        assert_eq!((partition("nvme0n1", 3), partition("sda", 3)), ("nvme0n1p3".to_owned(), "sda3".to_owned()));
    }

    #[test]
    fn an_ata_disk_is_named_by_what_it_says_of_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut page = vec![0; IDENTIFY + 512];
        let mut put = |from: usize, to: usize, text: &str| {
            let text = format!("{text:<width$}", width = 2 * (to - from));
            for (at, byte) in text.bytes().enumerate() {
                page[IDENTIFY + 2 * from + (at ^ 1)] = byte;
            }
        };
        put(27, 47, "Samsung SSD 870  EVO 1TB");
        put(10, 20, "S5Y2NJ0R");
        let path = folder.path().join("page");
        fs::write(&path, page).expect("written");
        let [model, serial] = identified(&path).expect("a page");
        assert_eq!((model.as_str(), serial.as_str()), ("Samsung SSD 870  EVO 1TB", "S5Y2NJ0R"));
        assert_eq!(replaced(&format!("{model}_{serial}")), "Samsung_SSD_870_EVO_1TB_S5Y2NJ0R");
        fs::write(&path, [0; 100]).expect("written");
        assert_eq!(identified(&path), None);
    }
}
