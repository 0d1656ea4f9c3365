//! Whole numbers, which wrap around as Go's do, and floats.

use super::convert::{float, int, text};
use super::{Function, MOST, bounded, fault, function, int_of, items, str_of};
use gotmpl::{Result, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    function("int", "a", |a| Ok(Value::Int(int(&a[0])))),
    function("int64", "a", |a| Ok(Value::Int(int(&a[0])))),
    function("float64", "a", |a| Ok(Value::Float(float(&a[0])))),
    function("atoi", "s", |a| Ok(Value::Int(atoi(str_of(&a[0]))))),
    function("toDecimal", "a", |a| Ok(Value::Int(i64::from_str_radix(&text(&a[0]), 8).unwrap_or_default()))),
    function("add", "a*", |a| Ok(Value::Int(a.iter().map(int).fold(0, i64::wrapping_add)))),
    function("add1", "a", |a| Ok(Value::Int(int(&a[0]).wrapping_add(1)))),
    function("sub", "aa", |a| Ok(Value::Int(int(&a[0]).wrapping_sub(int(&a[1]))))),
    function("mul", "aa*", |a| Ok(Value::Int(a.iter().map(int).fold(1, i64::wrapping_mul)))),
    function("div", "aa", |a| Ok(Value::Int(int(&a[0]).wrapping_div(divisor(&a[1])?)))),
    function("mod", "aa", |a| Ok(Value::Int(int(&a[0]).wrapping_rem(divisor(&a[1])?)))),
    function("max", "aa*", |a| Ok(Value::Int(a.iter().map(int).max().unwrap_or_default()))),
    function("biggest", "aa*", |a| Ok(Value::Int(a.iter().map(int).max().unwrap_or_default()))),
    function("min", "aa*", |a| Ok(Value::Int(a.iter().map(int).min().unwrap_or_default()))),
    function("maxf", "aa*", |a| Ok(Value::Float(a.iter().map(float).fold(f64::NEG_INFINITY, f64::max)))),
    function("minf", "aa*", |a| Ok(Value::Float(a.iter().map(float).fold(f64::INFINITY, f64::min)))),
    function("ceil", "a", |a| Ok(Value::Float(float(&a[0]).ceil()))),
    function("floor", "a", |a| Ok(Value::Float(float(&a[0]).floor()))),
    function("round", "aif*", |a| {
        let up_from = a.get(2).map_or(0.5, float);
        let places = i32::try_from(int_of(&a[1])).map_err(|_| fault("round: there are not so many places"))?;
        let scale = 10f64.powi(places);
        let scaled = scale * float(&a[0]);
        Ok(Value::Float(if scaled.fract() >= up_from { scaled.ceil() } else { scaled.floor() } / scale))
    }),
    function("until", "i", |a| {
        let end = int_of(&a[0]);
        Ok(items(steps(0, end, if end < 0 { -1 } else { 1 })?.into_iter().map(Value::Int)))
    }),
    function("untilStep", "iii", |a| {
        Ok(items(steps(int_of(&a[0]), int_of(&a[1]), int_of(&a[2]))?.into_iter().map(Value::Int)))
    }),
    function("seq", "i*", seq),
];

fn divisor(value: &Value) -> Result<i64> {
    match int(value) {
        0 => Err(fault("a division by zero")),
        number => Ok(number),
    }
}

/// Without a prefix for another base; what is too large is the largest.
fn atoi(text: &str) -> i64 {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    match (digits.bytes().all(|byte| byte.is_ascii_digit()), text.parse()) {
        (true, Ok(number)) => number,
        (true, Err(_)) if digits.is_empty() => 0,
        (true, Err(_)) if text.starts_with('-') => i64::MIN,
        (true, Err(_)) => i64::MAX,
        (false, _) => 0,
    }
}

/// From `start` on, `end` not included.
fn steps(start: i64, end: i64, step: i64) -> Result<Vec<i64>> {
    let fits = if end < start { step < 0 } else { step > 0 };
    if !fits {
        return Ok(Vec::new());
    }
    let many = start.abs_diff(end).div_ceil(step.unsigned_abs());
    if many > MOST as u64 {
        return Err(fault(format!("a list may have {MOST} items at most")));
    }
    Ok((0..)
        .map_while(|n| start.checked_add(step.checked_mul(n)?))
        .take(usize::try_from(many).unwrap_or_default())
        .collect())
}

fn seq(a: &[Value]) -> Result<Value> {
    let of = |at: usize| int_of(&a[at]);
    let (start, step, end) = match a.len() {
        1 => (1, if of(0) < 1 { -1 } else { 1 }, of(0)),
        2 => (of(0), if of(1) < of(0) { -1 } else { 1 }, of(1)),
        3 if of(2) < of(0) && of(1) > 0 => return bounded(""),
        3 => (of(0), of(1), of(2)),
        _ => return bounded(""),
    };
    let end = end.saturating_add(if end < start { -1 } else { 1 });
    let numbers: Vec<_> = steps(start, end, step)?.iter().map(i64::to_string).collect();
    bounded(numbers.join(" "))
}
