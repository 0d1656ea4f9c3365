//! What a session's copy was told, for one reader who may be slower than the server: it is gathered, and nothing is lost.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Feed {
    pending: Mutex<Pending>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    owners: BTreeSet<String>,
    /// A table or the link has changed.
    anything: bool,
}

impl Feed {
    /// After the copy has it.
    pub(crate) fn tell(&self, owners: BTreeSet<String>) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.owners.extend(owners);
        pending.anything = true;
        drop(pending);
        self.notify.notify_one();
    }

    /// What was told since the last call, as soon as there is something. Who stops waiting loses nothing: it is taken in the
    /// step that returns it.
    pub(crate) async fn next(&self) -> BTreeSet<String> {
        loop {
            let taken = std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
            if taken.anything {
                return taken.owners;
            }
            self.notify.notified().await;
        }
    }
}
