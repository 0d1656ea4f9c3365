//! Container images of the site: written by `cargo xtask image`, imported into every node.

use super::install;
use anyhow::{Context, Result, ensure};
use sandbox::Sandbox;
use std::path::PathBuf;

/// Imports the images; the values file for helm that names them.
pub(super) async fn load(sandbox: &Sandbox, say: &dyn Fn(&str)) -> Result<PathBuf> {
    say("importing the container images into the nodes");
    let folder = install::root().join("target/images");
    let values = folder.join("values.yaml");
    ensure!(values.is_file(), "{} is missing: write the images with `cargo xtask image`", values.display());
    let entries = std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    for tar in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "tar")) {
        sandbox.load_image(tar).await?;
    }
    Ok(values)
}
