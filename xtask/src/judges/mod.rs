//! `cargo xtask judges`: programs of others that say whether we keep to their specification.
//!
//! A judge leaves its own unedited report and the command line that was run in `target/judges/<name>/` and ends in one
//! line, `judge <name>: pass|fail|skip <done>/<all> [what was skipped, and why]`. Later ones are a file here and a line
//! in [`JUDGES`].

mod arm64;
mod boot_options;
mod cases;
mod cni;
mod csi_foreign;
mod csi_sanity;
mod kubectl;
mod on_site;
mod ovn;
mod pxe_boot;
mod redfish;
mod release;
mod simulation;
mod spdk;
mod tinkerbell;

use anyhow::{Context, Result, bail};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const JUDGES: &[Judge] = &[
    arm64::JUDGE,
    boot_options::JUDGE,
    cni::JUDGE,
    csi_foreign::JUDGE,
    csi_sanity::JUDGE,
    kubectl::JUDGE,
    ovn::JUDGE,
    pxe_boot::JUDGE,
    redfish::JUDGE,
    release::JUDGE,
    simulation::JUDGE,
    spdk::JUDGE,
    tinkerbell::JUDGE,
];

struct Judge {
    name: &'static str,
    /// Runs it; what it leaves goes into the folder. An error is a fail.
    run: fn(&Bench) -> Result<Verdict>,
}

/// What a judge is given.
struct Bench<'a> {
    /// The workspace.
    root: &'a Path,
    /// Its own folder, empty.
    folder: PathBuf,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Word {
    Pass,
    Fail,
    Skip,
}

#[derive(Debug, Eq, PartialEq)]
struct Verdict {
    word: Word,
    /// How many of its cases it did and found good.
    done: usize,
    all: usize,
    /// What was skipped and why, or what failed.
    reason: String,
}

impl Verdict {
    /// Of both, where both have to pass.
    fn and(self, other: Self) -> Self {
        let word = if (&self.word, &other.word) == (&Word::Pass, &Word::Pass) { Word::Pass } else { Word::Fail };
        let reasons: Vec<String> =
            [self.reason, other.reason].into_iter().filter(|reason| !reason.is_empty()).collect();
        Self { word, done: self.done + other.done, all: self.all + other.all, reason: reasons.join("; ") }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.word {
            Word::Pass => "pass",
            Word::Fail => "fail",
            Word::Skip => "skip",
        };
        write!(f, "{word} {}/{}", self.done, self.all)?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, " {}", self.reason.replace('\n', " ")) }
    }
}

pub(crate) fn run(root: &Path, name: Option<&str>) -> Result<ExitCode> {
    let chosen: Vec<&Judge> = match name {
        None => JUDGES.iter().collect(),
        Some(name) => match JUDGES.iter().find(|judge| judge.name == name) {
            Some(judge) => vec![judge],
            None => {
                let known: Vec<_> = JUDGES.iter().map(|judge| judge.name).collect();
                bail!("no judge {name:?}; there are {}", known.join(", "))
            }
        },
    };
    let mut words = Vec::new();
    for judge in chosen {
        let verdict = hear(root, judge);
        println!("judge {}: {verdict}", judge.name);
        words.push((judge.name, verdict.word));
    }
    let skipped: Vec<&str> = words.iter().filter(|(_, word)| *word == Word::Skip).map(|(name, _)| *name).collect();
    if name.is_none() && !skipped.is_empty() {
        println!("skipped: {}", skipped.join(", "));
    }
    Ok(if is_success(name.is_some(), &words) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One judge that was asked for has to pass; of all, none may fail.
fn is_success(one: bool, words: &[(&str, Word)]) -> bool {
    words.iter().all(|(_, word)| *word == Word::Pass || *word == Word::Skip && !one)
}

fn hear(root: &Path, judge: &Judge) -> Verdict {
    let folder = root.join("target/judges").join(judge.name);
    let verdict = empty(&folder).and_then(|()| (judge.run)(&Bench { root, folder }));
    verdict.unwrap_or_else(|error| Verdict { word: Word::Fail, done: 0, all: 0, reason: format!("{error:#}") })
}

/// A report of an earlier run must not be taken for this one's.
fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_one_line() {
        let verdict = Verdict { word: Word::Skip, done: 0, all: 2, reason: "no Go\nhere".to_owned() };
        assert_eq!(verdict.to_string(), "skip 0/2 no Go here");
        let verdict = Verdict { word: Word::Pass, done: 2, all: 2, reason: String::new() };
        assert_eq!(verdict.to_string(), "pass 2/2");
    }

    #[test]
    fn status_is_zero_only_when_it_should_be() {
        assert!(is_success(true, &[("a", Word::Pass)]));
        assert!(!is_success(true, &[("a", Word::Skip)]));
        assert!(is_success(false, &[("a", Word::Pass), ("b", Word::Skip)]));
        assert!(!is_success(false, &[("a", Word::Pass), ("b", Word::Fail)]));
    }

    #[test]
    fn an_error_is_a_fail_and_old_reports_are_gone() {
        let root = tempfile::tempdir().expect("folder");
        let old = root.path().join("target/judges/x/report.txt");
        fs::create_dir_all(old.parent().expect("a folder")).and_then(|()| fs::write(&old, "pass")).expect("written");
        let verdict = hear(root.path(), &Judge { name: "x", run: |_| bail!("it broke") });
        assert_eq!(verdict.to_string(), "fail 0/0 it broke");
        assert!(!old.exists());
    }
}
