//! csi-sanity of the CSI project on our CSI driver: the file pool with mounted and with block volumes, and the lvol pool where an
//! SPDK is. The tests of crate `csi` start driver and judge and keep the reports; here they are counted.

use super::{Bench, Judge, Verdict, Word};
use crate::test::{self, Outcome};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;

pub(super) const JUDGE: Judge = Judge { name: "csi-sanity", run };

const ACCESS_TYPES: [&str; 2] = ["mount", "block"];
const LVOL: &str = "lvol";

fn run(bench: &Bench) -> Result<Verdict> {
    let mut cases = test::binary(bench.root, "csi", "sanity")?;
    let count = cases.len();
    for case in &cases {
        if let Outcome::Skipped(reason) = &case.outcome {
            return Ok(Verdict { word: Word::Skip, done: 0, all: count, reason: reason.clone() });
        }
    }
    let lvols = test::binary(bench.root, "csi", "lvol_sanity")?;
    let missing = lvols.iter().find_map(|case| match &case.outcome {
        Outcome::Skipped(reason) => Some(reason.clone()),
        _ => None,
    });
    let mut reports = ACCESS_TYPES.to_vec();
    reports.extend(missing.is_none().then_some(LVOL));
    cases.extend(lvols);
    let mut total = Specs::default();
    let mut commands = String::new();
    for access in reports {
        let read = |kind: &str| {
            let path = bench.folder.join(format!("{access}.{kind}"));
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        commands.push_str(&read("command")?);
        total.add(&read("xml")?)?;
    }
    fs::write(bench.folder.join("command"), commands).context("write the command lines")?;
    let failed: Vec<&str> =
        cases.iter().filter(|case| case.outcome == Outcome::Failed).map(|case| case.name.as_str()).collect();
    let mut reason = if failed.is_empty() { total.left_out() } else { format!("failed: {}", failed.join(", ")) };
    if let Some(missing) = missing {
        reason = format!("{reason}; not run with an lvol pool: {missing}");
    }
    let word = if failed.is_empty() { Word::Pass } else { Word::Fail };
    Ok(Verdict { word, done: total.passed, all: total.all, reason })
}

/// The judge's cases, over all its reports.
#[derive(Default)]
struct Specs {
    all: usize,
    passed: usize,
    /// Why cases were left out, and how often.
    reasons: BTreeMap<String, usize>,
}

impl Specs {
    /// Counts the cases of a JUnit report.
    fn add(&mut self, report: &str) -> Result<()> {
        let cases: Vec<&str> = report.split("<testcase ").skip(1).collect();
        ensure!(!cases.is_empty(), "the report has no test case");
        for case in cases {
            // Ginkgo reports its own set-up as cases, too.
            if !attribute(case, "name").is_some_and(|name| name.starts_with("[It]")) {
                continue;
            }
            self.all += 1;
            match case.split_once("<skipped") {
                Some((_, skipped)) => {
                    let message = attribute(skipped, "message").unwrap_or("no reason");
                    let reason = message.strip_prefix("skipped - ").unwrap_or(message).to_owned();
                    *self.reasons.entry(reason).or_default() += 1;
                }
                None if attribute(case, "status") == Some("passed") => self.passed += 1,
                None => {}
            }
        }
        Ok(())
    }

    fn left_out(&self) -> String {
        let reasons: Vec<_> = self.reasons.iter().map(|(reason, count)| format!("{count}× {reason}")).collect();
        if reasons.is_empty() { String::new() } else { format!("left out: {}", reasons.join(", ")) }
    }
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let head = element.split('>').next()?;
    head.split(&format!("{name}=\"")).nth(1)?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_counted() {
        let report = r#"<testsuites tests="4"><testsuite>
          <testcase name="[BeforeSuite]" classname="x" status="passed" time="0"></testcase>
          <testcase name="[It] a works" classname="x" status="passed" time="1"></testcase>
          <testcase name="[It] b works" classname="x" status="skipped" time="0"><skipped message="skipped - B not supported"></skipped></testcase>
          <testcase name="[It] c works" classname="x" status="failed" time="0"><failure message="no"></failure></testcase>
        </testsuite></testsuites>"#;
        let mut specs = Specs::default();
        specs.add(report).expect("counted");
        assert_eq!((specs.all, specs.passed), (3, 1));
        assert_eq!(specs.left_out(), "left out: 1× B not supported");
        assert!(specs.add("<testsuites/>").is_err());
    }
}
