//! Kinds of servers: what differs between one vendor's habits and another's, as data.

mod forgets_overrides;
mod local_disk;
mod shared_power;
mod standby;

use super::boot::BootOption;

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
}

/// Every kind there is.
pub const ALL: &[&Personality] =
    &[&standby::PERSONALITY, &shared_power::PERSONALITY, &forgets_overrides::PERSONALITY, &local_disk::PERSONALITY];

pub fn by_name(name: &str) -> Option<&'static Personality> {
    ALL.iter().copied().find(|personality| personality.name == name)
}
