//! The ports in memory: the smallest thing that keeps each port's promises. The simulation and the agent's tests run on
//! them; each passes its suite (`tests` in each file).
//!
//! A handle is a reference to shared state: what a handle did is there for the next one, as after a restart.

mod chassis;
mod emulation;
mod metadata;
mod north_bound;
mod pod_devices;
mod south_bound;
mod switch;
mod volume;

pub use chassis::{Chassis, InstallsAll, MemoryChassis};
pub use emulation::MemoryEmulation;
pub use metadata::MemoryMetadata;
pub use north_bound::{Installed, MemoryNorthBound, MemoryNorthBoundHandle};
pub use pod_devices::MemoryPodDevices;
pub use south_bound::MemorySouthBound;
pub use switch::MemorySwitch;
pub use volume::{MemoryFence, MemoryStorage, MemoryVolumes};

use crate::{ErrorClass, PortError};
use std::sync::{Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refuse<T>(class: ErrorClass, message: String) -> Result<T, PortError> {
    Err(PortError::new(class, message))
}

/// What every verb answers while the part is cut off.
fn reachable(down: bool, part: &str) -> Result<(), PortError> {
    if down { refuse(ErrorClass::Unreachable, format!("{part} does not answer")) } else { Ok(()) }
}
