//! What is said of an action, and the last of it in the action's report.

use crate::console;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// In a report.
const MOST: usize = 64;
/// Of one line, in characters.
pub(crate) const LENGTH: usize = 300;

/// Of one action. Clones are the same lines.
#[derive(Clone, Default)]
pub struct Lines(Arc<Kept>);

#[derive(Default)]
struct Kept {
    said: Mutex<VecDeque<String>>,
    reported: Mutex<Vec<String>>,
}

impl Lines {
    /// Nobody may say what is secret: an URL only as `imaging::fetch::plain` gives it.
    pub fn say(&self, line: &str) {
        console::say(line);
        self.keep(line);
    }

    /// What a program of the disk said.
    pub fn quote(&self, line: &str) {
        console::show(line);
        self.keep(line);
    }

    fn keep(&self, line: &str) {
        let mut lines = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MOST {
            lines.pop_front();
        }
        lines.push_back(line.chars().take(LENGTH).collect());
    }

    /// A line that the server reads: whole, and before all others.
    pub fn report(&self, line: String) {
        console::show(&line);
        self.0.reported.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// What was said last.
    pub fn newest(&self) -> String {
        let said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.back().cloned().unwrap_or_default()
    }

    pub fn last(&self) -> String {
        let reported = self.0.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        reported.iter().chain(said.iter()).map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_long_ones_cut() {
        let lines = Lines::default();
        for number in 0..70 {
            lines.say(&format!("{number} {}", "x".repeat(1000)));
        }
        let last = lines.last();
        assert_eq!(last.lines().count(), MOST);
        assert!(last.starts_with("6 x") && last.lines().all(|line| line.len() == LENGTH));
        lines.report("y".repeat(1000));
        assert!(lines.last().starts_with(&"y".repeat(1000)), "what is reported is whole, and comes first");
    }
}
