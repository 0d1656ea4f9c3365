//! Every typed reason as a table.

use super::{Page, cell};
use planner::reason::{Blocked, Failed, Waiting};
use std::fmt::Write as _;

pub(super) fn page() -> Page {
    let mut text =
        "The reason of a condition that is not true; `bmctl explain` prints it with its message. \
        A word in braces stands for a value.\n"
            .to_owned();
    section(&mut text, "Waiting", "Something else is under way; it goes on by itself.", Waiting::TABLE);
    section(&mut text, "Blocked", "Somebody has to change something.", Blocked::TABLE);
    section(&mut text, "Failed", "It was tried and did not work; it is tried again with back-off.", Failed::TABLE);
    Page {
        file: "reasons.md".to_owned(),
        title: "Reasons".to_owned(),
        about: "why a machine is not ready, and what to do".to_owned(),
        text,
    }
}

fn section(text: &mut String, title: &str, about: &str, table: &[(&str, &str, &str)]) {
    let _ = write!(text, "\n## {title}\n\n{about}\n\n| reason | message | what to do |\n|---|---|---|\n");
    for (name, message, next) in table {
        let _ = writeln!(text, "| `{name}` | {} | {} |", cell(&plain(message)), cell(&plain(next)));
    }
}

/// A message as it is printed, with the names of its values.
fn plain(format: &str) -> String {
    format.replace("{{", "{").replace("}}", "}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_reason_has_a_line() {
        let text = super::page().text;
        for name in
            [planner::reason::Waiting::NAMES, planner::reason::Blocked::NAMES, planner::reason::Failed::NAMES].concat()
        {
            assert!(text.contains(&format!("| `{name}` |")), "{name}");
        }
        assert!(text.contains("kubectl patch dpu {dpu} --type merge -p '{\"spec\":{\"approved\":true}}'"), "{text}");
    }
}
