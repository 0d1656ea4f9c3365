//! `cargo xtask docs`: the reference in docs/reference, written from the code and committed.
//!
//! | what | from |
//! |---|---|
//! | [`fields`]: every kind, its fields and what is refused | the definitions of `api` |
//! | [`reasons`]: why a machine waits | `planner::reason` |
//! | [`commands`]: every program's flags | the programs' own `--help` |

mod commands;
mod fields;
mod reasons;

use crate::generated::Folder;
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

const FOLDER: Folder = Folder { path: "docs/reference", suffix: ".md", command: "cargo xtask docs" };
const HEADING: &str = "<!-- Written by `cargo xtask docs`; do not edit. -->\n\n";

/// One file of the reference.
struct Page {
    file: String,
    title: String,
    /// One line for the index.
    about: String,
    text: String,
}

pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let kinds = fields::pages()?;
    let reasons = [reasons::page()];
    let programs = commands::pages(root)?;
    let groups = [("Kinds", &kinds[..]), ("Reasons", &reasons[..]), ("Programs", &programs[..])];
    let mut wanted = BTreeMap::from([("README.md".to_owned(), index(&groups))]);
    for page in groups.iter().flat_map(|(_, pages)| pages.iter()) {
        wanted.insert(page.file.clone(), format!("{HEADING}# {}\n\n{}", page.title, page.text));
    }
    FOLDER.update(root, &wanted, check)
}

fn index(groups: &[(&str, &[Page])]) -> String {
    let mut text = format!("{HEADING}# Reference\n");
    for (title, pages) in groups {
        let _ = write!(text, "\n## {title}\n\n");
        for page in *pages {
            let _ = writeln!(text, "- [{}]({}): {}", page.title, page.file, page.about);
        }
    }
    text
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    line.join(" ").replace('|', "\\|").replace('<', "&lt;")
}
