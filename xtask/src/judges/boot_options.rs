//! The boot option of the DPU's disk, never guessed: every recorded listing of a real server's firmware, alone, mixed and
//! mutated, and the BMC of every personality through the shipped driver. Each gives the right option or the right refusal.

use super::{Bench, Judge, Verdict, Word};
use crate::test::{self, Case, Outcome};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;

pub(super) const JUDGE: Judge = Judge { name: "boot-options", run };

fn run(bench: &Bench) -> Result<Verdict> {
    let mut cases = test::plain_binary(bench.root, "planner", "boot_options")?;
    let of_bmcs = |case: &Case| case.name.contains("boot_options");
    cases.extend(
        test::some_of_binary(bench.root, "sandbox", "server", Some("boot_options"))?.into_iter().filter(of_bmcs),
    );
    let mut report = String::from(
        "cargo test --package planner --test boot_options\ncargo xtask test --no-checks --package sandbox boot_options\n",
    );
    let mut wrong = Vec::new();
    for case in &cases {
        let outcome = match &case.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed => "failed".to_owned(),
            Outcome::Skipped(reason) => format!("not run: {reason}"),
        };
        writeln!(report, "{}: {outcome}", case.name).context("note a case")?;
        if case.outcome != Outcome::Passed {
            wrong.push(format!("{}: {outcome}", case.name));
        }
    }
    fs::write(bench.folder.join("report"), report).context("write the report")?;
    let word = if wrong.is_empty() { Word::Pass } else { Word::Fail };
    Ok(Verdict { word, done: cases.len() - wrong.len(), all: cases.len(), reason: wrong.join("; ") })
}
