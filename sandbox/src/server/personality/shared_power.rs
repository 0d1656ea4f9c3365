//! A server whose DPU loses power with it. After power-on the DPU boots beside the host, which finds its slots empty
//! until the agent has filled them: it takes a warm reset then.

use super::{PLEASANT, Personality};

pub const PERSONALITY: Personality =
    Personality { name: "shared-power", model: "Virtual Server P", dpu_shares_power: true, ..PLEASANT };
