//! The virtual server: QEMU behind a BMC and a slots socket.

use std::path::Path;

use anyhow::Result;

/// Runs one virtual server until it is told to end.
pub async fn run(config: &Path) -> Result<()> {
    anyhow::bail!("virtual server {}: not built in", config.display())
}
