//! The end of a sandbox, and what a killed supervisor left: everything that carries the sandbox's name goes.
//!
//! Processes are found by their recorded ids, checked against their start times, and by their control group, never by
//! what they are called. The logs stay, for whoever wants to know why.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::cgroup::Cgroups;
use crate::cluster::{network, pool};
use crate::layout::Layout;
use crate::supervisor::process::{Recorded, start_time};

/// Removes everything of the sandbox but its logs. Its supervisor must not run, or be the caller.
pub async fn clean(layout: &Layout, cgroups: &Cgroups) -> Result<()> {
    end_recorded(layout).await?;
    cgroups.kill(&layout.cgroup()).await?;
    cgroups.remove(&layout.cgroup()).await?;
    network::remove(layout).await?;
    pool::remove(layout).await?;
    remove_files(layout)
}

/// What is still there of the sandbox, each with its kind. Empty after [`clean`].
pub async fn remains(layout: &Layout, cgroups: &Cgroups) -> Result<Vec<String>> {
    let mut found = Vec::new();
    found.extend(cgroups.members(&layout.cgroup()).into_iter().map(|pid| format!("process {pid}")));
    found.extend(recorded(layout).into_iter().filter(runs).map(|process| format!("process {}", process.pid)));
    found.extend(network::existing(layout).into_iter().map(|name| format!("network namespace {name}")));
    found.extend(pool::mounts(layout)?.into_iter().map(|at| format!("mount {}", at.display())));
    found.extend(pool::loop_devices(layout).await?.into_iter().map(|device| format!("loop device {device}")));
    if cgroups.exists(&layout.cgroup()) {
        found.push(format!("control group {}", layout.cgroup()));
    }
    Ok(found)
}

fn recorded(layout: &Layout) -> Vec<Recorded> {
    let bytes = fs::read(layout.processes()).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn runs(process: &Recorded) -> bool {
    start_time(process.pid) == Some(process.start_time)
}

async fn end_recorded(layout: &Layout) -> Result<()> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let left: Vec<Recorded> = recorded(layout).into_iter().filter(runs).collect();
        if left.is_empty() {
            return Ok(());
        }
        if tokio::time::Instant::now() > deadline {
            let pids: Vec<i32> = left.iter().map(|process| process.pid).collect();
            bail!("processes {pids:?} of sandbox {} did not end within 60 s of SIGKILL", layout.name);
        }
        for process in left {
            // One that has just ended is what we want.
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn remove_files(layout: &Layout) -> Result<()> {
    let mounts = pool::mounts(layout)?;
    if !mounts.is_empty() {
        bail!("{} is still mounted: nothing below it is removed", mounts[0].display());
    }
    let Ok(entries) = fs::read_dir(&layout.dir) else { return Ok(()) };
    for entry in entries.flatten().filter(|entry| entry.file_name() != "logs") {
        let path = entry.path();
        let removed = if entry.file_type()?.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}
