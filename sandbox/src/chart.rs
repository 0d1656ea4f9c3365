//! The chart of the checkout, rendered by helm as it is, and what the pages for operators write for it.

use crate::programs;
use anyhow::{Context, Result};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/metalplane");

/// helm as it is, on the checkout's chart.
pub struct Helm(PathBuf);

impl Helm {
    pub async fn find() -> Result<Self> {
        Ok(Self(programs::build("helm").await?.join("helm")))
    }

    /// `values`: in YAML; flags are stronger.
    pub fn template(&self, values: &str, flags: &[String]) -> Result<Output> {
        let mut command = Command::new(&self.0);
        command.args(["template", "metalplane", CHART, "--namespace", "metalplane-system", "--values=-"]).args(flags);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut helm = command.spawn().context("start helm")?;
        // Closed behind it: that is the end of the values.
        helm.stdin.take().context("helm reads the values")?.write_all(values.as_bytes())?;
        helm.wait_with_output().context("wait for helm")
    }
}

pub fn file(name: &str) -> Result<String> {
    let path = format!("{CHART}/{name}");
    std::fs::read_to_string(&path).with_context(|| format!("read {path}"))
}

/// The first block of YAML under this heading of a page for operators.
pub fn documented(page: &str, heading: &str) -> Result<String> {
    let path = format!("{}/../docs/operator/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let behind = text.split_once(&format!("\n## {heading}\n")).map(|(_, behind)| behind);
    let section = behind.and_then(|behind| behind.split("\n## ").next());
    let block = section.and_then(|section| section.split_once("```yaml\n")?.1.split_once("```"));
    let (block, _) = block.with_context(|| format!("{path} has no YAML under {heading:?}"))?;
    Ok(block.to_owned())
}
