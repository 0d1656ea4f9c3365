//! Asks guests from another DPU's switch: the packets cross the tunnel between the two.

use super::{Site, until};
use anyhow::{Context, Result};
use jiff::Timestamp;
use std::time::Duration;

/// An internal port of the asking switch.
const PORT: &str = "probe0";

impl Site {
    /// Waits until `address` answers a DPU other than `own`, which asks as `from` (with its prefix); tells when it did.
    pub async fn ping_from_another_dpu(
        &self,
        own: &str,
        from: &str,
        address: &str,
        limit: Duration,
    ) -> Result<Timestamp> {
        let nodes = &self.sandbox.ready().nodes;
        let other = &nodes.iter().find(|node| node.dpu && node.name != own).context("there is one DPU only")?.name;
        let add = ["--may-exist", "add-port", "br-int", PORT, "--", "set", "interface", PORT, "type=internal"];
        self.enter(other, &[&["ovs-vsctl"], add.as_slice()].concat()).await?;
        self.enter(other, &["ip", "addr", "replace", from, "dev", PORT]).await?;
        self.enter(other, &["ip", "link", "set", PORT, "up"]).await?;
        // Asks five times a second until the first answer; an error from its own network ends it, so it is asked again.
        let ask = ["ping", "-q", "-i", "0.2", "-c", "1", "-w", "10", address];
        until(&format!("{address} answers ping from {other}"), limit, async || {
            let answered = self.enter(other, &ask).await;
            Ok(answered.map(|_| Timestamp::now()).map_err(|error| format!("{error:#}")))
        })
        .await
    }
}
