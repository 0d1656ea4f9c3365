//! Other people's storage behind a machine: the kubelet connector with data (our own driver forced through holder pods: boot,
//! hot-plug, growth, detach, a DPU that is lost), the protocol on the mock driver of Kubernetes' storage tests, and data on
//! csi-driver-host-path where there is one. The end-to-end tests do it; here they are counted, and what nobody ran is named.

use super::{Bench, Judge, Verdict, Word};
use crate::image;
use crate::test::{self, Case, Outcome};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;

pub(super) const JUDGE: Judge = Judge { name: "csi-foreign", run };

/// In the names of its tests.
const FILTER: &str = "holder_pods";
/// It has to run wherever anything does: only this one may be missing.
const OPTIONAL: &str = "host_path";

fn run(bench: &Bench) -> Result<Verdict> {
    image::run(bench.root, &image::Options::default())?;
    let cases = test::some_of_binary(bench.root, "tests", "end_to_end", Some(FILTER))?;
    ensure!(!cases.is_empty(), "no end-to-end test has {FILTER} in its name");
    let mut report = format!("cargo xtask test --no-checks --package tests {FILTER}\n");
    for case in &cases {
        let outcome = match &case.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed => "failed".to_owned(),
            Outcome::Skipped(reason) => format!("not run: {reason}"),
        };
        writeln!(report, "{}: {outcome}", case.name).context("note a case")?;
    }
    writeln!(report, "{}", rbd()).context("note what was not run")?;
    fs::write(bench.folder.join("report"), report).context("write the report")?;
    Ok(verdict(&cases, rbd()))
}

/// Images of `rbd.csi.ceph.com` are connected by an SPDK target, and nothing here sets up a Ceph for one.
fn rbd() -> String {
    let ceph = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .any(|folder| folder.join("ceph-mon").is_file() && folder.join("ceph-osd").is_file())
    });
    let reason = match ceph {
        true => "a Ceph is installed, but this judge does not start one, nor an SPDK target that connects its images",
        false => "no Ceph is installed (ceph-mon and ceph-osd on PATH)",
    };
    format!("RBD (boot from a clone, grow, detach) not run: {reason}")
}

fn verdict(cases: &[Case], rbd: String) -> Verdict {
    let passed = cases.iter().filter(|case| case.outcome == Outcome::Passed).count();
    let failed: Vec<&str> = cases.iter().filter(|c| c.outcome == Outcome::Failed).map(|c| c.name.as_str()).collect();
    let mut not_run = vec![rbd];
    let mut needed = Vec::new();
    for case in cases {
        if let Outcome::Skipped(reason) = &case.outcome {
            not_run.push(format!("{} not run: {reason}", case.name));
            if !case.name.contains(OPTIONAL) {
                needed.push(reason.clone());
            }
        }
    }
    let (word, reason) = match (failed.is_empty(), needed.first()) {
        (false, _) => (Word::Fail, format!("failed: {}", failed.join(", "))),
        (true, Some(reason)) => (Word::Skip, reason.clone()),
        (true, None) => (Word::Pass, not_run.join("; ")),
    };
    // RBD is one more case.
    Verdict { word, done: passed, all: cases.len() + 1, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn case(name: &str, outcome: Outcome) -> Case {
        Case::new("tests end_to_end", name, outcome, Duration::ZERO)
    }

    #[test]
    fn what_was_not_run_is_named_and_what_has_to_run_is_no_pass() {
        let optional =
            || case("holder_pods::foreign::a_disk_of_csi_driver_host_path", Outcome::Skipped("no plugin".into()));
        let good = [case("holder_pods::a", Outcome::Passed), optional()];
        let pass = verdict(&good, "RBD not run: no Ceph".to_owned());
        assert_eq!((pass.word, pass.done, pass.all), (Word::Pass, 1, 3));
        assert!(pass.reason.contains("no Ceph") && pass.reason.contains("no plugin"), "{}", pass.reason);
        let without = [case("holder_pods::a", Outcome::Skipped("not root".into())), optional()];
        assert_eq!(verdict(&without, String::new()).to_string(), "skip 0/3 not root");
        let bad = [case("holder_pods::a", Outcome::Failed), optional()];
        assert_eq!(verdict(&bad, String::new()).to_string(), "fail 0/3 failed: holder_pods::a");
    }
}
