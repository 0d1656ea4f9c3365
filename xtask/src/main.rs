//! What the workspace does with itself: generated files, checks, images, the test run, the judges, the figures.
//!
//! | module | what it is |
//! |---|---|
//! | [`bench`] | figures, measured |
//! | [`crds`] | the definitions of `api` as YAML in the chart |
//! | [`docs`] | the reference in docs/reference |
//! | [`cross`] | what builds programs for another architecture |
//! | [`fuzz`] | the packet engines, given any bytes |
//! | [`go`] | programs in Go, built |
//! | [`generated`] | files that are written from code and committed |
//! | [`judges`] | programs of others that say whether we keep to their specification |
//! | [`layers`] | which folder may depend on which |
//! | [`image`] | container images of our programs and the sidecars |
//! | [`native`] | `spdk-target`, built with SPDK |
//! | [`release`] | everything that an installation needs, in one folder |
//! | [`push`] | the images of a release into a registry |
//! | [`programs`] | programs of the workspace, built |
//! | [`test`] | the whole test run and its report |
//!
//! `cargo xtask --help` lists the commands; `make` calls them.

mod args;
mod bench;
mod crds;
mod cross;
mod docs;
mod fuzz;
mod generated;
mod go;
mod image;
mod judges;
mod layers;
mod native;
mod programs;
mod push;
mod release;
mod test;
mod third_party;

use anyhow::{Context, Result};
use args::Task;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let root = root()?;
    match args::read() {
        Task::Crds { check } => crds::run(&root, check),
        Task::Docs { check } => docs::run(&root, check),
        Task::Layers => layers::run(&root),
        Task::Image(options) => image::run(&root, &options),
        Task::InstallerImage(options) => image::installer(&root, &options),
        Task::LockPackages => image::lock_packages(&root),
        Task::Release(options) => release::run(&root, &options).map(|folder| println!("{}", folder.display())),
        Task::Push(options) => push::run(&root, &options),
        Task::Bench(options) => bench::run(&root, &options),
        Task::Judges { name } => return judges::run(&root, name.as_deref()),
        Task::Fuzz(options) => fuzz::run(&root, &options),
        Task::SpdkTarget => native::run(&root),
        Task::Prepare => test::prepare(),
        Task::Test(options) => return test::run(&root, &options),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// The workspace's folder: that of this crate's parent, wherever the command was called from.
fn root() -> Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask lies in the workspace's folder")?.to_owned())
}
