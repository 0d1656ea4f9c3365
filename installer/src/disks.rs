//! Which disk an action means, and whether it may be written.
//!
//! `DEST_DISK` is a path below `/dev`, as upstream has it (below `/dev/disk` those [`by_id`] and [`by_path`]), or `select:` and what is known of the disk:
//! `select:serial=S3X,min-size=100Gi`. Keys are serial, model, wwn, transport (nvme, virtio, sata, scsi), rotational
//! (true, false), min-size, max-size. Exactly one disk has to match; an error lists those that there are. Removable and USB
//! disks, what a BMC shows as a medium among them, are never written.

use super::{by_id, by_path, uefi_path};
use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Where the kernel tells of disks, and their nodes.
pub struct Disks {
    sys: PathBuf,
    dev: PathBuf,
    /// By name: what this installer was booted from.
    own: Option<String>,
}

/// A disk, or a partition of one, that may be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// As the kernel calls it: `vda`.
    pub name: String,
    pub node: PathBuf,
    pub size_bytes: u64,
    /// Bytes of a logical sector.
    pub sector: u64,
    /// Whether it gives up what it holds and reads zero then.
    pub discards: bool,
    pub is_whole: bool,
}

/// A whole disk, as the kernel tells of it.
pub struct Known {
    pub name: String,
    pub size_bytes: u64,
    pub serial: String,
    pub model: String,
    pub wwn: String,
    pub transport: &'static str,
    rotational: bool,
    /// It speaks ATA, by an adapter of its own or by one for SCSI.
    pub is_ata: bool,
    /// It is reached by a network, and may be another server's as well.
    pub is_remote: bool,
    /// Why it is never installed on.
    pub refused: Option<&'static str>,
}

/// Of [`Known::refused`].
pub const READ_ONLY: &str = "is read-only";
pub const USB: &str = "is a USB disk";

const SELECT: &str = "select:";

