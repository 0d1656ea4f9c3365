//! CSI's Controller and GroupController services: read the request, call the pool, word the answer.

mod group_service;
mod page;
mod service;
mod snapshots;
mod volumes;

pub use group_service::GroupControllerService;
pub use service::ControllerService;

use crate::operation;
use crate::pools::Pools;
use std::sync::Arc;
use tonic::{Response, Status};

async fn run<T: Send + 'static>(
    pools: &Arc<Pools>,
    operation: &'static str,
    object: &str,
    act: impl FnOnce(&Pools) -> Result<T, Status> + Send + 'static,
) -> Result<Response<T>, Status> {
    let pools = pools.clone();
    operation::run(operation, object, move || act(&pools)).await
}
