//! Reads what a test binary of libtest prints (`--show-output`) as results.
//!
//! With N threads libtest starts the first N tests of its list at once and then one more at each result, so the time
//! of every start is known, though only results are printed.

use super::report::{Case, Outcome, seconds};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// So many tests that are not done are named; more than that wait for each other.
const NAMED: usize = 3;

pub(super) struct Reader {
    binary: String,
    /// The tests in the order in which they start; none where they are not known before (tests in documents).
    listed: Option<Vec<String>>,
    threads: usize,
    began: Instant,
    /// When each start happened that follows the first N.
    results: Vec<Instant>,
    cases: BTreeMap<String, Case>,
    /// A result line that was cut in two by output of the test.
    cut: Option<String>,
    /// The test whose output is being printed.
    section: Option<String>,
    times: Vec<(String, Duration)>,
    skips: Vec<(String, String)>,
    /// What no test can be blamed for.
    stray: String,
}

impl Reader {
    pub(super) fn new(binary: String, listed: Option<Vec<String>>, threads: usize, began: Instant) -> Self {
        Self {
            binary,
            listed,
            threads,
            began,
            results: Vec::new(),
            cases: BTreeMap::new(),
            cut: None,
            section: None,
            times: Vec::new(),
            skips: Vec::new(),
            stray: String::new(),
        }
    }

    /// A line of standard output. Gives the case that it finishes.
    pub(super) fn line(&mut self, line: &str, at: Instant) -> Option<&Case> {
        self.marks(line, self.section.clone());
        if let Some(name) = self.section_start(line) {
            self.section = Some(name);
        } else if matches!(line, "successes:" | "failures:") || line.starts_with("test result: ") {
            self.section = None;
        } else if let Some(name) = &self.section {
            if let Some(case) = self.cases.get_mut(name) {
                case.output.push_str(line);
                case.output.push('\n');
            }
        } else {
            let (name, outcome) = self.result(line)?;
            return Some(self.finish(name, outcome, at));
        }
        None
    }

    /// A line of standard error: of a thread or a program whose output libtest does not catch.
    pub(super) fn error_line(&mut self, line: &str) {
        self.marks(line, None);
        self.stray.push_str(line);
        self.stray.push('\n');
    }

