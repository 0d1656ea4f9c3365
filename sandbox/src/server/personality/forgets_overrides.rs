//! A server whose BMC uses the boot settings for one start and then falls back to the factory's. The settings read
//! as fallen back at once, so whoever looks after each start can write them again in time for the next. If nobody does,
//! the next start is of the old system on its local disk.

use super::{BootOption, Personality};

pub const PERSONALITY: Personality = Personality {
    name: "forgets-overrides",
    manufacturer: "Metalplane",
    model: "Virtual Server F",
    dpu_shares_power: false,
    forgets_boot_settings: true,
    has_local_disk: true,
    factory_boot_order: &[BootOption::LocalDisk, BootOption::Network, BootOption::Slot],
};
