//! The flags of every program that a person or a chart starts: what the program itself prints for `--help`.
//!
//! The programs are run with an empty environment: clap prints the values of variables that a flag can come from.

use super::Page;
use crate::programs;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const PROGRAMS: [(&str, &str); 6] = [
    ("bmctl", "machines by hand: list, explain, power, hot-plug, DPUs"),
    ("controller", "the control plane's side"),
    ("dpu-agent", "the DPU's side"),
    ("boot", "network boot and Workflows of servers without a DPU"),
    ("csi", "the CSI driver of the file pool"),
    ("spdk-target", "an SPDK target, where SPDK is installed"),
];

pub(super) fn pages(root: &Path) -> Result<Vec<Page>> {
    let built = programs::build(root, &PROGRAMS.map(|(name, _)| name))?;
    PROGRAMS.iter().map(|(name, about)| page(&built[name], name, about)).collect()
}

fn page(program: &Path, name: &str, about: &str) -> Result<Page> {
    let mut text = String::new();
    let mut asked = vec![vec![]];
    while let Some(words) = asked.pop() {
        let help = help(program, &words)?;
        let title = [vec![name.to_owned()], words.clone()].concat().join(" ");
        if !words.is_empty() {
            let _ = write!(text, "\n## {title}\n\n");
        }
        let _ = write!(text, "```\n{}\n```\n", help.trim_end());
        // The last one pushed is asked first.
        asked.extend(subcommands(&help).into_iter().rev().map(|word| [words.clone(), vec![word]].concat()));
    }
    Ok(Page { file: format!("{name}.md"), title: name.to_owned(), about: about.to_owned(), text })
}

fn help(program: &Path, words: &[String]) -> Result<String> {
    let done = Command::new(program).args(words).arg("--help").env_clear().output();
    let done = done.with_context(|| format!("start {}", program.display()))?;
    ensure!(done.status.success(), "{} {} --help: {}", program.display(), words.join(" "), done.status);
    let text = String::from_utf8(done.stdout).context("read the help")?;
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    Ok(lines.join("\n"))
}

/// The words below the heading `Commands:`.
fn subcommands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcommands_are_read_from_the_help() {
        let help = "About\n\nUsage: x <COMMAND>\n\nCommands:\n  get    List\n           more of it\n  dpu    Act\n\nOptions:\n  -h";
        assert_eq!(subcommands(help), ["get", "dpu"]);
        assert!(subcommands("Usage: x\n\nOptions:\n  -h").is_empty());
    }
}
