//! What is wrong with a volume, as far as its pool can tell.

use super::{Fault, Pool, Volume};

/// Below this share of the pool its volumes, which are thin, may soon fail to be written.
const NEARLY_FULL_PERCENT: u64 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ailment {
    pub gravity: Gravity,
    /// One word for programs.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gravity {
    Degraded,
    Inaccessible,
    DataLoss,
}

impl Pool {
    /// Of one volume; nothing is good.
    pub fn ailments(&self, volume: &Volume) -> Vec<Ailment> {
        let own = self.blocks.ailment(&self.as_origin(volume));
        own.into_iter().chain(self.ailment()).collect()
    }

    /// Of the pool itself, and so of every volume in it.
    pub fn ailment(&self) -> Option<Ailment> {
        let capacity = match self.capacity() {
            Ok(capacity) => capacity,
            Err(fault) => return Some(fault.into()),
        };
        let nearly_full = capacity.available < capacity.total / 100 * NEARLY_FULL_PERCENT;
        nearly_full.then(|| Ailment {
            gravity: Gravity::Degraded,
            reason: "PoolNearlyFull",
            message: format!(
                "pool {} has {} MiB free of {}: writes may fail; delete volumes or snapshots, or grow it",
                self.name,
                capacity.available >> 20,
                capacity.total >> 20
            ),
        })
    }
}

impl Ailment {
    pub(super) fn unreadable(message: &str) -> Ailment {
        Ailment { gravity: Gravity::Inaccessible, reason: "PoolUnreadable", message: message.into() }
    }
}

impl From<Fault> for Ailment {
    fn from(fault: Fault) -> Ailment {
        Ailment::unreadable(&fault.to_string())
    }
}
