//! A server whose DPU loses power with it. After power-on the DPU boots beside the host, which finds its slots empty
//! until the agent has filled them: it takes a warm reset then. So its firmware has seen the DPU's disk after such a reset at the earliest.

use super::{BootOption, PLEASANT, Personality};

pub const PERSONALITY: Personality = Personality {
    name: "shared-power",
    model: "Virtual Server P",
    dpu_shares_power: true,
    lists_what_it_saw: true,
    factory_boot_order: &[BootOption::Network],
    ..PLEASANT
};
