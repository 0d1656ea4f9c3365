//! What Go makes of a value where it wants one of another type: `fmt`'s `%v` and `%q`, and the conversions of numbers that sprig uses,
//! which take what is no number for 0.

use gotmpl::Value;
use std::fmt::Write;

/// As `%v` writes it.
pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Float(number) => out.push_str(&float_text(*number)),
        Value::List(list) => {
            out.push('[');
            for (at, item) in list.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { " " });
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push_str("map[");
            for (at, (key, item)) in map.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { " " });
                out.push_str(key);
                out.push(':');
                write_value(out, item);
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}

/// The shortest digits that say the number, with an exponent below 0.0001 and from a million on.
fn float_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    with_exponent(number, |exponent| !(-4..6).contains(&exponent))
}

/// `number` as Rust writes it, or as `d.ddde±dd` if `is_wanted` says so of its exponent.
pub(super) fn with_exponent(number: f64, is_wanted: impl Fn(i32) -> bool) -> String {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if number == 0.0 || !is_wanted(exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// As `%q` writes it.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        let short = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{b}' => "\\v",
            _ => "",
        };
        let code = u32::from(c);
        let done = match (short, code) {
            ("", 0..0x20 | 0x7f) => write!(out, "\\x{code:02x}"),
            ("", _) if is_printable(c) => write!(out, "{c}"),
            ("", 0x1_0000..) => write!(out, "\\U{code:08x}"),
            ("", _) => write!(out, "\\u{code:04x}"),
            (short, _) => out.write_str(short),
        };
        debug_assert!(done.is_ok(), "a String takes everything");
    }
    out.push('"');
    out
}

/// Both languages have the same tables for it, but that Rust escapes marks that combine with the character before; of these the common
/// ones are printed here.
fn is_printable(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}') || c.escape_debug().count() == 1
}

/// As `strconv.ParseInt` with base 0 does: `0x1f`, `0o17`, `017`, `0b1`, `1_000`; `None`: it is none.
fn parse_int(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let prefixes = [("0x", 16), ("0b", 2), ("0o", 8)];
    let prefixed = prefixes.iter().find_map(|(prefix, base)| Some((lower.strip_prefix(prefix)?, *base, true)));
    let octal = || lower.strip_prefix('0').filter(|rest| !rest.is_empty()).map(|rest| (rest, 8, true));
    let (digits, base, has_prefix) = prefixed.or_else(octal).unwrap_or((&lower, 10, false));
    let mut before = if has_prefix { '0' } else { '_' };
    for c in digits.chars() {
        let is_fine = if c == '_' { before != '_' } else { c.is_digit(base) };
        if !is_fine {
            return None;
        }
        before = c;
    }
    if before == '_' || digits.is_empty() {
        return None;
    }
    let sign = if negative { "-" } else { "" };
    i64::from_str_radix(&format!("{sign}{}", digits.replace('_', "")), base).ok()
}

/// `3.00` is 3; `3.05` stays.
fn without_zero_decimals(text: &str) -> &str {
    match text.rsplit_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => whole,
        _ => text,
    }
}

pub(super) fn int(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        Value::Bool(is) => i64::from(*is),
        Value::Float(number) => truncated(*number),
        Value::String(text) => parse_int(without_zero_decimals(text)).unwrap_or_default(),
        #[expect(clippy::cast_possible_wrap, reason = "Go's conversion wraps too")]
        Value::Uint(number) => *number as i64,
        Value::Nil | Value::List(_) | Value::Map(_) | Value::Function(_) => 0,
    }
}

/// What is out of range is the least number, as x86-64 converts it.
fn truncated(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "it fits, but for what is behind its point")]
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}

pub(super) fn float(value: &Value) -> f64 {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "Go's conversion rounds too")]
        Value::Int(number) => *number as f64,
        #[expect(clippy::cast_precision_loss, reason = "Go's conversion rounds too")]
        Value::Uint(number) => *number as f64,
        Value::Bool(is) => f64::from(*is),
        Value::Float(number) => *number,
        Value::String(text) => text.parse().unwrap_or_default(),
        Value::Nil | Value::List(_) | Value::Map(_) | Value::Function(_) => 0.0,
    }
}

/// Texts of the items that are there; of anything else its own text.
pub(super) fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::List(list) => list.iter().filter(|item| !matches!(item, Value::Nil)).map(text).collect(),
        Value::Nil => Vec::new(),
        other => vec![text(other)],
    }
}
