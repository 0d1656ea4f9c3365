//! The programs of a hold disk (`imaging::hold_disk`), for images of tests and demo: a shim and a GRUB that secure boot lets start, of Debian's packages as they
//! are today. What ships has those of pinned packages.

use crate::architecture::Architecture;
use crate::packages::{self, Packages};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const RECIPE: &str = include_str!("hold_disk.rs");

/// For servers of this architecture there is one, whatever the DPU's is.
pub const ARCHITECTURE: Architecture = Architecture::Amd64;
pub const PACKAGES: [&str; 2] = ["grub-efi-amd64-signed", "shim-signed"];
/// Where they are in their packages; and what they are called in an image.
pub const PROGRAMS: [(&str, &str); 2] = [
    ("/usr/lib/shim/shimx64.efi.signed", "shim.efi"),
    ("/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", "grub.efi"),
];

/// The programs, each with what it is called in an image.
pub fn hold_disk(cache: &Path) -> Result<Vec<(PathBuf, &'static str)>> {
    let kept = super::cached("hold-disk", &[RECIPE], cache, |into| keep(into, cache))?;
    Ok(PROGRAMS.iter().map(|(_, name)| (kept.join(name), *name)).collect())
}

fn keep(into: &Path, cache: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(into).context("create a work folder")?;
    let tree = work.path().join("tree");
    let packages = Packages::of(ARCHITECTURE.name(), cache)?;
    packages.update();
    for package in packages.with_dependencies(&PACKAGES)? {
        if PACKAGES.contains(&package.name.as_str()) {
            let (file, _) = packages.download(&package, &work.path().join("debs"))?;
            packages::unpack(&file, &tree)?;
        }
    }
    for (path, name) in PROGRAMS {
        let from = tree.join(path.trim_start_matches('/'));
        fs::copy(&from, into.join(name)).with_context(|| format!("copy {}", from.display()))?;
    }
    Ok(())
}