impl Disks {
    pub fn of_this_machine() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into(), own: None }
    }

    /// All but this one, which is no disk of the server.
    pub fn without(self, own: &Known) -> Self {
        Self { own: Some(own.name.clone()), ..self }
    }

    /// What `DEST_DISK` means.
    pub fn find(&self, wanted: &str) -> Result<Disk, String> {
        self.find_of("DEST_DISK", wanted)
    }

    /// What a key of that name means.
    pub fn find_of(&self, key: &str, wanted: &str) -> Result<Disk, String> {
        match wanted.strip_prefix(SELECT) {
            Some(terms) => {
                let name = self.select(key, terms)?;
                self.disk(key, &name, &self.dev.join(&name))
            }
            None => {
                if let Some(name) = self.linked(key, wanted) {
                    let name = name?;
                    return self.disk(key, &name, &self.dev.join(&name));
                }
                let node = fs::canonicalize(wanted)
                    .map_err(|error| format!("{key} {wanted}: {error}; the disks are:{}", self.list()))?;
                let name = node.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                self.disk(key, &name, &node)
            }
        }
    }

    /// A disk or a partition, by a name that udev would give it.
    fn linked(&self, key: &str, wanted: &str) -> Option<Result<String, String>> {
        let folder = [by_id::FOLDER, by_path::FOLDER].into_iter().find(|folder| wanted.starts_with(folder))?;
        let (link, number) = by_id::split(&wanted[folder.len()..]);
        let mut found = self.all();
        found.retain(|disk| self.links(disk, folder).iter().any(|known| known == link));
        Some(match (&found[..], number) {
            ([one], None) => Ok(one.name.clone()),
            ([one], Some(number)) => Ok(by_id::partition(&one.name, number)),
            (several, _) => {
                Err(format!("{key} {wanted}: it is {} disks; the disks are:{}", several.len(), self.list()))
            }
        })
    }

    /// The names of a disk in one of these folders.
    fn links(&self, disk: &Known, folder: &str) -> Vec<String> {
        let Ok(own) = fs::canonicalize(self.sys.join("block").join(&disk.name)) else { return Vec::new() };
        if folder == by_id::FOLDER { by_id::names(disk, &own) } else { by_path::names(&own, &self.sys) }
    }

    pub fn uefi_path(&self, disk: &Known) -> Option<String> {
        uefi_path::of(&fs::canonicalize(self.sys.join("block").join(&disk.name)).ok()?, &self.sys)
    }

    fn disk(&self, key: &str, name: &str, node: &Path) -> Result<Disk, String> {
        let class = self.sys.join("class/block").join(name);
        let class = fs::canonicalize(&class)
            .map_err(|_| format!("{key} {} is no disk; the disks are:{}", node.display(), self.list()))?;
        let is_whole = !class.join("partition").exists();
        let whole = if is_whole { class.clone() } else { class.parent().map(Path::to_owned).unwrap_or_default() };
        if let Some(why) = known(&whole).and_then(|known| known.refused) {
            return Err(format!("{key} {}: the disk {why} and is never written", node.display()));
        }
        let of = |folder: &Path, file: &str| number(&folder.join(file));
        let sectors = of(&class, "size").filter(|sectors| *sectors > 0);
        let sectors = sectors.ok_or_else(|| format!("{key} {}: it has no size", node.display()))?;
        Ok(Disk {
            name: name.to_owned(),
            node: node.to_owned(),
            size_bytes: sectors * 512,
            sector: of(&whole, "queue/logical_block_size").unwrap_or(512),
            discards: of(&whole, "queue/discard_max_bytes").is_some_and(|bytes| bytes > 0),
            is_whole,
        })
    }

    /// Where the partitions are that the kernel knows of a whole disk, in bytes.
    pub fn partition_places(&self, disk: &Disk) -> Vec<Range<u64>> {
        let folder = self.sys.join("class/block").join(&disk.name);
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let places = entries.filter(|entry| entry.join("partition").exists()).filter_map(|entry| {
            let (start, sectors) = (number(&entry.join("start"))?, number(&entry.join("size"))?);
            let start = start.checked_mul(512)?;
            Some(start..start.checked_add(sectors.checked_mul(512)?)?)
        });
        let mut places: Vec<Range<u64>> = places.collect();
        places.sort_by_key(|place| place.start);
        places
    }

    /// The node of a whole disk.
    pub fn node(&self, disk: &Known) -> PathBuf {
        self.dev.join(&disk.name)
    }

    pub fn all(&self) -> Vec<Known> {
        let entries = fs::read_dir(self.sys.join("block")).into_iter().flatten().flatten();
        let folders = entries.filter_map(|entry| fs::canonicalize(entry.path()).ok());
        let known = folders.filter_map(|folder| known(&folder));
        let mut all: Vec<Known> = known.filter(|disk| Some(&disk.name) != self.own.as_ref()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Controllers of disks that no driver has taken, by their PCI addresses: whatever is behind them is not seen. SATA's are not among
    /// them, for servers have them with nothing behind.
    pub fn without_driver(&self) -> Vec<String> {
        let entries = fs::read_dir(self.sys.join("bus/pci/devices")).into_iter().flatten().flatten();
        let devices = entries.filter(|entry| {
            let class = fs::read_to_string(entry.path().join("class")).unwrap_or_default();
            // Mass storage: SCSI, RAID, SAS, NVMe.
            let is_one = ["0x0100", "0x0104", "0x0107", "0x0108"].iter().any(|of_disks| class.starts_with(of_disks));
            is_one && !entry.path().join("driver").exists()
        });
        let mut all: Vec<String> = devices.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        all.sort();
        all
    }

    /// A line each: of a long one a report has the beginning.
    fn list(&self) -> String {
        let mut text = String::new();
        for disk in self.all() {
            let by_path = self.links(&disk, by_path::FOLDER).into_iter().next();
            let by_id = self.links(&disk, by_id::FOLDER).into_iter().min_by_key(String::len);
            let Known { name, size_bytes, serial, model, wwn, transport, rotational, refused, .. } = disk;
            let _ = write!(
                text,
                "\n{name}: {size_bytes} bytes, transport={transport}, rotational={rotational}, model={model:?}, \
                 serial={serial:?}, wwn={wwn:?}"
            );
            let _ = by_path.map(|link| write!(text, ", {}{link}", by_path::FOLDER));
            let _ = by_id.map(|link| write!(text, ", {}{link}", by_id::FOLDER));
            let _ = refused.map(|why| write!(text, ", never written: it {why}"));
        }
        if text.is_empty() { " none".to_owned() } else { text }
    }

    fn select(&self, key: &str, terms: &str) -> Result<String, String> {
        let all = self.all();
        let mut left: Vec<&Known> = all.iter().filter(|disk| disk.refused.is_none()).collect();
        for term in terms.split(',') {
            let (of, value) = term.split_once('=').filter(|(_, value)| !value.is_empty()).ok_or_else(|| {
                format!("{key}: {term:?} is no term of select: write <key>=<value>, with commas between the terms")
            })?;
            let value = value.trim();
            match of.trim() {
                "serial" => left.retain(|disk| disk.serial == value),
                "model" => left.retain(|disk| disk.model == value),
                "wwn" => left.retain(|disk| disk.wwn == value),
                "transport" => left.retain(|disk| disk.transport == value),
                "rotational" => {
                    let wanted =
                        value.parse::<bool>().map_err(|_| format!("{key}: rotational={value}: write true or false"))?;
                    left.retain(|disk| disk.rotational == wanted);
                }
                of @ ("min-size" | "max-size") => {
                    let bytes = size(value).ok_or_else(|| format!("{key}: {of}={value}: write a size as 100Gi"))?;
                    left.retain(
                        |disk| if of == "min-size" { disk.size_bytes >= bytes } else { disk.size_bytes <= bytes },
                    );
                }
                other => {
                    return Err(format!(
                        "{key}: select has no key {other:?}: write serial, model, wwn, transport, rotational, min-size or \
                         max-size"
                    ));
                }
            }
        }
        match left.as_slice() {
            [one] => Ok(one.name.clone()),
            several => {
                let count = several.len();
                Err(format!(
                    "{key} {SELECT}{terms}: {count} disks match, exactly one has to; the disks are:{}",
                    self.list()
                ))
            }
        }
    }
}

/// None for what has no device: what only the kernel made.
fn known(folder: &Path) -> Option<Known> {
    if !folder.join("device").exists() {
        return None;
    }
    let text = |file: &str| fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
    let place = folder.to_string_lossy();
    let transports = [("/usb", "usb"), ("/nvme", "nvme"), ("/virtio", "virtio"), ("/ata", "sata")];
    let transport =
        transports.iter().find(|(part, _)| place.contains(part)).map_or("scsi", |(_, transport)| *transport);
    let is = |file| text(file).as_deref() == Some("1");
    let refused = if transport == "usb" {
        Some(USB)
    } else if is("removable") {
        Some("is removable")
    } else if is("ro") {
        Some(READ_ONLY)
    } else {
        None
    };
    Some(Known {
        name: folder.file_name()?.to_string_lossy().into_owned(),
        size_bytes: number(&folder.join("size"))? * 512,
        serial: text("serial").or_else(|| text("device/serial")).or_else(|| unit_serial(folder)).unwrap_or_default(),
        model: text("device/model").unwrap_or_default(),
        wwn: text("wwid").or_else(|| text("device/wwid")).unwrap_or_default(),
        transport,
        rotational: is("queue/rotational"),
        // Fibre Channel, iSCSI, NVMe over fabrics.
        is_remote: ["/rport-", "/session", "/nvme-fabrics/"].iter().any(|part| place.contains(part)),
        is_ata: transport == "sata" || text("device/vendor").as_deref() == Some("ATA"),
        refused,
    })
}

/// Of a SCSI or ATA disk: the page of its vital product data that has the serial number (SPC-4, 7.8.15).
fn unit_serial(folder: &Path) -> Option<String> {
    let page = fs::read(folder.join("device/vpd_pg80")).ok()?;
    let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
    let text = String::from_utf8_lossy(page.get(4..4 + length)?).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// As Kubernetes writes sizes.
fn size(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let (base, power) = match unit {
        "" => (1u64, 0),
        "Mi" => (1024, 2),
        "Gi" => (1024, 3),
        "Ti" => (1024, 4),
        "M" => (1000, 2),
        "G" => (1000, 3),
        "T" => (1000, 4),
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(base.pow(power))
}

#[cfg(test)]
pub(crate) mod tests;
