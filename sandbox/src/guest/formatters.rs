//! The programs that make file systems, for the installer's initramfs: Debian's, with the libraries that they are linked with.

use super::cpio::Archive;
use crate::architecture::Architecture;
use crate::packages::{self, Packages};
use anyhow::{Context, Result};
use goblin::elf::Elf;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub(super) const RECIPE: &str = include_str!("formatters.rs");
/// What has them, and what those need.
const PACKAGES: [&str; 2] = ["e2fsprogs", "dosfstools"];
/// As they are in their packages; in the initramfs all are in `/sbin`.
const PROGRAMS: [&str; 2] = ["sbin/mke2fs", "sbin/mkfs.fat"];

/// An archive of them.
pub(super) fn archive(architecture: Architecture, work: &Path, cache: &Path) -> Result<Vec<u8>> {
    let packages = Packages::of(architecture.name(), cache)?;
    packages.update();
    let tree = work.join("formatters");
    for package in packages.with_dependencies(&PACKAGES)? {
        let (file, _) = packages.download(&package, &work.join("debs"))?;
        packages::unpack(&file, &tree)?;
    }
    let folders = ["lib", "usr/lib"].map(|lib| tree.join(lib).join(architecture.triplet()));
    let (mut archive, mut libraries, mut loader) = (Archive::default(), BTreeMap::new(), None);
    for folder in ["lib", "lib64", "sbin"] {
        archive.folder(folder);
    }
    for program in PROGRAMS {
        let path = tree.join(program);
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        loader = needed(&bytes, &folders, &mut libraries).with_context(|| format!("read {}", path.display()))?;
        archive.program(program, &bytes);
    }
    // Where programs have it written.
    let loader = loader.context("Debian's programs name a loader")?;
    let name = loader.rsplit('/').next().unwrap_or(&loader);
    let bytes = find(name, &folders)?;
    archive.program(loader.trim_start_matches('/'), &bytes);
    for (name, bytes) in libraries.iter().filter(|(name, _)| !loader.ends_with(*name)) {
        archive.program(&format!("lib/{name}"), bytes);
    }
    Ok(archive.finish())
}

/// Adds the libraries of a program or a library, and theirs. Its loader, if it has one.
fn needed(elf: &[u8], folders: &[PathBuf], libraries: &mut BTreeMap<String, Vec<u8>>) -> Result<Option<String>> {
    let elf = Elf::parse(elf)?;
    for name in &elf.libraries {
        if !libraries.contains_key(*name) {
            let bytes = find(name, folders)?;
            libraries.insert((*name).to_owned(), bytes.clone());
            needed(&bytes, folders, libraries)?;
        }
    }
    Ok(elf.interpreter.map(str::to_owned))
}

fn find(name: &str, folders: &[PathBuf]) -> Result<Vec<u8>> {
    let found = folders.iter().find_map(|folder| fs::read(folder.join(name)).ok());
    found.with_context(|| format!("no package has {name}"))
}
