//! The names of disks below `/dev/disk/by-path`, by where a disk is plugged in, as udev makes them (its builtin `path_id` and
//! 60-persistent-storage.rules of systemd 252, with the names of ATA and of virtio from before). Disks behind USB, Hyper-V, Fibre Channel and
//! iSCSI have none here.

use std::fs;
use std::path::{Path, PathBuf};

pub const FOLDER: &str = "/dev/disk/by-path/";

/// `disk`: its own folder, below `sys`.
pub fn names(disk: &Path, sys: &Path) -> Vec<String> {
    let Some(Found { mut parts, older_ata, .. }) = walk(disk, sys) else { return Vec::new() };
    parts.reverse();
    let mut names = vec![parts.join("-")];
    if let Some(older) = older_ata {
        // The first part is the disk's.
        if let Some(last) = parts.last_mut() {
            *last = older;
        }
        names.push(parts.join("-"));
    }
    if name(disk).is_some_and(|name| name.starts_with("vd")) && names[0].starts_with("pci-") {
        names.push(format!("virtio-{}", names[0]));
    }
    names
}

/// What was found on the way from a disk to its bus.
#[derive(Default)]
struct Found {
    /// The disk's first.
    parts: Vec<String>,
    older_ata: Option<String>,
    has_bus: bool,
    /// How a disk is reached is known, so that no two have the same name.
    has_transport: bool,
}

fn walk(disk: &Path, sys: &Path) -> Option<Found> {
    let mut found = Found::default();
    let mut next = Some(disk.to_owned());
    while let Some(device) = next {
        let last = match subsystem(&device).as_deref() {
            Some("scsi") => {
                found.has_transport = true;
                found.scsi(device, sys)?
            }
            Some(bus @ ("pci" | "platform")) => {
                found.parts.push(format!("{bus}-{}", name(&device)?));
                found.has_bus = true;
                found.has_transport |= bus == "platform";
                topmost(device, bus)
            }
            Some("virtio") => {
                found.has_transport = true;
                topmost(device, "virtio")
            }
            Some(of @ ("nvme" | "nvme-subsystem")) => {
                found.parts.push(format!("nvme-{}", attribute(disk, "nsid")?));
                found.has_transport = true;
                if of == "nvme" { topmost(device, of) } else { controller(disk, &device, sys)? }
            }
            Some("usb") => return None,
            _ => device,
        };
        next = above(&last);
    }
    (found.has_bus && found.has_transport && !found.parts.is_empty()).then_some(found)
}

impl Found {
    /// The device behind which the way goes on.
    fn scsi(&mut self, device: PathBuf, sys: &Path) -> Option<PathBuf> {
        if kind(&device).as_deref() != Some("scsi_device") {
            return Some(device);
        }
        let place = device.to_string_lossy().into_owned();
        let has = |part: &str| place.contains(part);
        if ["/rport-", "/session", "/vmbus_", "/VMBUS"].iter().any(|part| has(part)) {
            return None;
        }
        let address = Address::of(&device)?;
        if has("/end_device-") {
            self.parts.push(sas(&device, &address, sys)?);
            return Some(device);
        }
        let host = of_kind(&device, "scsi_host")?;
        if has("/ata") {
            let port = attribute(&class(sys, "ata_port", &above(&host)?)?, "port_no")?;
            // Behind a port multiplier a disk is told by its bus, else by its target.
            let Address { bus, target, .. } = address;
            let place = if bus == 0 { target.to_string() } else { format!("{bus}.0") };
            self.parts.push(format!("ata-{port}.{place}"));
            self.older_ata = Some(format!("ata-{port}"));
            return Some(device);
        }
        // Hosts are numbered through the whole machine: what counts is which one of its adapter's it is.
        let siblings = fs::read_dir(host.parent()?).ok()?.flatten();
        let hosts = siblings.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("host")?.parse::<u64>().ok());
        let Address { bus, target, lun, .. } = address;
        self.parts.push(format!("scsi-{}:{bus}:{target}:{lun}", address.host - hosts.min()?));
        Some(host)
    }
}

