//! `cargo xtask test`: everything that can fail, in one command; `make test` calls it.
//!
//! First the checks of the text (format, clippy, layers, generated files), then every test binary, one after the
//! other: quick ones first, end-to-end last. Those that only compute run beside them, on what processor time the others leave:
//! tests of real parts wait for most of theirs. libtest does not tell times or skipped tests on a stable compiler, so
//! [`libtest`] reads its output: a test that prints `SKIP <name>: <reason>` counts as skipped, one that prints
//! `TIME <name> <ms>` has that time, any other has the time from its start to its result line.
//!
//! Property tests draw the same cases each time (`PROPTEST_RNG_SEED` for others).
//!
//! The last line is always `N passed, N failed, N skipped`.

mod binaries;
mod checks;
mod libtest;
mod prepare;
mod report;
mod running;

use anyhow::{Context, Result};
pub(crate) use binaries::Foreign;
pub(crate) use prepare::{packages, print as prepare};
use report::Report;
pub(crate) use report::{Case, Outcome, failures};
use running::Environment;
pub(crate) use running::{PROPTEST_SEED, as_root, as_root_with, needs_sudo};
use std::path::Path;
use std::process::ExitCode;

/// What is asked for; nothing named means everything.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this package (may be repeated)
    #[arg(short, long)]
    package: Vec<String>,
    /// Leave out format, clippy and the other checks
    #[arg(long)]
    no_checks: bool,
    /// Build the tests of these packages with the profile of what ships
    #[arg(long, requires = "package")]
    release: bool,
    /// Only tests whose name contains this
    filter: Option<String>,
}

impl Options {
    /// The same choice for cargo.
    fn packages(&self) -> Vec<&str> {
        let profile = self.release.then_some("--release");
        match self.package.as_slice() {
            [] => vec!["--workspace"],
            packages => packages.iter().flat_map(|package| ["--package", package]).chain(profile).collect(),
        }
    }
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let mut report = Report::default();
    if !options.no_checks {
        checks::run(root, options, &mut report);
    }
    let mut environment = checks::needs(root, &mut report);
    environment.extend([running::proptest_seed()]);
    if options.package.is_empty() {
        environment.extend(checks::spdk_target(root, &mut report));
    }
    checks::space(root, &mut report, "before", checks::SPACE_BEFORE_GB);
    match binaries::build(root, &options.packages()) {
        Ok(binaries) => {
            if options.package.is_empty() || options.package.iter().any(|package| package == "tests") {
                checks::images(root, &mut report);
            }
            let (beside, others): (Vec<_>, Vec<_>) = binaries.iter().partition(|binary| binary.only_computes());
            let lane = |binaries: Vec<&binaries::Binary>| -> Vec<Case> {
                let run = |binary| {
                    let cases = running::run(binary, &environment, options.filter.as_deref());
                    // At once too: whoever follows the run, or gets only a part of its output, sees the cause.
                    eprint!("{}", failures(&cases));
                    cases
                };
                binaries.into_iter().flat_map(run).collect()
            };
            std::thread::scope(|scope| {
                let beside = scope.spawn(|| lane(beside));
                report.extend(lane(others));
                match beside.join() {
                    Ok(cases) => report.extend(cases),
                    Err(_) => report.failed("run", "tests that only compute", "their runner panicked"),
                }
            });
            report.extend(running::doc_tests(root, options));
        }
        Err(error) => report.failed("build", "the tests", &format!("{error:#}")),
    }
    checks::space(root, &mut report, "after", checks::SPACE_AFTER_GB);
    report.print();
    Ok(if report.has_failures() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Gets what sandboxes need from outside.
pub(crate) fn needs(root: &Path) -> Result<()> {
    prepare::programs(root)?;
    packages().map(drop)
}

/// Builds and runs one test binary of one package, with all that it needs.
pub(crate) fn binary(root: &Path, package: &str, target: &str) -> Result<Vec<Case>> {
    some_of_binary(root, package, target, None)
}

/// Those tests of it whose name contains `filter`. Who names a test binary has the time for tests that take minutes each.
pub(crate) fn some_of_binary(root: &Path, package: &str, target: &str, filter: Option<&str>) -> Result<Vec<Case>> {
    some_of_binary_with(root, (package, target), filter, &[])
}

/// The same with variables for the tests.
pub(crate) fn some_of_binary_with(
    root: &Path,
    (package, target): (&str, &str),
    filter: Option<&str>,
    variables: &[(&str, String)],
) -> Result<Vec<Case>> {
    prepare::programs(root)?;
    let mut environment = packages()?;
    environment.insert(running::LONG_TESTS.to_owned(), "1".to_owned());
    environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    build_and_run(root, package, target, &environment, filter)
}

/// The same for one that needs neither Go-built programs nor packages.
pub(crate) fn plain_binary(root: &Path, package: &str, target: &str) -> Result<Vec<Case>> {
    build_and_run(root, package, target, &Environment::new(), None)
}

/// The same with another draw of its property tests.
pub(crate) fn properties_of_binary(root: &Path, package: &str, target: &str, seed: u64) -> Result<Vec<Case>> {
    let environment = Environment::from([(PROPTEST_SEED.to_owned(), seed.to_string())]);
    build_and_run(root, package, target, &environment, None)
}

/// All tests of these packages, built for another architecture and run by its emulator.
pub(crate) fn foreign(root: &Path, packages: &[&str], foreign: &Foreign<'_>) -> Result<Vec<Case>> {
    prepare::programs(root)?;
    let mut environment = self::packages()?;
    environment.extend([running::proptest_seed()]);
    // By it they start their own programs, too.
    environment.insert("EMULATOR".to_owned(), foreign.emulator.display().to_string());
    let which: Vec<&str> = packages.iter().flat_map(|package| ["--package", package]).collect();
    let binaries = binaries::foreign(root, &which, foreign)?;
    Ok(binaries.iter().flat_map(|binary| running::run(binary, &environment, None)).collect())
}

fn build_and_run(
    root: &Path,
    package: &str,
    target: &str,
    environment: &Environment,
    filter: Option<&str>,
) -> Result<Vec<Case>> {
    // Of the whole workspace: a package of its own has other features, and builds the dependencies once more.
    let binaries = binaries::build(root, &["--workspace", "--test", target])?;
    let found = binaries.iter().find(|binary| binary.package == package && binary.target == target);
    let binary = found.with_context(|| format!("the package {package} has no test {target}"))?;
    Ok(running::run(binary, environment, filter))
}
