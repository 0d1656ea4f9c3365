//! What was seen in OVN as it should be: who finds it otherwise, and wants nothing else, puts right what somebody changed.

use planner::network::rows::Row;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// By the object's UID, a hash of its rows: the rows themselves are in the copy of the database already.
#[derive(Default)]
pub(super) struct Settled(Mutex<HashMap<String, u64>>);

impl Settled {
    fn all(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object has exactly these rows.
    pub(super) fn note(&self, uid: &str, rows: &[Row]) {
        if rows.is_empty() {
            self.all().remove(uid);
        } else {
            self.all().insert(uid.to_owned(), hash(rows));
        }
    }

    /// It has others, or will have: until the next note nothing is known of it. Whether it had these.
    pub(super) fn forget(&self, uid: &str, wanted: &[Row]) -> bool {
        self.all().remove(uid) == Some(hash(wanted))
    }
}

fn hash(rows: &[Row]) -> u64 {
    let mut hasher = DefaultHasher::new();
    rows.hash(&mut hasher);
    hasher.finish()
}
