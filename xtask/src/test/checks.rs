//! Checks of the text: each counts as one test.

use super::Options;
use super::prepare;
use super::report::Report;
use super::running::Environment;
use crate::{crds, docs, image, layers, native};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

pub(super) fn run(root: &Path, options: &Options, report: &mut Report) {
    let cargo = |arguments: &[&str]| succeeds(Command::new("cargo").current_dir(root).args(arguments));
    let check = |report: &mut Report, name: &str, does: &dyn Fn() -> Result<()>| {
        eprintln!("check: {name}");
        let start = Instant::now();
        let done = does();
        report.check(name, done.map_err(|error| format!("{error:#}")), start.elapsed());
    };
    check(report, "tools", &|| components(root));
    check(report, "format", &|| cargo(&["fmt", "--all", "--check"]).context("run `cargo fmt --all` and commit"));
    check(report, "clippy", &|| {
        let packages = options.packages();
        cargo(&[&["clippy", "--all-targets"], packages.as_slice(), &["--", "-D", "warnings"]].concat())
    });
    check(report, "layers", &|| layers::run(root));
    check(report, "crds", &|| crds::run(root, true));
    check(report, "docs", &|| docs::run(root, true));
    if root.join("deny.toml").exists() {
        if has(root, "deny") {
            check(report, "licences", &|| cargo(&["deny", "--offline", "check", "bans", "licenses", "sources"]));
        } else {
            report.skipped("check", "licences", "cargo-deny is not installed (`cargo install cargo-deny`)");
        }
    }
}

/// Before the tests: what sandboxes write, with packages and images where they are not cached.
pub(super) const SPACE_BEFORE_GB: u64 = 5;
/// With less than this left afterwards, a failed test says nothing of the code.
pub(super) const SPACE_AFTER_GB: u64 = 1;

/// Too little space shows itself everywhere and nowhere plainly: filesystems that cannot be made, devices with I/O errors.
pub(super) fn space(root: &Path, report: &mut Report, when: &str, wanted_gb: u64) {
    let start = Instant::now();
    let folders = [&sandbox::args::cache_folder(), &std::env::temp_dir(), root];
    let done = enough_space(&folders.map(AsRef::as_ref), wanted_gb).map_err(|error| format!("{error:#}"));
    report.check(&format!("space {when}"), done, start.elapsed());
}

fn enough_space(folders: &[&Path], wanted_gb: u64) -> Result<()> {
    for folder in folders {
        let at = folder.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
        let free =
            nix::sys::statvfs::statvfs(at).with_context(|| format!("ask for the free space at {}", at.display()))?;
        let free = free.blocks_available() * free.fragment_size() / 1_000_000_000;
        ensure!(free >= wanted_gb, "{} has {free} GB free, and {wanted_gb} GB are needed: free some", at.display());
    }
    Ok(())
}

/// What tests need from outside. Without it most tests that need it are skipped, each with its reason.
pub(super) fn needs(root: &Path, report: &mut Report) -> Environment {
    let start = Instant::now();
    eprintln!("check: programs");
    if Command::new("go").arg("version").output().is_ok() {
        let done = prepare::programs(root).map_err(|error| format!("{error:#}"));
        report.check("programs", done, start.elapsed());
    } else {
        report.skipped("check", "programs", "Go is missing: install Go 1.26 or newer (https://go.dev/dl)");
    }
    eprintln!("check: packages");
    let start = Instant::now();
    match prepare::packages() {
        Ok(environment) => {
            report.check("packages", Ok(()), start.elapsed());
            environment
        }
        Err(error) => {
            report.skipped("check", "packages", &format!("{error:#}"));
            Environment::new()
        }
    }
}

/// What is compiled with SPDK only, and the target that tests run on: only where SPDK is.
pub(super) fn spdk_target(root: &Path, report: &mut Report) -> Environment {
    let start = Instant::now();
    let mut environment = Environment::new();
    if let Err(missing) = native::installed() {
        report.skipped("check", "spdk-target", &missing);
        return environment;
    }
    eprintln!("check: spdk-target");
    match native::check(root).and_then(|()| native::build(root, None)) {
        Ok(Ok(program)) => {
            environment.insert(native::VARIABLE.to_owned(), program.display().to_string());
            report.check("spdk-target", Ok(()), start.elapsed());
        }
        Ok(Err(missing)) => report.skipped("check", "spdk-target", &missing),
        Err(error) => report.check("spdk-target", Err(format!("{error:#}")), start.elapsed()),
    }
    environment
}

/// The end-to-end tests install what this writes.
pub(super) fn images(root: &Path, report: &mut Report) {
    let start = Instant::now();
    eprintln!("check: images");
    if Command::new("go").arg("version").output().is_err() {
        report.skipped("check", "images", "Go is missing: install Go 1.26 or newer (https://go.dev/dl)");
        return;
    }
    let done = image::run(root, &image::Options::default()).map_err(|error| format!("{error:#}"));
    report.check("images", done, start.elapsed());
}

fn has(root: &Path, subcommand: &str) -> bool {
    let done = Command::new("cargo").current_dir(root).args([subcommand, "--version"]).output();
    done.is_ok_and(|done| done.status.success())
}

/// rustfmt and clippy: not part of a minimal installation of Rust.
fn components(root: &Path) -> Result<()> {
    let missing: Vec<&str> = [("fmt", "rustfmt"), ("clippy", "clippy")]
        .iter()
        .filter(|(sub, _)| !has(root, sub))
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" and ");
    eprintln!("missing: {names}; installing by rustup");
    let mut rustup = Command::new("rustup");
    if let Err(error) = succeeds(rustup.current_dir(root).args(["component", "add"]).args(&missing)) {
        bail!("{names} missing and not installable by rustup ({error:#}): install them with your distribution's tools");
    }
    Ok(())
}

fn succeeds(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status} (its output is above)");
    Ok(())
}
