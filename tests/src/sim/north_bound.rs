//! OVN's databases as one controller reaches them: each write is an effect.

use super::process::Process;
use async_trait::async_trait;
use planner::network::rows::{Change, Found};
use ports::conformance::memory::{MemoryNorthBoundHandle, MemorySouthBound};
use ports::north_bound::{Changes, Members, NorthBoundError, Token};
use ports::south_bound::Chassis;
use ports::{ErrorClass, NorthBound, PortError, SouthBound};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

pub struct Reached {
    process: Arc<Process>,
    handle: Arc<MemoryNorthBoundHandle>,
    /// A driver connects, and copies the database, in the background.
    copied: Instant,
}

impl Reached {
    pub fn open(process: &Arc<Process>, site: &str) -> Self {
        let copied = Instant::now() + process.scene.copying();
        Self { process: process.clone(), handle: Arc::new(process.scene.north_bound.open(site)), copied }
    }

    fn copy(&self) -> Result<&MemoryNorthBoundHandle, PortError> {
        if Instant::now() < self.copied {
            return Err(PortError::new(ErrorClass::Unreachable, "the north-bound database is not open yet"));
        }
        Ok(&self.handle)
    }
}

fn lost<T>() -> Result<T, NorthBoundError> {
    Err(PortError::new(ErrorClass::Unreachable, "no answer in time").into())
}

fn refused<T>() -> Result<T, NorthBoundError> {
    Err(NorthBoundError::Contended("somebody was faster".to_owned()))
}

#[async_trait]
impl NorthBound for Reached {
    fn rows(&self, uid: &str) -> Result<Vec<Found>, PortError> {
        self.copy()?.rows(uid)
    }

    fn uids(&self) -> Result<BTreeSet<String>, PortError> {
        self.copy()?.uids()
    }

    fn is_up(&self, uid: &str) -> Result<bool, PortError> {
        self.copy()?.is_up(uid)
    }

    fn number(&self) -> Result<u64, PortError> {
        self.copy()?.number()
    }

    fn token(&self) -> Result<Option<Token>, PortError> {
        self.copy()?.token()
    }

    async fn take_token(&self, token: &Token, over: Option<&Token>) -> Result<(), NorthBoundError> {
        let (handle, token, over) = (self.handle.clone(), token.clone(), over.cloned());
        let act = async move { handle.take_token(&token, over.as_ref()).await };
        self.process.effect("take the token of OVN", act, lost, refused).await
    }

    async fn apply(&self, change: &Change) -> Result<(), NorthBoundError> {
        if change.is_empty() {
            return Ok(());
        }
        let inserts = change.inserts.first().map(|row| &row.id);
        let updates = change.updates.first().map(|update| &update.after.id);
        let row = inserts.or(updates).or(change.deletes.first().map(|found| &found.row.id));
        let what = format!(
            "write {} to OVN: {} new, {} other, {} gone",
            row.map(|id| id.name()).unwrap_or_default(),
            change.inserts.len(),
            change.updates.len(),
            change.deletes.len()
        );
        let (handle, change) = (self.handle.clone(), change.clone());
        self.process.effect(&what, async move { handle.apply(&change).await }, lost, refused).await
    }

    fn members(&self, uid: &str) -> Result<Members, PortError> {
        self.copy()?.members(uid)
    }

    fn sent(&self) -> u64 {
        self.handle.sent()
    }

    async fn raise(&self, above: u64) -> Result<u64, NorthBoundError> {
        let handle = self.handle.clone();
        self.process.effect("raise nb_cfg", async move { handle.raise(above).await }, lost, refused).await
    }

    async fn changes(&self) -> Changes {
        // First: whoever gives up in between has lost nothing.
        self.process.travel().await;
        tokio::time::sleep_until(self.copied).await;
        self.handle.changes().await
    }
}

/// The south-bound database; nothing is written there.
pub struct ReachedChassis {
    process: Arc<Process>,
    south_bound: MemorySouthBound,
}

impl ReachedChassis {
    pub fn open(process: &Arc<Process>) -> Self {
        Self { process: process.clone(), south_bound: MemorySouthBound::of(&process.scene.north_bound) }
    }
}

#[async_trait]
impl SouthBound for ReachedChassis {
    fn chassis(&self) -> Result<BTreeMap<String, Chassis>, PortError> {
        self.south_bound.chassis()
    }

    async fn changes(&self) -> Result<(), PortError> {
        self.process.travel().await;
        self.south_bound.changes().await
    }
}
