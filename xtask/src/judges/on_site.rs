//! What judges share whose cases are tests of the whole site, one case each.

use super::{Bench, Verdict, cases};
use crate::test::Case;
use crate::{image, test};
use anyhow::{Result, ensure};

/// `filter`: the module of the cases. `variables` are for the tests, beside the judge's folder.
pub(super) fn run(bench: &Bench, filter: &str, variables: &[(&str, String)]) -> Result<Verdict> {
    cases::verdict(bench, reported(filter), &cases(bench, filter, variables)?)
}

/// What was run, in a report.
pub(super) fn reported(filter: &str) -> String {
    format!("cargo xtask test --no-checks --package tests {filter}\n")
}

pub(super) fn cases(bench: &Bench, filter: &str, variables: &[(&str, String)]) -> Result<Vec<Case>> {
    image::run(bench.root, &image::Options::default())?;
    let mut all = vec![("JUDGE_FOLDER", bench.folder.display().to_string())];
    all.extend(variables.iter().cloned());
    let cases = test::some_of_binary_with(bench.root, ("tests", "end_to_end"), Some(filter), &all)?;
    ensure!(!cases.is_empty(), "no end-to-end test has {filter} in its name");
    Ok(cases)
}
