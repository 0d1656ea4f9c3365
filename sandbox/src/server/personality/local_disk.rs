//! A server with a disk of its own, which still holds an old system and comes first in the factory's boot order.

use super::{BootOption, Personality};

pub const PERSONALITY: Personality = Personality {
    name: "local-disk",
    manufacturer: "Metalplane",
    model: "Virtual Server L",
    dpu_shares_power: false,
    forgets_boot_settings: false,
    has_local_disk: true,
    factory_boot_order: &[BootOption::LocalDisk, BootOption::Network, BootOption::Slot],
};
