//! A release installs, and is reproducible.
//!
//! First its own install.md, word for word: from a registry alone, with TLS and a password, to a machine that boots. Then two clones of
//! this commit, in two folders, each built from nothing, give the same files: sha256sum of coreutils reads the sums of the one in the
//! folder of the other.

use super::{Bench, Judge, Verdict, Word, cases};
use crate::programs::Release;
use crate::release::{self, SUMS, VARIABLE};
use crate::test;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const JUDGE: Judge = Judge { name: "release", run };

/// The tests that install.
const FILTER: &str = "registry::";

fn run(bench: &Bench) -> Result<Verdict> {
    ensure!(
        std::env::var_os("CARGO_TARGET_DIR").is_none(),
        "CARGO_TARGET_DIR is set: both builds would use one folder. Unset it"
    );
    let installed = installed(bench)?;
    let report = bench.folder.join("report");
    std::fs::rename(&report, bench.folder.join("installation")).context("keep the report of the installation")?;
    let same = reproducible(bench)?;
    let word = if [installed.word, same.word] == [Word::Pass; 2] { Word::Pass } else { Word::Fail };
    let skipped = format!("skipped: {}", release::LEFT_OUT);
    let reasons = [installed.reason, same.reason, skipped].into_iter().filter(|reason| !reason.is_empty());
    let reason = reasons.collect::<Vec<_>>().join("; ");
    Ok(Verdict { word, done: installed.done + same.done, all: installed.all + same.all, reason })
}

/// The release of this checkout, where `make release` writes it: install.md pushes from there.
fn installed(bench: &Bench) -> Result<Verdict> {
    let folder = release::run(bench.root, &release::Options::default())?;
    let mut bmctl = Command::new(folder.join(release::BMCTL));
    let said = bmctl.arg("--version").output().with_context(|| format!("start {bmctl:?}"))?;
    let (said, commit) = (String::from_utf8_lossy(&said.stdout).into_owned(), Release::of(bench.root)?.commit);
    ensure!(said.trim().ends_with(&format!("+{commit}")), "bmctl of the release says {said:?}, of commit {commit}");
    let variables = [(VARIABLE, folder.display().to_string())];
    let cases = test::some_of_binary_with(bench.root, ("tests", "end_to_end"), Some(FILTER), &variables)?;
    ensure!(!cases.is_empty(), "no end-to-end test has {FILTER} in its name");
    let command = format!("{VARIABLE}={} cargo xtask test --no-checks --package tests {FILTER}\n", folder.display());
    cases::verdict(bench, command, &cases)
}

fn reproducible(bench: &Bench) -> Result<Verdict> {
    // Names of unequal length, so that a path that is left in a program moves what stands behind it.
    let folders = ["one", "the-other"].map(|name| bench.folder.join(name));
    let mut releases = Vec::new();
    for folder in &folders {
        releases.push(built(bench.root, folder)?);
    }
    let mut check = Command::new("sha256sum");
    check.current_dir(&releases[1]).arg("--check").arg(releases[0].join(SUMS));
    let said = check.output().context("start sha256sum")?;
    let report = String::from_utf8_lossy(&said.stdout).into_owned();
    std::fs::write(bench.folder.join("report"), format!("{check:?}\n{report}")).context("write the report")?;
    let (same, others): (Vec<&str>, Vec<&str>) = report.lines().partition(|line| line.ends_with(": OK"));
    ensure!(!report.is_empty(), "sha256sum: {}", String::from_utf8_lossy(&said.stderr));
    for folder in &folders {
        std::fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    let word = if others.is_empty() { Word::Pass } else { Word::Fail };
    Ok(Verdict { word, done: same.len(), all: same.len() + others.len(), reason: others.join("; ") })
}

/// A release of a clone in this folder.
fn built(root: &Path, folder: &Path) -> Result<PathBuf> {
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet", "--no-hardlinks"]).arg(root).arg(folder);
    let status = clone.status().context("start git clone")?;
    ensure!(status.success(), "{clone:?}: {status}");
    release::run(folder, &release::Options::default())
}
