//! A server without a DPU: an empty disk of its own, and a NIC on the provisioning network. Its disk comes first, and while nothing
//! boots from it, the network.

use super::{PLEASANT, Personality};
use crate::server::boot::BootOption;

pub const PERSONALITY: Personality = Personality {
    name: "bare",
    model: "Virtual Server B",
    has_local_disk: true,
    factory_boot_order: &[BootOption::LocalDisk, BootOption::Network],
    options: &[BootOption::LocalDisk, BootOption::Network],
    ..PLEASANT
};
