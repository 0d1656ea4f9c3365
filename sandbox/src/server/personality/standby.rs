//! The pleasant one: its DPU runs on standby power, and its BMC does what it is told.

use super::{BootOption, Personality};

pub const PERSONALITY: Personality = Personality {
    name: "standby",
    manufacturer: "Metalplane",
    model: "Virtual Server S",
    dpu_shares_power: false,
    forgets_boot_settings: false,
    has_local_disk: false,
    factory_boot_order: &[BootOption::Network, BootOption::Slot],
};
