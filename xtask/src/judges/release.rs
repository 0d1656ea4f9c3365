//! A release installs, and is reproducible.
//!
//! It is for both architectures; what is installed is this machine's. First its own install.md, word for word: from a registry alone,
//! with TLS and a password, to a machine that boots. Then a clone of its
//! commit, in another folder, built from nothing, gives the same files as the release that was installed: sha256sum of coreutils reads
//! the sums of that one in the folder of the clone's. Programs in Go are kept once they are built, so the second release takes those of the
//! first: the smallest of them is built twice from nothing.

use super::{Bench, Judge, Verdict, Word, cases};
use crate::go;
use crate::programs::Release;
use crate::release::{self, SUMS, VARIABLE};
use crate::test;
use anyhow::{Context, Result, ensure};
use sandbox::architecture::Architecture;
use sha2::{Digest, Sha256};
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
    let sources = Release::of(bench.root)?;
    ensure!(
        !sources.is_dirty(),
        "files differ from commit {}: commit them, for the second release is built of a clone",
        sources.commit
    );
    let folder = release::run(bench.root, &release::Options::default())?;
    let installed = installed(bench, &folder, &sources)?;
    let report = bench.folder.join("report");
    std::fs::rename(&report, bench.folder.join("installation")).context("keep the report of the installation")?;
    let reproducible = reproducible(bench, &folder, &sources)?;
    Ok(installed.and(reproducible).and(go_is_reproducible(bench, &sources)?))
}

/// `folder`: where `make release` writes it: install.md pushes from there.
fn installed(bench: &Bench, folder: &Path, sources: &Release) -> Result<Verdict> {
    let mut bmctl = Command::new(folder.join(release::bmctl(Architecture::here())));
    let said = bmctl.arg("--version").output().with_context(|| format!("start {bmctl:?}"))?;
    let (said, commit) = (String::from_utf8_lossy(&said.stdout).into_owned(), &sources.commit);
    ensure!(said.trim().ends_with(&format!("+{commit}")), "bmctl of the release says {said:?}, of commit {commit}");
    let variables = [(VARIABLE, folder.display().to_string())];
    let cases = test::some_of_binary_with(bench.root, ("tests", "end_to_end"), Some(FILTER), &variables)?;
    ensure!(!cases.is_empty(), "no end-to-end test has {FILTER} in its name");
    let command = format!("{VARIABLE}={} cargo xtask test --no-checks --package tests {FILTER}\n", folder.display());
    cases::verdict(bench, command, &cases)
}

fn reproducible(bench: &Bench, installed: &Path, sources: &Release) -> Result<Verdict> {
    // A path of another length: one that is left in a program moves what stands behind it.
    let clone = bench.folder.join("clone");
    let release = built(bench.root, &clone, &sources.commit)?;
    let mut check = Command::new("sha256sum");
    check.current_dir(&release).arg("--check").arg(installed.join(SUMS));
    let said = check.output().context("start sha256sum")?;
    let report = String::from_utf8_lossy(&said.stdout).into_owned();
    std::fs::write(bench.folder.join("report"), format!("{check:?}\n{report}")).context("write the report")?;
    let (same, others): (Vec<&str>, Vec<&str>) = report.lines().partition(|line| line.ends_with(": OK"));
    ensure!(!report.is_empty(), "sha256sum: {}", String::from_utf8_lossy(&said.stderr));
    std::fs::remove_dir_all(&clone).with_context(|| format!("remove {}", clone.display()))?;
    let word = if others.is_empty() { Word::Pass } else { Word::Fail };
    Ok(Verdict { word, done: same.len(), all: same.len() + others.len(), reason: others.join("; ") })
}

/// The module of the smallest program in Go, and that program.
const SMALLEST: &str = "gotemplate";
/// By each of these Go would build other bytes.
const SETTINGS: [(&str, &str); 4] =
    [("GOFLAGS", "-gcflags=all=-N"), ("GOAMD64", "v3"), ("GOARM64", "v9.0"), ("GOFIPS140", "latest")];

/// Twice, in two folders, with nothing that Go keeps, and the second time on a machine whose Go has settings of its own.
fn go_is_reproducible(bench: &Bench, sources: &Release) -> Result<Verdict> {
    let mut programs = Vec::new();
    let none: &[(&str, &str)] = &[];
    for (name, settings) in [("go", none), ("go-with-settings", &SETTINGS[..])] {
        let folder = bench.folder.join(name);
        cloned(bench.root, &folder, &sources.commit)?;
        let mut script = go::script(&folder, SMALLEST);
        script.env("XDG_CACHE_HOME", folder.join("cache")).env("GOCACHE", folder.join("go-build"));
        script.envs(settings.iter().copied());
        let program = go::build(script)?.join(SMALLEST);
        programs.push(std::fs::read(&program).with_context(|| format!("read {}", program.display()))?);
        std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    let is_same = programs[0] == programs[1];
    let [first, second] = [&programs[0], &programs[1]].map(Sha256::digest);
    let report = format!("tools/build.sh {SMALLEST}, twice:\n{first:x}\n{second:x}\n");
    std::fs::write(bench.folder.join("report-go"), report).context("write the report")?;
    let reason = if is_same { String::new() } else { format!("two builds of tools/{SMALLEST} differ") };
    let word = if is_same { Word::Pass } else { Word::Fail };
    Ok(Verdict { word, done: usize::from(is_same), all: 1, reason })
}

/// A release of a clone of this commit, whatever was committed meanwhile, in this folder.
fn built(root: &Path, folder: &Path, commit: &str) -> Result<PathBuf> {
    cloned(root, folder, commit)?;
    release::run(folder, &release::Options::default())
}

fn cloned(root: &Path, folder: &Path, commit: &str) -> Result<()> {
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet", "--no-hardlinks", "--no-checkout"]).arg(root).arg(folder);
    let mut checkout = Command::new("git");
    checkout.arg("-C").arg(folder).args(["checkout", "--quiet", "--detach", commit]);
    for mut git in [clone, checkout] {
        let status = git.status().context("start git")?;
        ensure!(status.success(), "{git:?}: {status}");
    }
    Ok(())
}
