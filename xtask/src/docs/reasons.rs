//! Every typed reason, and every Event of Tinkerbell's kinds, as tables.

use super::{Page, cell};
use planner::event::Event;
use planner::reason::{Blocked, Failed, Waiting};
use std::fmt::Write as _;

pub(super) fn page() -> Page {
    let mut text = "The reason of a condition that is not true; `bmctl explain` prints it with its message. \
        A word in braces stands for a value.\n"
        .to_owned();
    section(&mut text, "Waiting", "Something else is under way; it goes on by itself.", Waiting::TABLE);
    section(&mut text, "Blocked", "Somebody has to change something.", Blocked::TABLE);
    section(&mut text, "Failed", "It was tried and did not work; it is tried again with back-off.", Failed::TABLE);
    events(&mut text);
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

fn events(text: &mut String) {
    text.push_str(
        "\n## Events of Tinkerbell's kinds\n\nTold by the controller when an object becomes what the reason says. A Workflow that a machine has \
         made tells none: the machine does.\n\n| of | reason | type | note |\n|---|---|---|---|\n",
    );
    for event in Event::ALL {
        let type_ = if event.is_warning() { "Warning" } else { "Normal" };
        let _ = writeln!(text, "| {} | `{}` | {type_} | {} |", event.kind(), event.reason(), cell(event.about()));
    }
}

/// A message as it is printed, with the names of its values.
fn plain(format: &str) -> String {
    format.replace("{{", "{").replace("}}", "}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn names() -> Vec<&'static str> {
        [planner::reason::Waiting::NAMES, planner::reason::Blocked::NAMES, planner::reason::Failed::NAMES].concat()
    }

    #[test]
    fn every_reason_has_a_line() {
        let text = super::page().text;
        for name in names() {
            assert!(text.contains(&format!("| `{name}` |")), "{name}");
        }
        assert!(text.contains("kubectl patch dpu {dpu} --type merge -p '{\"spec\":{\"approved\":true}}'"), "{text}");
    }

    #[test]
    fn the_operators_guide_names_reasons_that_exist() {
        let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operator/troubleshooting.md");
        let text = std::fs::read_to_string(guide).expect("the guide");
        let table = text.split("## What an agent says").next().unwrap_or_default();
        let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
        let named: Vec<&str> = cells.flat_map(|cell| cell.split('`')).filter(|word| is_name(word)).collect();
        assert!(named.len() > 10, "{named:?}");
        for name in named {
            assert!(names().contains(&name), "there is no reason {name}");
        }
    }

    fn is_name(word: &str) -> bool {
        word.starts_with(|c: char| c.is_ascii_uppercase()) && word.chars().all(char::is_alphanumeric)
    }
}
