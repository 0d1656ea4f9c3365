//! Runs what a call asks for.

use std::time::Instant;
use tonic::{Response, Status};

/// On a thread of its own, since pools block and programs are waited for; what came of it is logged. A caller that gives up
/// does not end it.
pub(crate) async fn run<T: Send + 'static>(
    operation: &'static str,
    object: &str,
    act: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<Response<T>, Status> {
    let started = Instant::now();
    let result = tokio::task::spawn_blocking(act).await;
    let result = result.unwrap_or_else(|error| Err(Status::internal(format!("{operation}: {error}"))));
    let ms = started.elapsed().as_millis();
    match &result {
        Ok(_) => tracing::debug!(operation, object, ms, "done"),
        Err(status) => tracing::warn!(operation, object, ms, code = ?status.code(), "{}", status.message()),
    }
    result.map(Response::new)
}
