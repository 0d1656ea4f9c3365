//! Words for a host as its BMC shows it.

mod medium;

pub use medium::{InstallerIso, MediaUrl, Medium, MediumChange, redacted};

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PowerState {
    On,
    Off,
    PoweringOn,
    PoweringOff,
}

/// A reset that a BMC can be asked for. Each is idempotent in effect except `WarmReset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PowerAction {
    On,
    /// Asks the guest's operating system (ACPI power button).
    SoftOff,
    /// Takes the power away.
    ForceOff,
    /// Resets the processors; PCIe functions and a DPU on the same power domain keep their power.
    WarmReset,
}

impl PowerAction {
    /// True for what interrupts a running guest.
    pub fn is_disruptive(self) -> bool {
        !matches!(self, Self::On)
    }
}

/// One entry of the firmware's boot list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BootOption {
    /// What the BMC calls it, for example `Boot0003`.
    pub reference: String,
    pub display_name: String,
    /// UEFI 2.10 section 10: text form of the device path, if the BMC tells.
    pub uefi_device_path: Option<String>,
    /// The firmware does not skip it.
    pub enabled: bool,
    /// The BMC does not say that its device is gone.
    pub present: bool,
}

/// The boot configuration, as read back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct BootConfiguration {
    /// References in the order that the firmware has now; empty where the BMC has no `BootOrder`.
    pub order: Vec<String>,
    /// Written, and taken over by the firmware in its next POST: by then it is `order`.
    pub pending: Option<Vec<String>>,
    pub options: Vec<BootOption>,
    /// The boot source override of the next boot alone (`Enabled: Once`).
    pub next: Option<BootOverride>,
    /// The boot source override of every boot (`Enabled: Continuous`).
    pub always: Option<BootOverride>,
    /// What the BMC says it accepts as `next`.
    pub allowed_next: Vec<BootSource>,
    /// What the BMC says it accepts as `always`.
    pub allowed_always: Vec<BootSource>,
}

impl BootConfiguration {
    /// The order by which the next start of the host boots.
    pub fn coming(&self) -> &[String] {
        self.pending.as_deref().unwrap_or(&self.order)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BootOverride {
    pub source: BootSource,
    /// `None`: the BMC does not tell.
    pub mode: Option<BootMode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BootSource {
    Pxe,
    UefiHttp,
    /// Whatever disk the firmware takes first.
    Hdd,
    Cd,
    /// The firmware's setup: nothing is booted.
    Setup,
    UefiShell,
    UefiTarget,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BootMode {
    Uefi,
    Legacy,
}

/// What to change in the boot configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BootChange {
    /// Move this option to the head of the boot order, leave the others in their order, and end any override: it would come
    /// before the order.
    First { reference: String },
    /// Put back the order that was there before the machine claimed the host, and end any override.
    Restore { order: Vec<String> },
    /// Boot from this source once.
    Next { source: BootSource, mode: BootMode },
    /// Boot from this source until the override is ended.
    Always { source: BootSource, mode: BootMode },
}

/// How far the firmware is since the host was powered on or reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Post {
    /// The BMC does not tell, or the host is off.
    #[default]
    Unknown,
    Running,
    /// The firmware waits in its setup.
    InSetup,
    /// The firmware has handed over to what it booted.
    Done,
}

/// One fresh reading of a BMC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostObserved {
    pub power: PowerState,
    pub boot: BootConfiguration,
    /// `ComputerSystem.SerialNumber`, checked against the Dpu's `hardwareRef`.
    pub serial_number: Option<String>,
    /// The SMBIOS UUID of the system (`ComputerSystem.UUID`).
    #[serde(default)]
    pub system_uuid: Option<String>,
    pub model: Option<String>,
    pub manufacturer: Option<String>,
    /// Of the host's firmware (`ComputerSystem.BiosVersion`).
    pub firmware_version: Option<String>,
    pub post: Post,
    /// The PCIe devices that the BMC lists, each by its address in the service: another list means that cards were moved.
    pub pcie_devices: Vec<String>,
    /// In the virtual CD or DVD drive of the BMC. The URL of an image may hold a password: it is not written anywhere.
    #[serde(skip)]
    pub medium: Medium,
    /// As the BMC shows of itself; never concluded from a request that failed.
    pub lacks: BTreeSet<Lack>,
}

impl HostObserved {
    /// A host of which nothing is known but its power.
    pub fn with_power(power: PowerState) -> Self {
        Self {
            power,
            boot: BootConfiguration::default(),
            serial_number: None,
            system_uuid: None,
            model: None,
            manufacturer: None,
            firmware_version: None,
            post: Post::Unknown,
            pcie_devices: Vec::new(),
            medium: Medium::Unknown,
            lacks: BTreeSet::new(),
        }
    }

    pub fn lacks(&self, lack: Lack) -> bool {
        self.lacks.contains(&lack)
    }
}

/// What this BMC does not offer, of all that Metalplane asks a BMC for. A verb that needs it is answered `Unsupported`, so it
/// is not planned. (A serial number or a device path that is not told is a `None` where it would stand.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lack {
    /// No reset of the host that would do this.
    Power(PowerAction),
    /// No list of the firmware's boot options.
    BootOptions,
    /// No persistent boot order.
    BootOrder,
    /// No virtual CD or DVD drive.
    VirtualMedia,
}

impl Lack {
    /// For a message: "the BMC has no …".
    pub fn noun(self) -> &'static str {
        match self {
            Self::Power(PowerAction::On) => "power-on",
            Self::Power(PowerAction::SoftOff) => "graceful shutdown",
            Self::Power(PowerAction::ForceOff) => "forced power-off",
            Self::Power(PowerAction::WarmReset) => "warm reset",
            Self::BootOptions => "list of boot options",
            Self::BootOrder => "persistent boot order",
            Self::VirtualMedia => "virtual CD or DVD drive",
        }
    }
}

/// How often a BMC is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum BmcNeed {
    /// Nobody asks.
    #[default]
    None,
    /// A few times an hour.
    Seldom,
    /// Now and then.
    Slow,
    /// A decision waits for a reading of this moment.
    Now,
    /// An action was sent; its effect is awaited.
    Awaiting,
}