    /// What it is that takes so long, in one line.
    pub(super) fn waiting(&self, now: Instant) -> Option<String> {
        let running = self.running();
        let (_, start) = running.first()?;
        let names: Vec<_> = running.iter().take(NAMED).map(|(name, _)| *name).collect();
        let more = match running.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("{}: not done after {}: {}{more}", self.binary, seconds(now - *start), names.join(", ")))
    }

    /// Tests that have started and not ended, longest first.
    fn running(&self) -> Vec<(&str, Instant)> {
        let Some(listed) = &self.listed else { return Vec::new() };
        let started = listed.iter().take(self.threads + self.results.len()).enumerate();
        started
            .filter(|(_, name)| !self.cases.contains_key(*name))
            .map(|(index, name)| (name.as_str(), self.start(index)))
            .collect()
    }

    /// Everything that is known. What has no result yet failed with `ending`.
    pub(super) fn end(mut self, ending: Result<(), String>, at: Instant) -> Vec<Case> {
        let lost =
            self.listed.iter().flatten().filter(|name| !self.cases.contains_key(*name)).cloned().collect::<Vec<_>>();
        let running: Vec<String> = self.running().iter().map(|(name, _)| (*name).to_owned()).collect();
        for name in lost {
            let cause = ending.as_ref().err().map_or("it printed no result", String::as_str);
            let state = if running.contains(&name) { "while it ran" } else { "before it ran" };
            let case = self.finish(name, Outcome::Failed, at);
            case.output.push_str(&format!("the test binary ended {state}: {cause}\n"));
        }
        let failed = self.cases.values().any(|case| case.outcome == Outcome::Failed);
        if let Err(cause) = ending
            && !failed
        {
            let output = format!("{cause}\n{}", self.stray);
            let case = Case { output, ..Case::new(&self.binary, "(the binary)", Outcome::Failed, at - self.began) };
            self.cases.insert(case.name.clone(), case);
        }
        for (name, time) in &self.times {
            if let Some(case) = find(&mut self.cases, name) {
                case.time = *time;
            }
        }
        for (name, reason) in &self.skips {
            if let Some(case) = find(&mut self.cases, name).filter(|case| case.outcome == Outcome::Passed) {
                case.outcome = Outcome::Skipped(reason.clone());
            }
        }
        for case in self.cases.values_mut().filter(|case| case.outcome == Outcome::Failed && case.output.is_empty()) {
            case.output.push_str(&self.stray);
        }
        self.cases.into_values().collect()
    }

    /// `SKIP <name>: <reason>` and `TIME <name> <ms>`; what a test says of itself is about itself.
    fn marks(&mut self, line: &str, section: Option<String>) {
        if let Some((name, reason)) = line.strip_prefix("SKIP ").and_then(|rest| rest.split_once(": ")) {
            self.skips.push((section.unwrap_or_else(|| name.to_owned()), reason.to_owned()));
        } else if let Some((name, ms)) = line.strip_prefix("TIME ").and_then(|rest| rest.split_once(' '))
            && let Ok(ms) = ms.trim().parse()
        {
            self.times.push((name.to_owned(), Duration::from_millis(ms)));
        }
    }

    fn section_start(&self, line: &str) -> Option<String> {
        let name = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
        let name = name.strip_suffix(" stdout").or_else(|| name.strip_suffix(" stderr"))?;
        self.cases.contains_key(name).then(|| name.to_owned())
    }

    /// Name and outcome of a result line: `test <name> ... ok`.
    fn result(&mut self, line: &str) -> Option<(String, Outcome)> {
        if let Some(name) = self.cut.clone()
            && let Some(outcome) = outcome(line)
        {
            self.cut = None;
            return Some((name, outcome));
        }
        let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let name = name.strip_suffix(" - should panic").unwrap_or(name);
        if self.listed.as_ref().is_some_and(|listed| !listed.iter().any(|known| known == name)) {
            return None;
        }
        let outcome = outcome(rest);
        if outcome.is_none() {
            self.cut = Some(name.to_owned());
        }
        Some((name.to_owned(), outcome?))
    }

    fn finish(&mut self, name: String, outcome: Outcome, at: Instant) -> &mut Case {
        let index = self.listed.as_ref().and_then(|listed| listed.iter().position(|known| *known == name));
        let start = index.map_or(at, |index| self.start(index));
        self.results.push(at);
        let case = Case::new(&self.binary, &name, outcome, at.saturating_duration_since(start));
        self.cases.entry(name).insert_entry(case).into_mut()
    }

    fn start(&self, index: usize) -> Instant {
        let before = index.checked_sub(self.threads).and_then(|index| self.results.get(index));
        before.copied().unwrap_or(self.began)
    }
}

fn outcome(text: &str) -> Option<Outcome> {
    match text.trim_end() {
        "ok" => Some(Outcome::Passed),
        "FAILED" => Some(Outcome::Failed),
        "ignored" => Some(Outcome::Skipped("ignored".to_owned())),
        text => text.strip_prefix("ignored, ").map(|reason| Outcome::Skipped(reason.to_owned())),
    }
}

