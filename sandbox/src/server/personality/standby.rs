//! The pleasant one: its DPU runs on standby power, and its BMC does what it is told.

use super::{PLEASANT, Personality};

pub const PERSONALITY: Personality = Personality { name: "standby", model: "Virtual Server S", ..PLEASANT };