/// By the phy of the adapter or expander that the disk alone is behind; by the disk's own address where it has several.
fn sas(device: &Path, address: &Address, sys: &Path) -> Option<String> {
    let end = above(&of_kind(device, "scsi_target")?)?;
    let of_end = class(sys, "sas_device", &end)?;
    let port = above(&end)?;
    let lun = address.sas_lun();
    if attribute(&class(sys, "sas_port", &port)?, "num_phys")? != "1" {
        return Some(format!("sas-{}-{lun}", attribute(&of_end, "sas_address")?));
    }
    let phy = attribute(&of_end, "phy_identifier")?;
    match class(sys, "sas_device", &above(&port)?) {
        Some(expander) => Some(format!("sas-exp{}-phy{phy}-{lun}", attribute(&expander, "sas_address")?)),
        None => Some(format!("sas-phy{phy}-{lun}")),
    }
}

/// A SCSI device's, as the kernel names it.
struct Address {
    host: u64,
    bus: u64,
    target: u64,
    lun: u64,
}

impl Address {
    fn of(device: &Path) -> Option<Self> {
        let numbers: Option<Vec<u64>> = name(device)?.split(':').map(|number| number.parse().ok()).collect();
        let [host, bus, target, lun] = numbers?.try_into().ok()?;
        Some(Self { host, bus, target, lun })
    }

    fn sas_lun(&self) -> String {
        let Self { lun, .. } = self;
        if *lun < 256 {
            return format!("lun-{lun}");
        }
        format!("lun-0x{:04x}{:04x}00000000", lun & 0xffff, (lun >> 16) & 0xffff)
    }
}

/// That of a disk which several controllers reach: the one that has its number.
pub(super) fn controller(disk: &Path, of_all: &Path, sys: &Path) -> Option<PathBuf> {
    let name = name(disk)?;
    let number: String = name.strip_prefix("nvme")?.chars().take_while(char::is_ascii_digit).collect();
    let name = format!("nvme{number}");
    let own = of_all.join(&name).exists();
    own.then(|| fs::canonicalize(sys.join("class/nvme").join(name)).ok())?
}

/// The device in a class that has the name of another.
fn class(sys: &Path, class: &str, device: &Path) -> Option<PathBuf> {
    Some(sys.join("class").join(class).join(name(device)?)).filter(|path| path.exists())
}

fn name(device: &Path) -> Option<String> {
    Some(device.file_name()?.to_string_lossy().into_owned())
}

/// The next device above it: not every folder is one.
fn above(device: &Path) -> Option<PathBuf> {
    device.ancestors().skip(1).find(|folder| folder.join("uevent").is_file()).map(Path::to_owned)
}

fn of_kind(device: &Path, wanted: &str) -> Option<PathBuf> {
    std::iter::successors(above(device), |device| above(device)).find(|device| kind(device).as_deref() == Some(wanted))
}

/// The last of those above it that belong to the same bus, bridges for example: the first one names its place.
fn topmost(device: PathBuf, bus: &str) -> PathBuf {
    let is_of_bus = |device: &PathBuf| subsystem(device).as_deref() == Some(bus);
    std::iter::successors(Some(device.clone()), |device| above(device).filter(is_of_bus)).last().unwrap_or(device)
}

fn subsystem(device: &Path) -> Option<String> {
    name(&fs::read_link(device.join("subsystem")).ok()?)
}

fn kind(device: &Path) -> Option<String> {
    let said = fs::read_to_string(device.join("uevent")).ok()?;
    said.lines().find_map(|line| line.strip_prefix("DEVTYPE=")).map(str::to_owned)
}

fn attribute(device: &Path, name: &str) -> Option<String> {
    fs::read_to_string(device.join(name)).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests;
