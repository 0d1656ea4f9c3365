//! Container images of the site: written by `cargo xtask image`, imported into every node.

use super::{Site, install};
use anyhow::{Context, Result, ensure};
use sandbox::Sandbox;
use std::path::PathBuf;

impl Site {
    /// The file of one of them, named as `cargo xtask image` does.
    pub fn image_file(&self, name: &str) -> PathBuf {
        folder().join(format!("{name}.tar"))
    }
}

/// Also where the values file for helm is.
pub(super) fn folder() -> PathBuf {
    install::root().join("target/images")
}

/// Imports the images; the values file for helm that names them.
pub(super) async fn load(sandbox: &Sandbox, say: &dyn Fn(&str)) -> Result<PathBuf> {
    say("importing the container images into the nodes");
    let folder = folder();
    let values = folder.join("values.yaml");
    ensure!(values.is_file(), "{} is missing: write the images with `cargo xtask image`", values.display());
    let entries = std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    for tar in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "tar")) {
        let size = std::fs::metadata(tar).with_context(|| format!("read {}", tar.display()))?.len();
        let name = tar.file_stem().unwrap_or_default().to_string_lossy();
        say(&format!("    {name}, {} MiB, into every node that lacks it", size >> 20));
        sandbox.load_image(tar).await?;
    }
    Ok(values)
}
