//! A server whose BMC uses the boot settings for one start and then falls back to the factory's. The settings read
//! as fallen back at once, so whoever looks after each start can write them again in time for the next. If nobody does,
//! the next start is of the old system on its local disk.

use super::{Personality, WITH_LOCAL_DISK};

pub const PERSONALITY: Personality = Personality {
    name: "forgets-overrides",
    model: "Virtual Server F",
    forgets_boot_settings: true,
    ..WITH_LOCAL_DISK
};
