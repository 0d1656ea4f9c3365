//! Regular expressions that are drawn, the same in every run, in every syntax that Go has for them, sound or not.

use super::{Go, Question, question};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;

const EXPRESSIONS: usize = 2000;

/// What a pattern is made of, and what only looks like it.
fn piece() -> impl Strategy<Value = String> {
    let simple = prop::sample::select(vec![
        "a",
        "b",
        "ab",
        "é",
        "k",
        "ſ",
        "-",
        " ",
        ".",
        "^",
        "$",
        "\\d",
        "\\D",
        "\\w",
        "\\W",
        "\\s",
        "\\S",
        "\\b",
        "\\B",
        "\\A",
        "\\z",
        "\\Z",
        "\\C",
        "\\n",
        "\\t",
        "\\v",
        "\\a",
        "\\.",
        "\\_",
        "\\-",
        "\\e",
        "\\0",
        "\\07",
        "\\101",
        "\\1",
        "\\x61",
        "\\x{e9}",
        "\\x{}",
        "\\x6",
        "\\x{110000}",
        "\\pL",
        "\\PL",
        "\\p{Lu}",
        "\\p{^Lu}",
        "\\P{Greek}",
        "\\p{Nope}",
        "\\p{",
        "\\Qa.b\\E",
        "\\Q\\E",
        "\\Q*",
        "[ab]",
        "[^ab]",
        "[a-c]",
        "[c-a]",
        "[]a]",
        "[^]a]",
        "[a-]",
        "[-a]",
        "[a-\\d]",
        "[\\d-z]",
        "[\\w.]",
        "[^\\W_]",
        "[^\\D]",
        "[[:alpha:]]",
        "[[:^digit:]b]",
        "[[:nope:]]",
        "[[:alpha]",
        "[:alpha:]",
        "[\\pL0]",
        "[^\\PL]",
        "[a&&b]",
        "[a--b]",
        "[[a]]",
        "[é-ü]",
        "[\\x00-\\x{10FFFF}]",
        "[^\\x00-\\x{10FFFF}]",
        "[\\n]",
        "[b",
        "[]",
        "{",
        "}",
        "{1",
        "{,2}",
        "{a}",
        "(?i)",
        "(?-i)",
        "(?s)",
        "(?m)",
        "(?U)",
        "(?)",
        "(?i-)",
        "(?x)",
        "(?i-i)",
        "#",
    ]);
    simple.prop_map(str::to_owned)
}

fn repetition() -> impl Strategy<Value = String> {
    let all = vec![
        "*",
        "+",
        "?",
        "*?",
        "+?",
        "??",
        "**",
        "{2}",
        "{0}",
        "{1,}",
        "{0,}",
        "{1,2}",
        "{0,1}?",
        "{2,}?",
        "{2,1}",
        "{01}",
        "{1001}",
        "{1,1001}",
        "{ 1}",
        "{99999999999}",
    ];
    prop::sample::select(all).prop_map(str::to_owned)
}

fn pattern() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![4 => piece(), 1 => (piece(), repetition()).prop_map(|(piece, times)| piece + &times)];
    let opening = prop::sample::select(vec![
        "(", "(?:", "(?i:", "(?s-i:", "(?m:", "(?U:", "(?P<n>", "(?<n>", "(?P<1>", "(?P<>", "(?P=n", "(?",
    ]);
    leaf.prop_recursive(4, 16, 4, move |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 2..4).prop_map(|all| all.concat()),
            1 => prop::collection::vec(inner.clone(), 2..4).prop_map(|all| all.join("|")),
            2 => (opening.clone(), inner.clone()).prop_map(|(open, inner)| format!("{open}{inner})")),
            2 => (opening.clone(), inner.clone(), repetition()).prop_map(|(open, inner, times)| format!("{open}{inner}){times}")),
            1 => (inner.clone(), Just("(|")).prop_map(|(inner, open)| format!("{open}{inner})*")),
            1 => inner.prop_map(|inner| format!("({inner}")),
        ]
    })
}

/// What has groups, repetitions and classes in it, and is sound more often than not.
fn sound() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a", "b", ".", "\\w", "\\b", "\\B", "^", "$", "[^a]", "é", "\\s", "(?i)", "", "\\PL", "\\d",
    ]);
    let times = prop::sample::select(vec!["", "", "*", "+", "?", "*?", "{2}", "{0,2}", "{1,}?"]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 12, 3, move |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 2..4).prop_map(|all| all.concat()),
            1 => prop::collection::vec(inner.clone(), 2..3).prop_map(|all| all.join("|")),
            2 => (inner.clone(), times.clone()).prop_map(|(inner, times)| format!("({inner}){times}")),
            1 => (inner, times.clone()).prop_map(|(inner, times)| format!("(?:{inner}|){times}")),
        ]
    })
}

fn text() -> impl Strategy<Value = String> {
    let parts =
        vec!["a", "b", "ab", "A", "é", "É", "k", "\u{212a}", "ſ", "1", "-", "_", " ", "\n", ".", "*", "Ω", "😀", "zz"];
    prop::collection::vec(prop::sample::select(parts), 0..9).prop_map(|all| all.concat())
}

fn replacement() -> impl Strategy<Value = String> {
    let parts = vec![
        "x",
        "$1",
        "${1}",
        "$2",
        "$0",
        "$n",
        "${n}",
        "$1x",
        "$$",
        "$",
        "${",
        "${1",
        "$01",
        "$n é",
        "$-",
        "$99999999999",
    ];
    prop::collection::vec(prop::sample::select(parts), 0..4).prop_map(|all| all.concat())
}