/// By its whole name or its last part.
fn find<'a>(cases: &'a mut BTreeMap<String, Case>, name: &str) -> Option<&'a mut Case> {
    let part = format!("::{name}");
    let found = cases.keys().find(|known| *known == name).or_else(|| cases.keys().find(|known| known.ends_with(&part)));
    let found = found.cloned()?;
    cases.get_mut(&found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(threads: usize, names: &[&str], lines: &[(u64, &str)], ending: Result<(), String>) -> Vec<Case> {
        let began = Instant::now();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let mut reader = Reader::new("b unit".to_owned(), Some(names), threads, began);
        let mut last = began;
        for (at, line) in lines {
            last = began + Duration::from_secs(*at);
            reader.line(line, last);
        }
        reader.end(ending, last)
    }

    fn seconds(cases: &[Case]) -> Vec<u64> {
        cases.iter().map(|case| case.time.as_secs()).collect()
    }

    #[test]
    fn times_follow_from_results() {
        // Two threads: a and b start at 0, c when b ends, d when a ends.
        let lines = [(2, "test b ... ok"), (5, "test a ... ok"), (6, "test c ... ok"), (6, "test d ... ok")];
        let cases = read(2, &["a", "b", "c", "d"], &lines, Ok(()));
        assert_eq!(seconds(&cases), [5, 2, 4, 1]);
    }

    #[test]
    fn who_is_waited_for_is_named_and_not_everybody_behind() {
        let began = Instant::now();
        let names = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let mut reader = Reader::new("b unit".to_owned(), Some(names), 5, began);
        let after = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(reader.waiting(after(9)).unwrap(), "b unit: not done after 9.00 s: a, b, c and 2 more",);
        for name in ["a", "b", "c", "d"] {
            reader.line(&format!("test {name} ... ok"), after(10));
        }
        assert_eq!(reader.waiting(after(15)).unwrap(), "b unit: not done after 15.00 s: e");
        reader.line("test e ... ok", after(16));
        assert_eq!(reader.waiting(after(17)), None);
    }

    #[test]
    fn skipped_ignored_and_failed_are_told_apart() {
        let lines = [
            (1, "running 4 tests"),
            (1, "test m::a ... ok"),
            (1, "test m::b ... ignored, needs a rack"),
            (1, "test m::c - should panic ... ok"),
            (1, "test m::d ... FAILED"),
            (1, "successes:"),
            (1, "---- m::a stdout ----"),
            (1, "SKIP something: no network namespace"),
            (1, "TIME c 2500"),
            (1, "failures:"),
            (1, "---- m::d stdout ----"),
            (1, "assertion failed"),
            (1, "test m::a ... FAILED"),
            (1, "failures:"),
            (1, "test result: FAILED. 2 passed; 1 failed; 1 ignored"),
        ];
        let cases = read(2, &["m::a", "m::b", "m::c", "m::d"], &lines, Err("exit status: 101".to_owned()));
        assert_eq!(cases[0].outcome, Outcome::Skipped("no network namespace".to_owned()));
        assert_eq!(cases[1].outcome, Outcome::Skipped("needs a rack".to_owned()));
        assert_eq!((&cases[2].outcome, cases[2].time.as_millis()), (&Outcome::Passed, 2500));
        assert_eq!(cases[3].outcome, Outcome::Failed);
        assert!(cases[3].output.starts_with("assertion failed"));
        assert_eq!(cases.len(), 4);
    }

    #[test]
    fn a_test_that_says_skip_and_fails_failed() {
        let lines =
            [(1, "test a ... FAILED"), (1, "failures:"), (1, "---- a stdout ----"), (1, "SKIP a: nothing here")];
        assert_eq!(read(1, &["a"], &lines, Ok(()))[0].outcome, Outcome::Failed);
    }

    #[test]
    fn a_result_line_cut_by_output_is_read() {
        let cases = read(1, &["a"], &[(1, "test a ... qemu: warning"), (2, "more"), (3, "ok")], Ok(()));
        assert_eq!((&cases[0].outcome, cases[0].time.as_secs()), (&Outcome::Passed, 3));
    }

    #[test]
    fn a_binary_that_dies_fails_what_it_owed() {
        let cases = read(1, &["a", "b", "c"], &[(1, "test a ... ok")], Err("signal: 6".to_owned()));
        let failed: Vec<_> = cases.iter().filter(|case| case.outcome == Outcome::Failed).collect();
        assert_eq!(failed.len(), 2);
        assert!(failed[0].output.contains("while it ran: signal: 6"), "{}", failed[0].output);
        assert!(failed[1].output.contains("before it ran"), "{}", failed[1].output);
        // All passed, and yet the binary failed.
        let cases = read(1, &["a"], &[(1, "test a ... ok")], Err("signal: 11".to_owned()));
        assert_eq!(cases.iter().filter(|case| case.outcome == Outcome::Failed).count(), 1);
    }
}
