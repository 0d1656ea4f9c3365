//! What the caches tell of the addresses of each Subnet, kept as they change: nobody goes through all holds to choose one.

use api::AddressHold;
use jiff::{SignedDuration, Timestamp};
use planner::network::pool::Pool;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A Subnet says how much of it is used this often at most.
const EVERY: SignedDuration = SignedDuration::from_secs(10);

/// By the Subnet's UID.
#[derive(Default)]
pub struct Pools {
    all: Mutex<HashMap<String, Pool>>,
    told: Mutex<HashMap<String, Timestamp>>,
}

impl Pools {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Pool>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: the Subnet may say now how much of it is used, and no more for a while; else when.
    pub fn may_tell(&self, subnet_uid: &str, now: Timestamp) -> Option<Timestamp> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let again = told.get(subnet_uid).map(|last| *last + EVERY).filter(|again| *again > now);
        if again.is_none() {
            told.insert(subnet_uid.to_owned(), now);
        }
        again
    }

    pub fn with<T>(&self, subnet_uid: &str, read: impl FnOnce(&Pool) -> T) -> T {
        match self.all().get(subnet_uid) {
            Some(pool) => read(pool),
            None => read(&Pool::default()),
        }
    }

    /// It is about to be created: meanwhile nobody else is offered that address.
    pub fn expect(&self, hold: &AddressHold) {
        self.all().entry(hold.spec.subnet.uid.clone()).or_default().take(hold);
    }

    /// It was created or deleted. `is_there` is asked under the lock, so that what is told later counts.
    pub fn note(&self, hold: &AddressHold, is_there: impl FnOnce() -> bool) {
        let mut all = self.all();
        let is_there = is_there();
        match all.get_mut(&hold.spec.subnet.uid) {
            Some(pool) if is_there => pool.take(hold),
            Some(pool) => pool.release(hold),
            None if is_there => all.entry(hold.spec.subnet.uid.clone()).or_default().take(hold),
            None => {}
        }
    }

    /// All of the Subnet, as they were listed from quorum.
    pub fn replace<'a>(&self, subnet_uid: &str, holds: impl IntoIterator<Item = &'a AddressHold>) {
        self.all().insert(subnet_uid.to_owned(), Pool::of(holds));
    }

    /// The Subnet no longer exists.
    pub fn forget(&self, subnet_uid: &str) {
        self.all().remove(subnet_uid);
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(subnet_uid);
    }
}
