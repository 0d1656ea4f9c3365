//! What is installed on the site: the checkout's charts with the images that `cargo xtask image` wrote, or all of a release's folder
//! ([`RELEASE`]). The images are imported into every node.

use super::{Site, install};
use anyhow::{Context, Result, ensure};
use sandbox::Sandbox;
use std::path::PathBuf;

/// A folder that `cargo xtask release` wrote: images, charts and bmctl are that release's, and nothing of them the checkout's.
const RELEASE: &str = "METALPLANE_RELEASE";

pub fn release() -> Option<PathBuf> {
    std::env::var_os(RELEASE).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

impl Site {
    /// The file of one of them, named as `cargo xtask image` does.
    pub fn image_file(name: &str) -> PathBuf {
        folder().join(format!("{name}.tar"))
    }
}

/// Also where the values file for helm is.
fn folder() -> PathBuf {
    release().map_or_else(|| install::root().join("target/images"), |release| release.join("images"))
}

/// The chart's folder, or its file of a release.
pub(super) fn chart(name: &str) -> PathBuf {
    let file = |release: PathBuf| release.join(format!("charts/{name}-{}.tgz", env!("CARGO_PKG_VERSION")));
    release().map_or_else(|| install::root().join("charts").join(name), file)
}

pub(super) fn bmctl() -> Result<PathBuf> {
    let architecture = sandbox::architecture::Architecture::here();
    match release() {
        Some(release) => Ok(release.join(format!("bmctl-linux-{architecture}"))),
        None => super::program("bmctl"),
    }
}

/// By which the checkout's chart names the images; a release's chart names its own.
pub(super) fn values() -> Vec<String> {
    match release() {
        Some(_) => Vec::new(),
        None => vec!["--values".to_owned(), folder().join("values.yaml").display().to_string()],
    }
}

/// Imports the images.
pub(super) async fn load(sandbox: &Sandbox, say: &dyn Fn(&str)) -> Result<()> {
    say("importing the container images into the nodes");
    let folder = folder();
    let values = folder.join("values.yaml");
    ensure!(
        values.is_file(),
        "{} is missing: write the images with `cargo xtask image`, or the release with `cargo xtask release`",
        values.display()
    );
    let entries = std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    for tar in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "tar")) {
        let size = std::fs::metadata(tar).with_context(|| format!("read {}", tar.display()))?.len();
        let name = tar.file_stem().unwrap_or_default().to_string_lossy();
        say(&format!("    {name}, {} MiB, into every node that lacks it", size >> 20));
        sandbox.load_image(tar).await?;
    }
    Ok(())
}
