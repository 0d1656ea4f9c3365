//! The programs that make file systems, for the installer's initramfs: Debian's, with the libraries that they are linked with. For tests
//! they are of the packages that this machine's package sources have; what ships has those of pinned packages ([`Formatters::These`]).

use super::cpio::Archive;
use crate::architecture::Architecture;
use crate::packages::{self, Packages};
use anyhow::{Context, Result};
use goblin::elf::Elf;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

pub(super) const RECIPE: &str = include_str!("formatters.rs");
/// What has them, and what those need.
const PACKAGES: [&str; 2] = ["e2fsprogs", "dosfstools"];
/// As they are in their packages; in the initramfs all are in `/sbin`.
const PROGRAMS: [&str; 2] = ["sbin/mke2fs", "sbin/mkfs.fat"];

/// Where they are from.
#[derive(Clone, Copy)]
pub enum Formatters<'a> {
    /// Debian's packages, as they are now.
    OfToday,
    /// These files, each with its path in the initramfs: [`Formatters::WANTED`], and what they load.
    These(&'a [(PathBuf, String)]),
}

impl Formatters<'_> {
    /// The programs, by their names. They are in [`Formatters::FOLDER`].
    pub const WANTED: [&'static str; 2] = ["mke2fs", "mkfs.fat"];
    pub const FOLDER: &'static str = "/sbin";
}

/// An archive of files, each with its path.
pub(super) fn archive_of(files: &[(PathBuf, String)]) -> Result<Vec<u8>> {
    let (mut archive, mut folders) = (Archive::default(), BTreeSet::new());
    for (source, path) in files {
        let path = Path::new(path.trim_start_matches('/'));
        let above: Vec<&Path> = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
        for folder in above.into_iter().rev() {
            if folders.insert(folder.to_owned()) {
                archive.folder(&folder.to_string_lossy());
            }
        }
        let bytes = fs::read(source).with_context(|| format!("read {}", source.display()))?;
        archive.program(&path.to_string_lossy(), &bytes);
    }
    Ok(archive.finish())
}

/// An archive of those of today.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_is_there_once_and_before_what_is_in_it() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "program").expect("written");
        let paths = ["/sbin/mke2fs", "/lib/x86_64-linux-gnu/libc.so.6", "/lib/ld.so", "/sbin/mkfs.fat"];
        let archive = archive_of(&paths.map(|path| (file.path().to_owned(), path.to_owned()))).expect("read");
        let at = |path: &str| {
            let name = [path.as_bytes(), b"\0"].concat();
            let all = archive.windows(name.len()).enumerate();
            // Where the header of 110 bytes ends, and the name begins.
            let found: Vec<usize> = all
                .filter(|(at, bytes)| *bytes == name && archive[at - 110..].starts_with(b"070701"))
                .map(|(at, _)| at)
                .collect();
            assert_eq!(found.len(), 1, "{path}: {found:?}");
            found[0]
        };
        let wanted = ["lib", "lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu/libc.so.6"].map(at);
        assert!(wanted.is_sorted(), "{wanted:?}");
        assert!(at("sbin") < at("sbin/mke2fs") && at("sbin") < at("sbin/mkfs.fat") && at("lib") < at("lib/ld.so"));
    }
}
