//! `cargo xtask installer-image`: what a server without a DPU boots from the network.

use super::roots;
use crate::programs::{self, Release};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build what ships: optimised, with the commit in it
    #[arg(long)]
    release: bool,
    /// Where they go [default: target/images/installer; with --release target/release-images/installer]
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Options {
    /// As it ships.
    pub(crate) fn of_release(out: PathBuf) -> Self {
        Self { release: true, out: Some(out) }
    }
}

/// Beside the container images of the same kind.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let programs = match options.release {
        true => programs::release(root, &["installer"], &Release::of(root)?)?,
        false => programs::build(root, &["installer"])?,
    };
    let program = programs.get("installer").context("the installer was built")?;
    let default = if options.release { "target/release-images/installer" } else { "target/images/installer" };
    let folder = root.join(options.out.as_deref().unwrap_or(Path::new(default)));
    let certificates = roots::member(root)?.source;
    let cache = sandbox::args::cache_folder();
    let files = sandbox::guest::installer(program, Some(&certificates), &cache, &folder)?;
    for path in [files.kernel, files.initramfs] {
        println!("{}", path.display());
    }
    Ok(())
}
