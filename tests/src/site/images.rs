//! Container images of the site: written by `cargo xtask image`, imported into every node.

use super::{install, run};
use anyhow::{Context, Result};
use sandbox::Sandbox;
use serde::Deserialize;
use std::path::PathBuf;
use tokio::process::Command;

/// One line of `cargo xtask image`.
#[derive(Deserialize)]
struct Image {
    name: String,
    reference: String,
    tar: PathBuf,
}

/// Which value of the chart takes which image.
const VALUES: [(&str, &str); 7] = [
    ("controller", "images.controller"),
    ("dpu-agent", "images.agent"),
    ("csi", "images.csi"),
    ("csi-provisioner", "images.provisioner"),
    ("csi-resizer", "images.resizer"),
    ("csi-snapshotter", "images.snapshotter"),
    ("snapshot-controller", "images.snapshotController"),
];

/// Writes, imports and returns the values for helm.
pub(super) async fn load(sandbox: &Sandbox, say: &dyn Fn(&str)) -> Result<Vec<String>> {
    say("writing the container images and importing them into the nodes");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(install::root());
    let printed = run(cargo, &["xtask", "image", "--json"], None).await.context("write the images")?;
    let mut values = Vec::new();
    for line in printed.lines().filter(|line| line.starts_with('{')) {
        let image: Image = serde_json::from_str(line).with_context(|| format!("understand `{line}`"))?;
        sandbox.load_image(&image.tar).await?;
        let value = VALUES.iter().find(|(name, _)| *name == image.name);
        values.extend(value.map(|(_, value)| format!("{value}={}", image.reference)));
    }
    anyhow::ensure!(values.len() == VALUES.len(), "`cargo xtask image` wrote {} of {} images", values.len(), VALUES.len());
    Ok(values)
}
