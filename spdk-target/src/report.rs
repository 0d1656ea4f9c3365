//! What came of operations on a bdev.

use crate::args::Workload;
use anyhow::{Result, ensure};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub workload: Workload,
    pub io_size_bytes: u32,
    pub queue_depth: u16,
    /// Of what was measured.
    pub seconds: f64,
    pub operations: u64,
    pub operations_per_second: f64,
    /// The longest time in which no operation was done, of what was measured.
    pub longest_pause_milliseconds: f64,
    /// Of all operations.
    pub failed: u64,
    /// Blocks that did not hold what they should.
    pub wrong: u64,
}

impl Report {
    pub fn check(&self) -> Result<()> {
        ensure!(self.failed == 0, "{} operations failed", self.failed);
        ensure!(self.wrong == 0, "{} of {} blocks do not hold what was written there", self.wrong, self.operations);
        ensure!(self.operations > 0, "no operation was done");
        Ok(())
    }
}
