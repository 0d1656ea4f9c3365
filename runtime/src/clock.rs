//! The one clock. Wall time that follows tokio's monotonic clock: it never jumps, and a test that pauses tokio's time
//! pauses this too.

use jiff::{SignedDuration, Timestamp};
use std::cell::Cell;
use std::sync::OnceLock;
use tokio::time::Instant;

static START: OnceLock<(Timestamp, Instant)> = OnceLock::new();

thread_local! {
    /// Of a simulation, which has its thread for itself.
    static SIMULATED: Cell<Option<(Timestamp, Instant)>> = const { Cell::new(None) };
}

/// On this thread it is `wall` now. For simulations: what they do depends on no clock but theirs.
pub fn simulate(wall: Timestamp) {
    SIMULATED.set(Some((wall, Instant::now())));
}

pub fn now() -> Timestamp {
    let simulated = SIMULATED.get();
    let (wall, monotonic) = simulated.unwrap_or_else(|| *START.get_or_init(|| (Timestamp::now(), Instant::now())));
    let passed = SignedDuration::try_from(monotonic.elapsed()).unwrap_or_default();
    let now = wall + passed;
    // What is written has microseconds; what is compared with it must have no more.
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
