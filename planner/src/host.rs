//! Words for a host as its BMC shows it.

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
}

/// The persistent boot configuration, as read back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct BootConfiguration {
    /// References in order; empty where the BMC has no `BootOrder`.
    pub order: Vec<String>,
    pub options: Vec<BootOption>,
    /// A boot source override with `Enabled: Continuous`, for BMCs without a boot order.
    pub continuous_override: Option<BootSource>,
    /// Override targets that the BMC says it accepts with `Continuous`.
    pub allowable_overrides: Vec<BootSource>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BootSource {
    Hdd,
    Pxe,
    UefiTarget,
    Other,
}

/// What to make first, persistently.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BootChange {
    /// Move this option to the head of the boot order and leave the others in their order.
    First { reference: String },
    /// No such option can be named: override to the hard disk, continuously.
    ContinuousHdd,
    /// Put back the order that was there before the machine claimed the host.
    Restore { order: Vec<String> },
}

/// One fresh reading of a BMC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostObserved {
    pub power: PowerState,
    pub boot: BootConfiguration,
    /// `ComputerSystem.SerialNumber`, checked against the Dpu's `hardwareRef`.
    pub serial_number: Option<String>,
    pub model: Option<String>,
    pub manufacturer: Option<String>,
    /// As the BMC shows of itself; never concluded from a request that failed.
    pub lacks: BTreeSet<Lack>,
}

impl HostObserved {
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
        }
    }
}
