//! One operation per volume at a time: what each finds on the node is then its own doing.

use crate::operation;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};
use tonic::{Response, Status};

#[derive(Debug, Clone, Default)]
pub(crate) struct Busy(Arc<Mutex<HashSet<String>>>);

/// The volume is free again when this is dropped.
struct Guard {
    all: Busy,
    volume: String,
}

impl Busy {
    fn enter(&self, volume: &str) -> Result<Guard, Status> {
        if !self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(volume.into()) {
            return Err(Status::aborted(format!("volume {volume} has an operation under way: try again")));
        }
        Ok(Guard { all: self.clone(), volume: volume.into() })
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        volume: &str,
        act: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let guard = self.enter(volume)?;
        operation::run(operation, volume, move || {
            // Busy until it is done, also if the caller gives up.
            let _guard = guard;
            act()
        })
        .await
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.volume);
    }
}
