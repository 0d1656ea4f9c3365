//! `camelcase`, `kebabcase` and `snakecase`: where words begin, by the rules of the library that sprig has for it (xstrings), whose
//! differences from anybody's own idea of words are many. Of ASCII's characters alone.

use super::{Function, bounded, fault, function, str_of};
use gotmpl::{Result, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    function("camelcase", "s", |a| bounded(camel(ascii(&a[0])?))),
    function("kebabcase", "s", |a| bounded(joined(ascii(&a[0])?, '-'))),
    function("snakecase", "s", |a| bounded(joined(ascii(&a[0])?, '_'))),
];

fn ascii(value: &Value) -> Result<&str> {
    Some(str_of(value)).filter(|text| text.is_ascii()).ok_or_else(|| fault("words are told apart in ASCII alone"))
}

/// Where Go's tables say so: a vertical tab is a space, which it is not in Rust's of ASCII.
fn is_connector(c: char) -> bool {
    matches!(c, '-' | '_' | ' ' | '\t'..='\r')
}

/// Unicode's punctuation; the other signs of ASCII are its symbols.
fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() && !"$+<=>^`|~".contains(c)
}

/// Connectors go, and the letter behind them is a capital one; those at the beginning stay, and all but one of several. Where there is
/// nothing else, the last one comes twice.
fn camel(text: &str) -> String {
    let rest = text.trim_start_matches(is_connector);
    let mut out = text[..text.len() - rest.len()].to_owned();
    let mut rest = rest.chars();
    let Some(first) = rest.next() else {
        out.extend(text.chars().next_back());
        return out;
    };
    let mut in_capitals = first.is_ascii_uppercase();
    let mut before = first.to_ascii_uppercase();
    for c in rest {
        let mut next = c;
        if is_connector(c) && is_connector(before) {
            out.push(before);
        } else if is_connector(before) {
            in_capitals = c.is_ascii_uppercase();
            next = c.to_ascii_uppercase();
        } else {
            if in_capitals && c.is_ascii_uppercase() {
                next = c.to_ascii_lowercase();
            } else if in_capitals {
                in_capitals = false;
            }
            out.push(before);
        }
        before = next;
    }
    out.push(before);
    out
}

#[derive(Clone, Copy, PartialEq)]
enum Word {
    /// Behind the end.
    None,
    Number,
    /// Begins with a capital letter.
    Capital,
    Letters,
    Connector,
    Punctuation,
    Other,
}

/// The first word, and what is behind it.
fn next_word(text: &str) -> (Word, &str, &str) {
    let Some(first) = text.chars().next() else { return (Word::None, "", "") };
    let (word, length) = match first {
        _ if is_connector(first) => (Word::Connector, run(text, is_connector)),
        _ if is_punctuation(first) => (Word::Punctuation, run(text, is_punctuation)),
        'A'..='Z' => (Word::Capital, capital_length(text)),
        'a'..='z' => (Word::Letters, run(text, |c| c.is_ascii_lowercase())),
        '0'..='9' => (Word::Number, run(text, |c| c.is_ascii_digit())),
        _ => (Word::Other, run(text, |c| !is_connector(c) && !c.is_ascii_alphanumeric() && !is_punctuation(c))),
    };
    let (this, rest) = text.split_at(length);
    (word, this, rest)
}

fn run(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

/// `Status`, or of `HTTPStatus` what is before the last capital letter.
fn capital_length(text: &str) -> usize {
    let capitals = run(text, |c| c.is_ascii_uppercase());
    let small = run(&text[capitals..], |c| c.is_ascii_lowercase());
    match capitals {
        1 => capitals + small,
        _ if small > 0 => capitals - 1,
        _ => capitals,
    }
}

fn push(out: &mut String, word: Word, text: &str, connector: char) {
    match word {
        Word::Connector => out.extend(text.chars().map(|_| connector)),
        Word::Capital => out.push_str(&text.to_ascii_lowercase()),
        _ => out.push_str(text),
    }
}

/// All in small letters, with `connector` between words. A number belongs to the word before it, unless small letters follow it.
fn joined(text: &str, connector: char) -> String {
    let mut out = String::new();
    let (mut word, mut this, mut rest) = next_word(text);
    let ends = |word| matches!(word, Word::Connector | Word::Punctuation);
    while !rest.is_empty() {
        if word != Word::Connector {
            push(&mut out, word, this, connector);
        }
        let (before, last) = (word, this);
        (word, this, rest) = next_word(rest);
        match before {
            Word::Number => {
                (word, this, rest) = with_number(&mut out, (word, this, rest), connector);
                if word != Word::None && !ends(word) {
                    out.push(connector);
                }
            }
            Word::Connector => push(&mut out, before, last, connector),
            Word::Punctuation => {}
            _ if word != Word::Number => {
                if !ends(word) {
                    out.push(connector);
                }
            }
            _ if rest.is_empty() => {}
            _ => {
                let number = this;
                (word, this, rest) = next_word(rest);
                if word != Word::Letters {
                    push(&mut out, Word::Number, number, connector);
                    if !ends(word) {
                        out.push(connector);
                    }
                    continue;
                }
                out.push(connector);
                push(&mut out, Word::Number, number, connector);
                (word, this, rest) = with_number(&mut out, (word, this, rest), connector);
                if word != Word::None && !ends(word) {
                    out.push(connector);
                }
            }
        }
    }
    push(&mut out, word, this, connector);
    out
}

/// Small letters and numbers that follow a number are one word with it.
fn with_number<'a>(
    out: &mut String,
    (mut word, mut this, mut rest): (Word, &'a str, &'a str),
    connector: char,
) -> (Word, &'a str, &'a str) {
    while matches!(word, Word::Letters | Word::Number) {
        push(out, word, this, connector);
        (word, this, rest) = next_word(rest);
    }
    (word, this, rest)
}
