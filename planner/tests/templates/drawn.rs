//! Templates that are drawn, the same in every run: texts, actions, pipelines, variables and every kind of block, sound or not.

use super::{Go, question};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

const TEMPLATES: usize = 3000;

fn data() -> Value {
    json!({
        "text": "wörld", "empty": "", "whole": 42, "zero": 0, "minus": -7, "float": 2.5, "yes": true, "no": false,
        "list": ["a", "b", "c"], "none": [], "numbers": [3, 1, 2],
        "map": {"a": "x", "b": 2, "c": {"d": ["e"]}}, "bare": {},
    })
}

fn value() -> impl Strategy<Value = String> {
    let simple = prop::sample::select(vec![
        ".text",
        ".empty",
        ".whole",
        ".zero",
        ".minus",
        ".float",
        ".yes",
        ".no",
        ".list",
        ".none",
        ".numbers",
        ".map",
        ".map.a",
        ".map.c.d",
        ".bare",
        ".absent",
        ".text.absent",
        ".",
        "$",
        "$.text",
        "$x",
        "$.map.c",
        "1",
        "-3",
        "0x10",
        "2.5",
        "\"s\"",
        "`r\"w`",
        "\"\\u00e9\\n\"",
        "'b'",
        "true",
        "nil",
    ]);
    simple.prop_map(str::to_owned)
}

fn command() -> impl Strategy<Value = String> {
    let functions = prop::sample::select(vec![
        "len",
        "index",
        "print",
        "println",
        "html",
        "js",
        "urlquery",
        "not",
        "and",
        "or",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "upper",
        "default \"d\"",
        "quote",
        "join \"-\"",
        "add 1",
        "toJson",
        "first",
        "list",
        "ternary 1 2",
        "trunc 2",
        "indent 1",
        "replace \"a\" \"b\"",
        "b64enc",
        "dict \"k\"",
        "printf \"%s\"",
        "printf \"%d|%v\"",
        "printf \"%5s|%-5s|%05d\"",
        "printf \"%q %x\"",
        "printf \"%t%%\"",
        "printf \"%.2f\"",
        "has \"a\"",
        "slice",
        "int",
        "toString",
        "kindOf",
    ]);
    prop_oneof![
        3 => value(),
        4 => (functions, prop::collection::vec(value(), 0..3)).prop_map(|(name, arguments)| format!("{name} {}", arguments.join(" "))),
    ]
}

fn pipeline() -> impl Strategy<Value = String> {
    let nested = prop_oneof![4 => command(), 1 => command().prop_map(|inner| format!("({inner})"))];
    prop::collection::vec(nested, 1..4).prop_map(|commands| commands.join(" | "))
}

fn template() -> impl Strategy<Value = String> {
    let text = prop::sample::select(vec!["a", " \n ", "{", "}}", "é\t", "name: x\n", "\"", ""]).prop_map(str::to_owned);
    let marks = || (prop::sample::select(vec!["{{", "{{ ", "{{- "]), prop::sample::select(vec!["}}", " }}", " -}}"]));
    let action = (marks(), prop_oneof![
        6 => pipeline(),
        1 => pipeline().prop_map(|pipeline| format!("$x := {pipeline}")),
        1 => pipeline().prop_map(|pipeline| format!("$x = {pipeline}")),
        1 => Just("/* a comment */".to_owned()),
        1 => prop::sample::select(vec!["break", "continue", "end", "else", "template \"t\" .", "bogus", "if .yes", "range .list", "define \"u\""]).prop_map(str::to_owned),
    ])
        .prop_map(|((open, close), inner)| format!("{open}{inner}{close}"));
    let leaf = prop_oneof![2 => text, 5 => action];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let body = || prop::collection::vec(inner.clone(), 0..3).prop_map(|all| all.concat());
        prop_oneof![
            (pipeline(), body()).prop_map(|(of, body)| format!("{{{{if {of}}}}}{body}{{{{end}}}}")),
            (pipeline(), body(), body())
                .prop_map(|(of, yes, no)| format!("{{{{if {of}}}}}{yes}{{{{else}}}}{no}{{{{end}}}}")),
            (pipeline(), body(), body())
                .prop_map(|(of, yes, no)| format!("{{{{with {of}}}}}{yes}{{{{else}}}}{no}{{{{end}}}}")),
            (value(), body(), body())
                .prop_map(|(of, each, no)| format!("{{{{range {of}}}}}{each}{{{{else}}}}{no}{{{{end}}}}")),
            (value(), body()).prop_map(|(of, each)| format!("{{{{range $i, $x := {of}}}}}{{{{$i}}}}{each}{{{{end}}}}")),
            // What calls itself would take Go for ever.
            (pipeline(), pipeline()).prop_map(|(of, body)| format!(
                "{{{{define \"t\"}}}}{{{{{body}}}}}{{{{end}}}}{{{{template \"t\" {of}}}}}"
            )),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|all| all.concat()),
        ]
    })
}

#[test]
fn templates_that_are_drawn() {
    let Some(go) = Go::find("templates_that_are_drawn") else { return };
    let (mut runner, strategy, data) = (TestRunner::deterministic(), template(), data());
    let mut drawn = || strategy.new_tree(&mut runner).expect("a template").current();
    // Half of them with a variable that the others lack.
    let questions: Vec<_> = (0..TEMPLATES)
        .map(|n| question(if n % 2 == 0 { drawn() } else { format!("{{{{ $x := .text }}}}{}", drawn()) }, &data))
        .collect();
    let (rendered, refused) = go.compare("drawn", &questions);
    assert!(rendered > TEMPLATES / 10 && refused > TEMPLATES / 10, "{rendered} rendered, {refused} refused");
}
