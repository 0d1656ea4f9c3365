//! `cargo xtask installer-image`: what a server without a DPU boots from the network.

use super::roots;
use crate::programs::{self, Release};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const PROGRAM: &str = "installer";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build what ships: optimised, with the commit in it
    #[arg(long)]
    release: bool,
    /// Where they go [default: target/images/installer; with --release target/release-images/installer]
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Beside the container images of the same kind.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let default = if options.release { "target/release-images/installer" } else { "target/images/installer" };
    let folder = root.join(options.out.as_deref().unwrap_or(Path::new(default)));
    let programs = match options.release {
        true => programs::release(root, &[PROGRAM], &Release::of(root)?)?,
        false => programs::build(root, &[PROGRAM])?,
    };
    write(root, &programs, &folder)
}

/// As it ships.
pub(crate) fn of_release(root: &Path, release: &Release, folder: &Path) -> Result<()> {
    write(root, &programs::release(root, &[PROGRAM], release)?, folder)
}

fn write(root: &Path, programs: &BTreeMap<&'static str, PathBuf>, folder: &Path) -> Result<()> {
    let program = programs.get(PROGRAM).context("the installer was built")?;
    let certificates = roots::member(root)?.source;
    let cache = sandbox::args::cache_folder();
    let files = sandbox::guest::installer(program, Some(&certificates), &cache, folder)?;
    for path in [files.kernel, files.initramfs] {
        println!("{}", path.display());
    }
    Ok(())
}
