//! One suite per port. A suite takes a way to make the port and asserts what the trait's documentation promises.
//!
//! The crate has no clock of its own: a suite waits through a [`Sleep`] that it is given, so it also runs in simulated
//! time.

use async_trait::async_trait;
use std::time::Duration;

pub mod bmc;
pub mod emulation;
pub mod fence;
pub mod lvol;
pub mod memory;
pub mod metadata;
pub mod north_bound;
pub mod pod_devices;
pub mod switch;
pub mod volume;
pub mod writer;

/// How long a suite waits between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Time as the suite's caller has it.
#[async_trait]
pub trait Sleep: Send + Sync {
    async fn sleep(&self, time: Duration);
}

/// Polls `look` until it gives a value; panics with the last thing that it saw when `limit` has passed.
async fn eventually<T, F>(time: &dyn Sleep, limit: Duration, what: &str, mut look: F) -> T
where
    F: AsyncFnMut() -> Result<T, String>,
{
    let mut waited = Duration::ZERO;
    loop {
        match look().await {
            Ok(value) => return value,
            Err(seen) if waited >= limit => panic!("{what}: not within {limit:?}, last seen: {seen}"),
            Err(_) => {}
        }
        time.sleep(LOOK).await;
        waited += LOOK;
    }
}