/// Every function, each by itself, for one that fails ends the rendering.
fn calls(pattern: &str, text: &str, by: &str, many: i32) -> Vec<Question> {
    let data = json!({"p": pattern, "t": text, "r": by});
    let all = [
        "{{ regexMatch .p .t }}".to_owned(),
        "{{ mustRegexMatch .p .t }}".to_owned(),
        "{{ regexFind .p .t }}|{{ mustRegexFind .p .t }}".to_owned(),
        format!("{{{{ regexFindAll .p .t {many} }}}}|{{{{ mustRegexFindAll .p .t -1 | join \"|\" }}}}"),
        "{{ regexReplaceAll .p .t .r }}|{{ mustRegexReplaceAll .p .t \"<$0>\" }}".to_owned(),
        "{{ regexReplaceAllLiteral .p .t .r }}|{{ mustRegexReplaceAllLiteral .p .t \"$1\" }}".to_owned(),
        format!("{{{{ regexSplit .p .t {many} | join \"|\" }}}}|{{{{ mustRegexSplit .p .t -1 | join \"|\" }}}}"),
        "{{ regexQuoteMeta .p }}".to_owned(),
    ];
    all.into_iter().map(|template| question(template, &data)).collect()
}

/// How many were rendered and refused; `None`: there is no Go.
fn drawn(test: &str, patterns: impl Strategy<Value = String>) -> Option<(usize, usize)> {
    let go = Go::find(test)?;
    let (mut runner, strategy) = (TestRunner::deterministic(), (patterns, text(), replacement(), -1..4_i32));
    let mut questions = Vec::new();
    for _ in 0..EXPRESSIONS {
        let (pattern, text, by, many) = strategy.new_tree(&mut runner).expect("drawn").current();
        questions.extend(calls(&pattern, &text, &by, many));
    }
    Some(go.compare(test, &questions))
}

#[test]
fn expressions_of_every_syntax() {
    let Some((rendered, refused)) = drawn("expressions_of_every_syntax", pattern()) else { return };
    assert!(rendered > 2 * EXPRESSIONS && refused > EXPRESSIONS, "{rendered} rendered, {refused} refused");
}

#[test]
fn expressions_that_match_what_is_empty() {
    let Some((rendered, _)) = drawn("expressions_that_match_what_is_empty", sound()) else { return };
    assert!(rendered > 4 * EXPRESSIONS, "{rendered} rendered");
}

/// Chosen, for a draw seldom comes to them.
#[test]
fn expressions_as_they_are_meant() {
    let Some(go) = Go::find("expressions_as_they_are_meant") else { return };
    let known = [
        ("a(x*)b", "-ab-axxb-", "${1}W"),
        ("a(x*)b", "-ab-axxb-", "$1W"),
        ("(?P<first>\\w+)\\s+(?P<second>\\w+)", "hello  world", "$second, ${first}!"),
        ("(a){0}(b)", "ab", "[$1|$2]"),
        ("(a)|(b)", "ab", "[$1|$2]"),
        ("(?P<n>a)|(?P<n>b)", "ab", "[$n]"),
        ("(a*)*", "baac", "[$1]"),
        ("(a|b*)*", "abba", "[$1]"),
        ("(|a)*", "aa", "[$1]"),
        ("(|a)+", "aa", "[$1]"),
        ("(?:(a)|b)*", "ab", "[$1]"),
        ("(?i)k", "kK\u{212a}", "x"),
        ("(?i)[^k]", "kK\u{212a}", "x"),
        ("(?i)\\w", "ſ\u{212a}é", "x"),
        ("(?i)\\W", "ſ\u{212a}é", "x"),
        ("(?i)[[:lower:]]", "ſAé", "x"),
        ("(?i)\\p{Lu}", "aAß1", "x"),
        ("(?i)\\P{Lu}", "aAß1", "x"),
        ("(?m)^", "a\nb\n", ">"),
        ("(?m)$", "a\nb\n", "<"),
        ("$", "a\n", "<"),
        ("(?s).", "a\né", "x"),
        (".", "a\né", "x"),
        ("\\B", "é a", "|"),
        ("\\b", "é a", "|"),
        ("", "éa", "-"),
        ("a*", "baaéa", "-"),
        ("a*?", "baaéa", "-"),
        ("(?U)a+", "aaa", "-"),
        ("(?U)a+?", "aaa", "-"),
        ("x{2}{3}", "xxxxxx", "-"),
        ("(?:x{2}){3}", "xxxxxx", "-"),
        ("(?:x{40}){26}", "x", "-"),
        ("(?:x{40}){25}", "x", "-"),
        ("(?:x*){1000}", "x", "-"),
        ("((a{100}){10}){1}", "a", "-"),
        ("(?:a{1000}){0}", "a", "-"),
        ("(?:a{1000}){0,}", "a", "-"),
        ("a*\\Q\\E?", "aa", "-"),
        ("a(?i)b|B", "aB", "-"),
        ("((?i)a)A", "Aa AA aA", "-"),
        ("[[:word:]]+", "a_é1", "-"),
        ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "server-1", "ok"),
        ("([0-9a-f]{2}):?", "52:54:00:12:34:56", "$1-"),
        ("(\\d+)\\.(\\d+)", "v1.26.8", "${2}_$1"),
    ];
    let questions: Vec<_> = known.iter().flat_map(|(pattern, text, by)| calls(pattern, text, by, 2)).collect();
    let (rendered, refused) = go.compare("regexes-meant", &questions);
    assert!(rendered > 300 && refused > 5, "{rendered} rendered, {refused} refused");
}
