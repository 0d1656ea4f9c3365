//! Builds programs of the workspace and tells where they are.
//!
//! The same profile and flags as everything else: what is tested is what is put in an image and what is documented.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program of each package that has its package's name.
pub(crate) fn build(root: &Path, names: &[&'static str]) -> Result<BTreeMap<&'static str, PathBuf>> {
    let mut cargo = Command::new("cargo");
    // The whole workspace: a choice of packages has other features, and builds the dependencies once more.
    cargo.current_dir(root).args(["build", "--workspace", "--bins", "--message-format=json-render-diagnostics"]);
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("start cargo build")?;
    let mut programs = BTreeMap::new();
    for line in BufReader::new(child.stdout.take().context("cargo's output is a pipe")?).lines() {
        let message: Value = serde_json::from_str(&line.context("read cargo's messages")?)?;
        let built = names.iter().find(|name| message["target"]["name"] == **name);
        if let (Some(name), Some(program)) = (built, message["executable"].as_str()) {
            programs.insert(*name, PathBuf::from(program));
        }
    }
    let status = child.wait().context("wait for cargo build")?;
    ensure!(status.success(), "cargo build: {status} (its output is above)");
    match names.iter().find(|name| !programs.contains_key(*name)) {
        Some(name) => bail!("the package {name} has no program {name}"),
        None => Ok(programs),
    }
}
