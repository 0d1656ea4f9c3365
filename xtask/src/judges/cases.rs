//! What judges share whose cases are tests of ours, one case each: every case has to run and to pass.

use super::{Bench, Verdict, Word};
use crate::test::{self, Case, Outcome};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;

/// `report`: what was run, a line each; the cases go behind it.
pub(super) fn verdict(bench: &Bench, mut report: String, cases: &[Case]) -> Result<Verdict> {
    let mut wrong = Vec::new();
    for case in cases {
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
    write!(report, "{}", test::failures(cases)).context("note what failed")?;
    fs::write(bench.folder.join("report"), report).context("write the report")?;
    let word = if wrong.is_empty() { Word::Pass } else { Word::Fail };
    Ok(Verdict { word, done: cases.len() - wrong.len(), all: cases.len(), reason: wrong.join("; ") })
}
