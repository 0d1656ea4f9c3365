//! What judges share whose cases are tests of the whole site, one case each.

use super::{Bench, Verdict, Word};
use crate::image;
use crate::test::{self, Outcome};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;

/// Every case has to run. `filter`: the module of the cases. `variables` are for the tests, beside the judge's folder.
pub(super) fn run(bench: &Bench, filter: &str, variables: &[(&str, String)]) -> Result<Verdict> {
    image::run(bench.root, &image::Options::default())?;
    let mut all = vec![("JUDGE_FOLDER", bench.folder.display().to_string())];
    all.extend(variables.iter().cloned());
    let cases = test::some_of_binary_with(bench.root, ("tests", "end_to_end"), Some(filter), &all)?;
    ensure!(!cases.is_empty(), "no end-to-end test has {filter} in its name");
    let mut report = format!("cargo xtask test --no-checks --package tests {filter}\n");
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
    write!(report, "{}", test::failures(&cases)).context("note what failed")?;
    fs::write(bench.folder.join("report"), report).context("write the report")?;
    let word = if wrong.is_empty() { Word::Pass } else { Word::Fail };
    Ok(Verdict { word, done: cases.len() - wrong.len(), all: cases.len(), reason: wrong.join("; ") })
}
