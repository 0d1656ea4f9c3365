//! CSI's Controller and GroupController services: read the request, call the pool, word the answer.

mod group_service;
mod page;
mod service;
mod snapshots;
mod volumes;

pub use group_service::GroupControllerService;
pub use service::ControllerService;

use crate::pools::Pools;
use std::{sync::Arc, time::Instant};
use tonic::{Response, Status};

/// Runs one operation on a thread of its own, since a pool blocks, and logs what came of it.
async fn run<T: Send + 'static>(
    pools: &Arc<Pools>,
    operation: &'static str,
    object: &str,
    act: impl FnOnce(&Pools) -> Result<T, Status> + Send + 'static,
) -> Result<Response<T>, Status> {
    let (pools, started) = (pools.clone(), Instant::now());
    let result = tokio::task::spawn_blocking(move || act(&pools)).await;
    let result = result.unwrap_or_else(|error| Err(Status::internal(format!("{operation}: {error}"))));
    let ms = started.elapsed().as_millis();
    match &result {
        Ok(_) => tracing::debug!(operation, object, ms, "done"),
        Err(status) => tracing::warn!(operation, object, ms, code = ?status.code(), "{}", status.message()),
    }
    result.map(Response::new)
}
