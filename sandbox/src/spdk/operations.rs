//! Operations on a bdev by `spdk-target io`, in a process of its own: as the host of a disk, or with the bdev used directly.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Beyond the time that is measured: the start, and the end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who does them.
pub struct Operator {
    /// `spdk-target`.
    pub program: PathBuf,
    /// For its configuration.
    pub folder: PathBuf,
    /// The cores that it polls on, as a mask.
    pub cores: &'static str,
}

/// What came of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    pub operations: u64,
    pub operations_per_second: f64,
    pub longest_pause_milliseconds: f64,
}

/// The method and parameters that make a bdev of a file.
pub fn file(name: &str, path: &Path) -> Value {
    json!({"method": "bdev_aio_create", "params": {"name": name, "filename": path, "block_size": 512}})
}

impl Operator {
    /// Makes a bdev by `method`, does what `words` say on the one named `bdev`, and ends. Fails if an operation did.
    pub async fn run(&self, method: &Value, bdev: &str, words: &[&str]) -> Result<Outcome> {
        let config = self.folder.join("operations.json");
        let subsystem = json!({"subsystem": "bdev", "config": [method]});
        std::fs::write(&config, json!({"subsystems": [subsystem]}).to_string()).context("write its configuration")?;
        let mut command = Command::new(&self.program);
        command.args(["io", "--bdev", bdev]).args(words).arg("--config").arg(&config);
        command.args(["-m", self.cores, "--no-huge", "-s", "512", "--no-pci", "--disable-cpumask-locks"]);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let done = tokio::time::timeout(PATIENCE, command.output()).await.context("spdk-target io does not end")?;
        let done = done.with_context(|| format!("start {}", self.program.display()))?;
        let log = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "spdk-target io {} on {bdev}: {}: {log}", words.join(" "), done.status);
        let said = String::from_utf8_lossy(&done.stdout);
        let line = said.lines().rfind(|line| line.starts_with('{')).context("it printed no result")?;
        serde_json::from_str(line).with_context(|| format!("read {line}"))
    }
}
