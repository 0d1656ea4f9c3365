//! The clients: `boot-load`, as what ships is built, in the namespace of all clients.

use super::STUCK;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::process::Stdio;
use tests::site::program;
use tokio::process::Command;

/// This program as what ships is built; else the one beside the running one.
const PROGRAM: &str = "METALPLANE_BENCH_BOOT_LOAD";

/// What `boot-load dhcp` has measured.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dhcp {
    pub seconds: f64,
    pub again: usize,
    pub offer: Vec<f64>,
    pub whole: Vec<f64>,
}

/// What `boot-load tftp` and `boot-load image` have.
#[derive(Debug, Clone, Deserialize)]
pub struct Moved {
    pub seconds: f64,
    pub bytes: u64,
    /// Packets that were sent a second time.
    #[serde(default)]
    pub again: usize,
}

/// A program that is measured: the one that the variable names, else the one beside this program.
pub fn measured(variable: &str, name: &str) -> Result<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).map_or_else(|| program(name), Ok)
}

/// Its figures; an error if it has ended with one.
pub async fn load<T: DeserializeOwned>(namespace: &str, words: &[&str]) -> Result<T> {
    let file = measured(PROGRAM, "boot-load")?;
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(file).args(words);
    let said = output(command, &format!("boot-load {}", words.join(" "))).await?;
    serde_json::from_str(&said).with_context(|| format!("boot-load says {said:?}"))
}

/// What a command printed, that has succeeded. One that takes too long is ended with all that it has started.
pub async fn output(mut command: Command, what: &str) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().with_context(|| format!("start {what}"))?;
    let group = Pid::from_raw(i32::try_from(child.id().context("it was just started")?)?);
    let Ok(done) = tokio::time::timeout(STUCK, child.wait_with_output()).await else {
        killpg(group, Signal::SIGKILL).with_context(|| format!("end {what}"))?;
        bail!("{what}: not within {} s", STUCK.as_secs());
    };
    let done = done.with_context(|| format!("wait for {what}"))?;
    ensure!(done.status.success(), "{what}: {}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
