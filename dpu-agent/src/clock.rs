//! The one clock. Wall time that follows tokio's monotonic clock: it never jumps, and a test that pauses tokio's time
//! pauses this too.

use jiff::{SignedDuration, Timestamp};
use std::sync::OnceLock;
use tokio::time::Instant;

static START: OnceLock<(Timestamp, Instant)> = OnceLock::new();

pub fn now() -> Timestamp {
    let (wall, monotonic) = START.get_or_init(|| (Timestamp::now(), Instant::now()));
    let passed = SignedDuration::try_from(monotonic.elapsed()).unwrap_or_default();
    let now = *wall + passed;
    // What is written has microseconds; what is compared with it must have no more.
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
