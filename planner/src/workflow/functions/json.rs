//! JSON as Go's encoding/json writes it.

use super::convert::with_exponent;
use super::{LONGEST, fault, too_long};
use gotmpl::{Result, Value};
use std::fmt::Write;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Dense,
    /// Dense, and `<`, `>` and `&` stay.
    Raw,
    /// A line for each item.
    Pretty,
}

pub(super) fn encode(value: &Value, layout: Layout) -> Result<String> {
    let mut out = String::new();
    write(&mut out, value, layout, 0)?;
    Ok(out)
}

fn write(out: &mut String, value: &Value, layout: Layout, depth: usize) -> Result<()> {
    if out.len() > LONGEST {
        return Err(too_long());
    }
    match value {
        Value::Nil => out.push_str("null"),
        Value::Bool(is) => out.push_str(if *is { "true" } else { "false" }),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Uint(number) => out.push_str(&number.to_string()),
        Value::Float(number) if number.is_finite() => out.push_str(&number_text(*number)),
        Value::Float(_) => return Err(fault("a number that is none has no JSON")),
        Value::String(text) => write_text(out, text, layout),
        Value::List(list) => {
            let each = list.iter().map(|item| (None, item));
            write_all(out, ('[', ']'), each, layout, depth)?;
        }
        Value::Map(map) => {
            let each = map.iter().map(|(key, item)| (Some(key.as_ref()), item));
            write_all(out, ('{', '}'), each, layout, depth)?;
        }
        Value::Function(_) => return Err(fault("a function has no JSON")),
    }
    Ok(())
}

fn write_all<'a>(
    out: &mut String,
    (open, close): (char, char),
    each: impl Iterator<Item = (Option<&'a str>, &'a Value)>,
    layout: Layout,
    depth: usize,
) -> Result<()> {
    let line = |out: &mut String, depth: usize| {
        if layout == Layout::Pretty {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        }
    };
    out.push(open);
    let mut is_empty = true;
    for (key, item) in each {
        if !is_empty {
            out.push(',');
        }
        is_empty = false;
        line(out, depth + 1);
        if let Some(key) = key {
            write_text(out, key, layout);
            out.push_str(if layout == Layout::Pretty { ": " } else { ":" });
        }
        write(out, item, layout, depth + 1)?;
    }
    if !is_empty {
        line(out, depth);
    }
    out.push(close);
    Ok(())
}

/// With an exponent where ECMAScript has one, and one digit of it where that is enough below 1.
fn number_text(number: f64) -> String {
    let text = with_exponent(number, |exponent| !(-6..21).contains(&exponent));
    match text.split_once("e-0") {
        Some((digits, exponent)) => format!("{digits}e-{exponent}"),
        None => text,
    }
}

fn write_text(out: &mut String, text: &str, layout: Layout) {
    out.push('"');
    for c in text.chars() {
        let code = u32::from(c);
        let done = match c {
            '"' => out.write_str("\\\""),
            '\\' => out.write_str("\\\\"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            '\u{8}' => out.write_str("\\b"),
            '\u{c}' => out.write_str("\\f"),
            '<' | '>' | '&' if layout != Layout::Raw => write!(out, "\\u{code:04x}"),
            '\u{2028}' | '\u{2029}' | ..' ' => write!(out, "\\u{code:04x}"),
            _ => out.write_char(c),
        };
        debug_assert!(done.is_ok(), "a String takes everything");
    }
    out.push('"');
}
