//! OVN's south-bound database, as far as chassis tell there what they have installed of the north-bound database in memory.

use super::MemoryNorthBound;
use crate::south_bound::Chassis;
use crate::{PortError, SouthBound};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

pub struct MemorySouthBound {
    north_bound: MemoryNorthBound,
    told: Arc<Notify>,
}

impl MemorySouthBound {
    /// Whoever is cut off from that one is cut off from this one, too.
    pub fn of(north_bound: &MemoryNorthBound) -> Self {
        Self { north_bound: north_bound.clone(), told: north_bound.told() }
    }
}

#[async_trait]
impl SouthBound for MemorySouthBound {
    fn chassis(&self) -> Result<BTreeMap<String, Chassis>, PortError> {
        let numbers = self.north_bound.numbers()?;
        let chassis = |(name, installed): (String, Option<u64>)| {
            let physical_networks = self.north_bound.maps(&name);
            (name, Chassis { installed, physical_networks })
        };
        Ok(numbers.into_iter().map(chassis).collect())
    }

    async fn changes(&self) -> Result<(), PortError> {
        self.told.notified().await;
        self.north_bound.numbers().map(|_| ())
    }
}
