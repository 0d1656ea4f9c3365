//! What builds programs for an architecture that is not this machine's: Rust's standard library for it, and a C compiler, for the
//! linking and for the dependencies that have C and assembly in them (ring and zstd).
//!
//! The library comes by rustup. The compiler is this machine's own if there is one, else Debian's, unpacked into the user's cache.

use anyhow::{Context, Result, bail};
use sandbox::architecture::Architecture;
use sandbox::preflight::{self, Preflight};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What builds for one architecture.
pub(crate) struct Toolchain {
    /// What cargo has to be told.
    pub(crate) environment: BTreeMap<String, String>,
    /// The program of that name for this architecture.
    pub(crate) objcopy: PathBuf,
}

impl Toolchain {
    /// Gets what is missing.
    pub(crate) fn of(root: &Path, architecture: Architecture) -> Result<Self> {
        if architecture == Architecture::here() {
            return Ok(Self { environment: BTreeMap::new(), objcopy: "objcopy".into() });
        }
        standard_library(architecture)?;
        let [compiler, archiver, objcopy] = programs(root, architecture)?;
        let [compiler, archiver] = [compiler, archiver].map(|path| path.display().to_string());
        let target = architecture.target().replace('-', "_");
        let environment = [
            (format!("CC_{target}"), compiler.clone()),
            (format!("AR_{target}"), archiver),
            (format!("CARGO_TARGET_{}_LINKER", target.to_uppercase()), compiler),
        ];
        Ok(Self { environment: environment.into(), objcopy })
    }
}

fn standard_library(architecture: Architecture) -> Result<()> {
    let target = architecture.target();
    if has_library(target)? {
        return Ok(());
    }
    eprintln!("getting Rust's standard library for {target}");
    // An error's text is its own, and what it means is below.
    let _ = Command::new("rustup").args(["target", "add", target]).status();
    if has_library(target)? {
        return Ok(());
    }
    bail!("Rust's standard library for {target} is missing: rustup target add {target}")
}

fn has_library(target: &str) -> Result<bool> {
    let done = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    let done = done.context("start rustc")?;
    let folder = PathBuf::from(String::from_utf8_lossy(&done.stdout).trim());
    let files = fs::read_dir(&folder).into_iter().flatten().flatten();
    Ok(files.map(|file| file.file_name()).any(|name| name.to_string_lossy().starts_with("libstd-")))
}

/// Compiler, archiver and objcopy, which find their own libraries and the other architecture's C library.
fn programs(root: &Path, architecture: Architecture) -> Result<[PathBuf; 3]> {
    let triplet = architecture.triplet();
    let library = format!("/usr/{triplet}/lib/libc.a");
    // A package's name has no underscore.
    let needed = [
        (format!("{triplet}-gcc"), format!("gcc-{}", triplet.replace('_', "-"))),
        (library.clone(), format!("libc6-dev-{architecture}-cross")),
    ];
    let needed: Vec<(&str, &str)> = needed.iter().map(|(what, package)| (what.as_str(), package.as_str())).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("a runtime")?;
    let found = runtime.block_on(preflight::unpack(&needed))?;
    let path = |name: &str| {
        let name = format!("{triplet}-{name}");
        found.find(&name).with_context(|| format!("{name} is missing"))
    };
    let [compiler, archiver, objcopy] = [path("gcc")?, path("ar")?, path("objcopy")?];
    let Some(unpacked) = found.unpacked() else { return Ok([compiler, archiver, objcopy]) };
    // A compiler of the machine's own finds the C library that was installed with it.
    let is_unpacked = found.find(&library).is_some_and(|library| library.starts_with(unpacked));
    let sysroot = if is_unpacked { format!("'--sysroot={}'", unpacked.display()) } else { String::new() };
    Ok([
        with_libraries(root, &found, &compiler, &sysroot)?,
        with_libraries(root, &found, &archiver, "")?,
        with_libraries(root, &found, &objcopy, "")?,
    ])
}

/// A script that starts a program which may be unpacked, with the libraries that are unpacked with it.
pub(crate) fn with_libraries(root: &Path, found: &Preflight, program: &Path, arguments: &str) -> Result<PathBuf> {
    let folder = root.join("target/cross");
    let path = folder.join(program.file_name().context("a program has a name")?);
    let libraries = found.environment(&[]).remove("LD_LIBRARY_PATH").unwrap_or_default();
    let text = format!("#!/bin/sh\nLD_LIBRARY_PATH='{libraries}' exec '{}' {arguments} \"$@\"\n", program.display());
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("make it a program")?;
    Ok(path)
}
