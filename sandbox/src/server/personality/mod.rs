//! Kinds of servers: what differs between one vendor's habits and another's, as data.
//!
//! The first five are hosts that are really started, with OVMF's words for its boot options. The others are BMCs: what they
//! list is what dumps and logs of real servers show (`docs/hardware.md`), and how they treat a boot order is what others
//! report of them. A host behind one of these starts too, but has no other disk than its DPU's.

mod bare;
mod drive;
mod forgets_overrides;
mod local_disk;
mod shared_power;
mod standby;
mod vendors;

use super::boot::{BootOption, OverrideEnabled, OverrideTarget};
pub use drive::{Changed, Owner, VirtualDrive};
use serde::{Deserialize, Serialize};

/// The disk in the DPU's boot slot, as a firmware has seen it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BootDisk {
    pub serial: String,
    /// As this firmware prints it: `00-00-00-00-00-00-00-00`.
    pub eui64: String,
}

/// How the firmware calls an option, and where the option leads.
pub struct Words {
    pub display: String,
    pub path: Option<String>,
}

impl Words {
    fn new(display: impl Into<String>, path: impl Into<String>) -> Self {
        Self { display: display.into(), path: Some(path.into()) }
    }

    fn without_path(display: impl Into<String>) -> Self {
        Self { display: display.into(), path: None }
    }
}

/// What becomes of a boot order that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    AtOnce,
    /// It goes to the settings resource of this name, and is the firmware's after the next POST.
    Settings(&'static str),
    /// The BMC makes a job of it, which ends in the next POST, and takes no second one before.
    Job,
    /// There is none.
    Missing,
}

/// How the BMC tells that the firmware is in its POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostTold {
    Never,
    BootProgress,
    /// By HPE's own property.
    PostState,
}

/// What a kind of server does its own way.
#[derive(Debug)]
pub struct Personality {
    pub name: &'static str,
    pub manufacturer: &'static str,
    pub model: &'static str,
    /// The DPU hangs on the host's power rail: it goes down and comes up with it, and forgets what it presented.
    pub dpu_shares_power: bool,
    /// The BMC drops boot override and boot order at every start of the host, guest reboots included.
    pub forgets_boot_settings: bool,
    /// The server has a disk of its own, with a system on it.
    pub has_local_disk: bool,
    /// The boot order as it leaves the factory.
    pub factory_boot_order: &'static [BootOption],
    /// The boot options that the BMC lists; none: it has no such list.
    pub options: &'static [BootOption],
    pub words: fn(BootOption, &BootDisk) -> Words,
    /// The DPU's disk is in that list after a POST in which it was there, and not before.
    pub lists_what_it_saw: bool,
    /// The members of the list are numbered in another way than the options' references.
    pub has_own_ids: bool,
    pub order: Order,
    /// How long an override may last.
    pub overrides: &'static [OverrideEnabled],
    /// None: the BMC has no virtual CD drive.
    pub drive: Option<VirtualDrive>,
    /// What may be asked for stands in the settings resource alone, and changes have to name the version that they rest on.
    pub is_strict: bool,
    /// A change is refused while the firmware is in its POST.
    pub refuses_in_post: bool,
    pub post: PostTold,
}

impl Personality {
    /// What the next start may be told to take.
    pub fn targets(&self) -> Vec<OverrideTarget> {
        let own = self.drive.map(|drive| drive.target).filter(|target| !OverrideTarget::USUAL.contains(target));
        OverrideTarget::USUAL.into_iter().chain(own).collect()
    }
}

/// OVMF's words for what a virtual server has.
fn ovmf(option: BootOption, disk: &BootDisk) -> Words {
    match option {
        BootOption::Slot => Words::new(
            format!("UEFI QEMU NVMe Ctrl {} 1", disk.serial),
            format!("PciRoot(0x0)/Pci(0x2,0x0)/Pci(0x0,0x0)/NVMe(0x1,{})", disk.eui64),
        ),
        BootOption::LocalDisk => {
            Words::new("UEFI QEMU NVMe Ctrl local-1 1", "PciRoot(0x0)/Pci(0x8,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)")
        }
        BootOption::Network => Words::new(
            "UEFI PXEv4 (MAC:525400AA0001)",
            "PciRoot(0x0)/Pci(0x4,0x0)/Pci(0x0,0x0)/MAC(525400AA0001,0x1)/IPv4(0.0.0.0)",
        ),
        BootOption::SecondDisk | BootOption::Installed => Words::new("UEFI Misc Device", "PciRoot(0x0)/Pci(0x5,0x0)"),
    }
}

const ALL_OVERRIDES: &[OverrideEnabled] =
    &[OverrideEnabled::Disabled, OverrideEnabled::Once, OverrideEnabled::Continuous];

/// A BMC that does what it is told at once, in front of OVMF.
const PLEASANT: Personality = Personality {
    name: "",
    manufacturer: "Metalplane",
    model: "",
    dpu_shares_power: false,
    forgets_boot_settings: false,
    has_local_disk: false,
    factory_boot_order: &[BootOption::Network, BootOption::Slot],
    options: &[BootOption::Slot, BootOption::Network],
    words: ovmf,
    lists_what_it_saw: false,
    has_own_ids: false,
    order: Order::AtOnce,
    overrides: ALL_OVERRIDES,
    drive: Some(drive::CD),
    is_strict: false,
    refuses_in_post: false,
    post: PostTold::Never,
};

/// With a disk of its own, which comes first as it leaves the factory.
const WITH_LOCAL_DISK: Personality = Personality {
    has_local_disk: true,
    factory_boot_order: &[BootOption::LocalDisk, BootOption::Network, BootOption::Slot],
    options: &[BootOption::Slot, BootOption::LocalDisk, BootOption::Network],
    ..PLEASANT
};

/// Every kind there is.
pub const ALL: &[&Personality] = &[
    &standby::PERSONALITY,
    &shared_power::PERSONALITY,
    &forgets_overrides::PERSONALITY,
    &local_disk::PERSONALITY,
    &bare::PERSONALITY,
    &vendors::DELL,
    &vendors::HPE,
    &vendors::EDGELINE,
    &vendors::LENOVO,
    &vendors::SUPERMICRO,
    &vendors::DGX,
    &vendors::GB200,
    &vendors::OPENBMC,
];

pub fn by_name(name: &str) -> Option<&'static Personality> {
    ALL.iter().copied().find(|personality| personality.name == name)
}
