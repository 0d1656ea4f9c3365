//! Durations, as Go writes and reads them. Those from a moment to now are not served, for a rendering has no clock.

use super::{Function, fault, function, string};
use gotmpl::Value;
use std::num::IntErrorKind;

pub(super) const FUNCTIONS: &[Function] = &[
    function("duration", "a", |a| {
        let seconds = match &a[0] {
            Value::Int(_) | Value::Uint(_) => return Err(whole_number("duration")),
            Value::String(text) => seconds(text),
            _ => 0,
        };
        Ok(string(&written(seconds.wrapping_mul(SECOND.cast_signed()))))
    }),
    function("durationRound", "a", |a| {
        let nanoseconds = match &a[0] {
            Value::Int(_) | Value::Uint(_) => return Err(whole_number("durationRound")),
            Value::String(text) => read(text).unwrap_or_default(),
            _ => 0,
        };
        Ok(string(&rounded(nanoseconds.unsigned_abs())))
    }),
];

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// sprig takes an `int64` for a duration, and every `int` for none.
fn whole_number(name: &str) -> gotmpl::TemplateError {
    fault(format!("{name}: a whole number is int or int64, which is not known here; write it as a text"))
}

/// What is no number is 0, what is out of range the last one that is in it.
fn seconds(text: &str) -> i64 {
    text.parse().unwrap_or_else(|error: std::num::ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => i64::MAX,
        IntErrorKind::NegOverflow => i64::MIN,
        _ => 0,
    })
}

/// Of whole seconds: `1h2m3s`, without hours and minutes if there are none.
fn written(nanoseconds: i64) -> String {
    let all = nanoseconds.unsigned_abs();
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (hours, minutes) = (all / HOUR, all / MINUTE % 60);
    let parts = match (hours, all / MINUTE) {
        (0, 0) => String::new(),
        (0, _) => format!("{minutes}m"),
        _ => format!("{hours}h{minutes}m"),
    };
    // What does not fit wraps, as in Go, and leaves a fraction.
    let (whole, fraction) = (all / SECOND % 60, all % SECOND);
    let seconds = match fraction {
        0 => whole.to_string(),
        _ if all < SECOND => return format!("{sign}{}", below_a_second(all)),
        _ => format!("{whole}.{}", without_zeros(&format!("{fraction:09}"))),
    };
    format!("{sign}{parts}{seconds}s")
}

fn below_a_second(nanoseconds: u64) -> String {
    let (scale, digits, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds}ns"),
        1_000..1_000_000 => (1_000, 3, "µs"),
        _ => (1_000_000, 6, "ms"),
    };
    let fraction = format!("{:0digits$}", nanoseconds % scale);
    let fraction = without_zeros(&fraction);
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}{unit}", nanoseconds / scale)
}

fn without_zeros(fraction: &str) -> &str {
    fraction.trim_end_matches('0')
}

/// The greatest unit of which there is more than one, in whole ones.
fn rounded(nanoseconds: u64) -> String {
    let units = [(365 * DAY, "y"), (30 * DAY, "mo"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s")];
    let unit = units.iter().find(|(length, _)| nanoseconds > *length);
    unit.map_or_else(|| "0s".to_owned(), |(length, name)| format!("{}{name}", nanoseconds / length))
}

/// `-1h2.5m` and the like; `None`: it is no duration.
fn read(text: &str) -> Option<i64> {
    const END: u64 = 1 << 63;
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut all = 0_u64;
    while !rest.is_empty() {
        let (whole, behind) = digits(rest);
        let (fraction, behind) = behind.strip_prefix('.').map_or(("", behind), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = behind.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        rest = behind;
        let unit = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            _ => return None,
        };
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok().filter(|whole| *whole <= END)? };
        if whole > END / unit {
            return None;
        }
        let this = whole * unit + part(fraction, unit);
        if this > END {
            return None;
        }
        all = all.wrapping_add(this);
        if all > END {
            return None;
        }
    }
    if negative { Some(all.wrapping_neg().cast_signed()) } else { i64::try_from(all).ok() }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Of what is behind a point. Digits that do not fit are left away.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as Go rounds it"
)]
fn part(fraction: &str, unit: u64) -> u64 {
    let (mut number, mut scale) = (0_u64, 1.0_f64);
    for digit in fraction.bytes() {
        if number > i64::MAX as u64 / 10 {
            break;
        }
        let next = number * 10 + u64::from(digit - b'0');
        if next > 1 << 63 {
            break;
        }
        number = next;
        scale *= 10.0;
    }
    if number == 0 { 0 } else { (number as f64 * (unit as f64 / scale)) as u64 }
}
