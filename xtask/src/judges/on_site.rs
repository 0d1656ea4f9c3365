//! What judges share whose cases are tests of the whole site, one case each.

use super::{Bench, Verdict, cases};
use crate::{image, test};
use anyhow::{Result, ensure};

/// `filter`: the module of the cases. `variables` are for the tests, beside the judge's folder.
pub(super) fn run(bench: &Bench, filter: &str, variables: &[(&str, String)]) -> Result<Verdict> {
    image::run(bench.root, &image::Options::default())?;
    let mut all = vec![("JUDGE_FOLDER", bench.folder.display().to_string())];
    all.extend(variables.iter().cloned());
    let cases = test::some_of_binary_with(bench.root, ("tests", "end_to_end"), Some(filter), &all)?;
    ensure!(!cases.is_empty(), "no end-to-end test has {filter} in its name");
    cases::verdict(bench, format!("cargo xtask test --no-checks --package tests {filter}\n"), &cases)
}
