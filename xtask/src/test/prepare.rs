//! What tests need from outside: Debian packages, Go-built programs. Got once, kept in the user's cache.

use super::running::{Environment, needs_sudo};
use crate::go;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// Modules below tools/ whose programs tests run.
const MODULES: [&str; 10] = [
    "tinkerbell",
    "tink",
    "tinkagent",
    "kubernetes",
    "provisioner",
    "containerd",
    "cnitool",
    "helm",
    "mock-driver",
    "gotemplate",
];

/// Gets the packages of the sandbox; gives the environment in which their programs are found.
pub(crate) fn packages() -> Result<Environment> {
    if needs_sudo() {
        return as_root();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    let preflight = runtime.block_on(sandbox::preflight::run(true))?;
    Ok(preflight.environment(&[]))
}

/// `cargo xtask prepare`: the same for a caller that is not root.
pub(crate) fn print() -> Result<()> {
    println!("{}", serde_json::to_string(&packages()?)?);
    Ok(())
}

fn as_root() -> Result<Environment> {
    let own = std::env::current_exe().context("find this program")?;
    let mut sudo = Command::new("sudo");
    sudo.arg("env").args(super::running::kept().into_iter().map(|(name, value)| format!("{name}={value}")));
    let done = sudo.arg(own).arg("prepare").stderr(Stdio::inherit()).output().context("start sudo")?;
    ensure!(done.status.success(), "sudo xtask prepare: {} (its output is above)", done.status);
    serde_json::from_slice(&done.stdout).context("read what xtask prepare printed")
}

/// Builds every module of tools/. What Go keeps for a next build is 7 GB, and these are built once: it goes when all
/// are built, unless the caller has a cache of their own.
pub(super) fn programs(root: &Path) -> Result<()> {
    let once = sandbox::args::cache_folder().join("go-build");
    for module in MODULES {
        let mut script = go::script(root, module);
        if std::env::var_os("GOCACHE").is_none() {
            script.env("GOCACHE", &once);
        }
        go::build(script)?;
    }
    match std::fs::remove_dir_all(&once) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", once.display()))
        }
        _ => Ok(()),
    }
}
