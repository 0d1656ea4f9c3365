//! Whether a packet passes: a model of the manifests, the packet, and ovn-trace, on a site of three chassis whose groups are drawn at
//! random. `JUDGE_SEED` repeats a run. Beside it, what a change costs does not grow with the site: `bench network` on a small one.

use super::{Bench, Judge, Verdict, Word, cases, on_site};
use crate::test;
use anyhow::{Context, Result};
use sandbox::preflight::ovn::VARIABLE as OVN_DIR;
use serde_json::Value;
use std::fs;

pub(super) const JUDGE: Judge = Judge { name: "ovn", run };

const FILTER: &str = "ovn::";
/// Of `ovsdb`: a group of ten thousand members.
const CROWD: &str = "crowd::";

/// Tests that are of the OVN that was named alone, and skipped without; and of `benches` the one that is of the distribution's.
const ANOTHER: &str = "another_ovn";
const DISTRIBUTIONS: &str = "a_change_costs";

/// Another OVN than the distribution's.
fn another() -> Option<String> {
    std::env::var(OVN_DIR).ok().filter(|folder| !folder.is_empty())
}

/// The distribution's OVN, or the one that was named.
fn which() -> String {
    match another() {
        Some(folder) => format!("on the OVN of {OVN_DIR}={folder}"),
        None => format!("not run: another OVN ({OVN_DIR}=FOLDER)"),
    }
}

fn run(bench: &Bench) -> Result<Verdict> {
    let seed = std::env::var("JUDGE_SEED").ok().map(|seed| ("JUDGE_SEED", seed));
    let mut all = on_site::cases(bench, FILTER, seed.as_slice())?;
    let mut report = on_site::reported(FILTER);
    let mut others = vec![("ovsdb", "open_vswitch", CROWD)];
    match another() {
        Some(_) => others.extend([("ovsdb", "open_vswitch", ANOTHER), ("benches", "network", ANOTHER)]),
        None => others.push(("benches", "network", DISTRIBUTIONS)),
    }
    for (package, target, filter) in others {
        all.extend(test::some_of_binary_with(bench.root, (package, target), Some(filter), &[])?);
        report.push_str(&format!("LONG_TESTS=1 cargo xtask test --no-checks --package {package} {filter}\n"));
    }
    let verdict = cases::verdict(bench, report, &all)?;
    let Ok(text) = fs::read(bench.folder.join("answers.json")) else { return Ok(verdict) };
    let answers: Value = serde_json::from_slice(&text).context("read the answers")?;
    let count = |value: &Value| value.as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
    // Every question is a case; so is every other test.
    let others = verdict.all - 1;
    let asked = count(&answers["asked"]);
    let wrong = answers["wrong"].as_array().map_or(0, Vec::len);
    let (all, done) = (asked + others, asked - wrong + verdict.done.min(others));
    let seed = format!("JUDGE_SEED={}", answers["seed"]);
    let reason = if verdict.word == Word::Pass { which() } else { verdict.reason };
    Ok(Verdict { word: verdict.word, done, all, reason: format!("{seed}; {reason}") })
}
