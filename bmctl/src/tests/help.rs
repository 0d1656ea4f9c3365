//! Every verb's help, as it is printed: a change of it is seen in a review.
//!
//! After a change that is meant: `cp target/bmctl-help.txt bmctl/src/tests/help.txt`.

use clap::Command;

const GOLDEN: &str = include_str!("help.txt");

fn all(program: &'static str) -> String {
    let mut command = crate::help::command(program);
    command.build();
    let mut text = String::new();
    every(&mut command, &mut text);
    text
}

fn every(command: &mut Command, text: &mut String) {
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    text.push_str(&format!("##### {name}\n{}\n\n", lines.join("\n")));
    for inner in command.get_subcommands_mut().filter(|inner| !inner.is_hide_set()) {
        every(inner, text);
    }
}

#[test]
fn help_is_as_it_was_reviewed() {
    let now = all("bmctl");
    if now != GOLDEN {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bmctl-help.txt");
        std::fs::write(path, &now).expect("written");
        panic!("the help is not that of bmctl/src/tests/help.txt; compare it with target/bmctl-help.txt");
    }
}

#[test]
fn every_verb_has_examples_under_the_name_it_was_called_by() {
    for section in all("kubectl bm").split("##### ").filter(|section| !section.is_empty()) {
        let verb = section.lines().next().unwrap_or_default();
        // Of a group of verbs, each has its own.
        assert!(section.contains("Examples:") || section.contains("Commands:"), "{verb} has no examples");
        let misnamed = section.lines().find(|line| line.contains("bmctl "));
        assert_eq!(misnamed, None, "{verb}");
        let too_long = section.lines().find(|line| line.chars().count() > 120);
        assert_eq!(too_long, None, "{verb}");
    }
}
