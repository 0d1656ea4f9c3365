//! etcd and a real API server on the loopback, a DPU as it is there, and one in memory whose agent runs in this process.

#[allow(dead_code, reason = "what the boot service's tests alone do with it")]
pub mod api_server;
pub mod dpu;
mod in_cluster;

pub use api_server::ApiServer;
pub use in_cluster::{InCluster, attached};

use std::time::Duration;

/// Polls until it is so; panics with what it saw last.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    loop {
        match look().await {
            Ok(value) => return value,
            Err(seen) => assert!(tokio::time::Instant::now() < deadline, "{what}: not yet, last seen: {seen}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
