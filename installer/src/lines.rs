//! What is said: on the console, and the last of it in an action's report.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// In a report.
const KEPT: usize = 64;
/// Of one line, in characters.
const LENGTH: usize = 300;

/// Of one action.
#[derive(Default)]
pub struct Lines(Mutex<VecDeque<String>>);

impl Lines {
    /// Nobody may say what is secret: an URL only as `imaging::fetch::plain` gives it.
    pub fn say(&self, line: &str) {
        println!("installer: {line}");
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(line.chars().take(LENGTH).collect());
    }

    pub fn last(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
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
        assert_eq!(last.lines().count(), KEPT);
        assert!(last.starts_with("6 x") && last.lines().all(|line| line.len() == LENGTH));
    }
}
