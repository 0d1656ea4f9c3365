//! Asks guests from another DPU: the packets cross the tunnel between the two.

use super::Site;
use super::probe::Place;
use anyhow::{Context, Result};
use jiff::Timestamp;
use std::time::Duration;

/// An internal port of the asking switch.
const PORT: &str = "probe0";

impl Site {
    pub fn another_dpu(&self, own: &str) -> Result<&str> {
        let other = self.sandbox.ready().nodes.iter().find(|node| node.dpu && node.name != own);
        Ok(&other.context("there is one DPU only")?.name)
    }

    /// Waits until `address` answers a DPU other than `own`, which asks as a logical port of its own; tells when it did.
    pub async fn ping_from_another_dpu(
        &self,
        own: &str,
        from: Place<'_>,
        address: &str,
        limit: Duration,
    ) -> Result<Timestamp> {
        let other = self.another_dpu(own)?;
        let probe = self.probe(other, PORT, from).await?;
        let answered = probe.hears(address, limit).await;
        self.remove_probe(other, PORT).await.and(answered)
    }
}
