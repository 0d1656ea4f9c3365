//! Container images of the site: written by `cargo xtask image`, imported into every node.

use super::{install, run};
use anyhow::{Context, Result};
use sandbox::Sandbox;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// Writes and imports the images; the values file for helm that names them.
pub(super) async fn load(sandbox: &Sandbox, say: &dyn Fn(&str)) -> Result<PathBuf> {
    say("writing the container images and importing them into the nodes");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(install::root());
    let printed = run(cargo, &["xtask", "image"], None).await.context("write the images")?;
    let mut folder = None;
    for tar in printed.lines().map(Path::new) {
        sandbox.load_image(tar).await?;
        folder = tar.parent();
    }
    let values = folder.context("`cargo xtask image` printed no image")?.join("values.yaml");
    anyhow::ensure!(values.is_file(), "`cargo xtask image` wrote no {}", values.display());
    Ok(values)
}
