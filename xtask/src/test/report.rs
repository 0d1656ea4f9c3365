//! Results, and what is printed of them.

use std::time::Duration;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(super) binary: String,
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    pub(super) time: Duration,
    pub(super) output: String,
}

impl Case {
    pub(crate) fn new(binary: &str, name: &str, outcome: Outcome, time: Duration) -> Self {
        Self { binary: binary.to_owned(), name: name.to_owned(), outcome, time, output: String::new() }
    }
}

#[derive(Default)]
pub(super) struct Report {
    cases: Vec<Case>,
}

impl Report {
    pub(super) fn extend(&mut self, cases: Vec<Case>) {
        self.cases.extend(cases);
    }

    pub(super) fn check(&mut self, name: &str, result: Result<(), String>, time: Duration) {
        let outcome = if result.is_ok() { Outcome::Passed } else { Outcome::Failed };
        let output = result.err().unwrap_or_default();
        self.cases.push(Case { output, ..Case::new("check", name, outcome, time) });
    }

    pub(super) fn failed(&mut self, binary: &str, name: &str, output: &str) {
        let case = Case::new(binary, name, Outcome::Failed, Duration::ZERO);
        self.cases.push(Case { output: output.to_owned(), ..case });
    }

    pub(super) fn skipped(&mut self, binary: &str, name: &str, reason: &str) {
        self.cases.push(Case::new(binary, name, Outcome::Skipped(reason.to_owned()), Duration::ZERO));
    }

    pub(super) fn has_failures(&self) -> bool {
        self.cases.iter().any(|case| case.outcome == Outcome::Failed)
    }

    pub(super) fn print(&self) {
        println!("{}", self.text());
    }

    fn text(&self) -> String {
        let mut lines = vec![String::new(), "slowest:".to_owned()];
        // Checks build things: their time says little of a test.
        let mut tests: Vec<&Case> = self.cases.iter().filter(|case| case.binary != "check").collect();
        tests.sort_by_key(|case| std::cmp::Reverse(case.time));
        lines.extend(
            tests.iter().take(10).map(|case| format!("  {:>9}  {}: {}", seconds(case.time), case.binary, case.name)),
        );
        let mut skipped = 0;
        for case in &self.cases {
            if let Outcome::Skipped(reason) = &case.outcome {
                if skipped == 0 {
                    lines.push("skipped:".to_owned());
                }
                skipped += 1;
                lines.push(format!("  {}: {}: {reason}", case.binary, case.name));
            }
        }
        let failed = self.cases.iter().filter(|case| case.outcome == Outcome::Failed).count();
        let passed = self.cases.len() - failed - skipped;
        lines.push(format!("{}{passed} passed, {failed} failed, {skipped} skipped", failures(&self.cases)));
        lines.join("\n")
    }
}

/// What failed and what it printed, as lines; empty if nothing did.
pub(crate) fn failures(cases: &[Case]) -> String {
    let mut text = String::new();
    for case in cases.iter().filter(|case| case.outcome == Outcome::Failed) {
        if text.is_empty() {
            text.push_str("failed:\n");
        }
        text.extend(["  ", &case.binary, ": ", &case.name, "\n"]);
        text.extend(case.output.lines().flat_map(|line| ["    ", line, "\n"]));
    }
    text
}

pub(super) fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts() {
        let mut report = Report::default();
        report.check("format", Ok(()), Duration::from_secs(99));
        report.extend(
            (0..12).map(|n| Case::new("api unit", &format!("t{n}"), Outcome::Passed, Duration::from_secs(n))).collect(),
        );
        report.skipped("qemu machine", "boots", "qemu is not installed");
        assert!(!report.has_failures());
        report.failed("csi sanity", "all", "no such file\nline 2");
        let text = report.text();
        assert_eq!(text.lines().last(), Some("13 passed, 1 failed, 1 skipped"));
        assert!(text.contains("  qemu machine: boots: qemu is not installed") && text.contains("    line 2"), "{text}");
        assert!(text.contains("api unit: t11") && !text.contains("t1\n") && !text.contains("99.00 s"), "{text}");
        assert!(report.has_failures());
    }
}
