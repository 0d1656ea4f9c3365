//! `spdk-target` with SPDK: the one program that is not static, because SPDK needs shared libraries.
//!
//! Flags of its own mean a target folder of its own, so that nothing else is built anew. Without SPDK on the machine nothing
//! is built.

use crate::programs::{self, Release};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// By which tests and figures are told of it.
pub(crate) const VARIABLE: &str = "SPDK_TARGET";
/// What `.cargo/config.toml` asks for, taken back.
const FLAGS: &str = "-Ctarget-feature=-crt-static";
const OF_SPDK: [&str; 6] = ["--package", "spdk-target", "--package", "spdk-sys", "--features", "spdk-target/native"];

/// `cargo xtask spdk-target`.
pub(crate) fn run(root: &Path) -> Result<()> {
    match build(root, None)? {
        Ok(program) => println!("{}", program.display()),
        Err(missing) => bail!("{missing}"),
    }
    Ok(())
}

/// The program, of a release as it ships; else what is missing.
pub(crate) fn build(root: &Path, release: Option<&Release>) -> Result<Result<PathBuf, String>> {
    if let Err(missing) = installed() {
        return Ok(Err(missing));
    }
    let mut cargo = cargo(root, "build");
    if let Some(release) = release {
        cargo.arg("--release").env("METALPLANE_VERSION", release.version());
        cargo.env("RUSTFLAGS", [vec![FLAGS.to_owned()], programs::moved(root)?].concat().join(" "));
    }
    let done = cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit()).output();
    let done = done.context("start cargo build")?;
    ensure!(done.status.success(), "cargo build: {} (its output is above)", done.status);
    let messages = String::from_utf8_lossy(&done.stdout);
    let messages = messages.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
    let messages = messages.context("read cargo's messages")?;
    if let Some(missing) = messages.iter().find_map(missing) {
        return Ok(Err(missing));
    }
    let program = messages.iter().find_map(|message| message["executable"].as_str());
    Ok(Ok(program.context("cargo build has built no program")?.into()))
}

/// Lints and tests of what is compiled with SPDK only.
pub(crate) fn check(root: &Path) -> Result<()> {
    for (task, more) in [("clippy", &["--all-targets", "--", "-D", "warnings"][..]), ("test", &[])] {
        let status = cargo(root, task).args(more).status().with_context(|| format!("start cargo {task}"))?;
        ensure!(status.success(), "cargo {task}: {status} (its output is above)");
    }
    Ok(())
}

fn cargo(root: &Path, task: &str) -> Command {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(root)
        .env("RUSTFLAGS", FLAGS)
        .arg(task)
        .args(OF_SPDK)
        .arg("--target-dir")
        .arg(folder.join("spdk"));
    cargo
}

/// Looked for before anything is compiled.
pub(crate) fn installed() -> Result<(), String> {
    if std::env::var_os("SPDK_DIR").is_some() {
        return Ok(());
    }
    let found = Command::new("pkg-config").args(["--exists", "spdk_event_nvmf"]).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => Err("SPDK was not found: neither is SPDK_DIR set, nor does pkg-config know spdk_event_nvmf".to_owned()),
    }
}

/// What the build of `spdk-sys` says is missing.
fn missing(message: &Value) -> Option<String> {
    let variables = message["env"].as_array()?;
    let found = variables.iter().find(|variable| variable[0] == "SPDK_MISSING")?;
    Some(found[1].as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_is_read_from_the_build() {
        let message = |env: Value| json!({"reason": "build-script-executed", "env": env});
        assert_eq!(missing(&message(json!([["SPDK_MISSING", "no SPDK"]]))), Some("no SPDK".to_owned()));
        assert_eq!(missing(&message(json!([]))), None);
        assert_eq!(missing(&json!({"reason": "compiler-artifact"})), None);
    }
}
