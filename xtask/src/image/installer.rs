//! `cargo xtask installer-image`: what a server without a DPU boots from the network.

use super::roots;
use crate::programs::{self, Release};
use anyhow::{Context, Result};
use std::path::Path;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build what ships: optimised, with the commit in it
    #[arg(long)]
    release: bool,
}

/// Beside the container images of the same kind.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let programs = match options.release {
        true => programs::release(root, &["installer"], &Release::of(root)?)?,
        false => programs::build(root, &["installer"])?,
    };
    let program = programs.get("installer").context("the installer was built")?;
    let folder = if options.release { "target/release-images/installer" } else { "target/images/installer" };
    let folder = root.join(folder);
    let certificates = roots::member(&folder)?.source;
    let cache = sandbox::args::cache_folder();
    let files = sandbox::guest::installer(program, Some(&certificates), &cache, &folder)?;
    for path in [files.kernel, files.initramfs] {
        println!("{}", path.display());
    }
    Ok(())
}
