//! Every way in of a server without a DPU: each from power-on of a server with an empty disk to the installed system's own word on its
//! console, by the boot service as it is shipped.

use super::{Bench, Judge, Verdict, Word};
use crate::test::{self, Outcome};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;

pub(super) const JUDGE: Judge = Judge { name: "pxe-boot", run };

/// The tests of this module, each a way in.
const FILTER: &str = "netboot::";

fn run(bench: &Bench) -> Result<Verdict> {
    let cases = test::some_of_binary(bench.root, "boot", "wire", Some(FILTER))?;
    let mut report = format!("LONG_TESTS=1 cargo xtask test --no-checks --package boot {FILTER}\n");
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
    let failed = cases.iter().any(|case| case.outcome == Outcome::Failed);
    let word = match (failed, wrong.len()) {
        (true, _) => Word::Fail,
        (_, 0) => Word::Pass,
        (_, absent) if absent == cases.len() => Word::Skip,
        // Counted, and named.
        _ => Word::Pass,
    };
    Ok(Verdict { word, done: cases.len() - wrong.len(), all: cases.len(), reason: wrong.join("; ") })
}
