//! Sprig's arithmetic of floats: on their shortest decimal digits, so that 0.1 and 0.2 are 0.3. What does not fit in 128 bits is
//! refused.

use super::convert::float;
use super::{Function, fault, function};
use gotmpl::{Result, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    function("add1f", "a", |a| fold(&a[0], &[Value::Int(1)], Decimal::add)),
    function("addf", "a*", |a| fold(&Value::Int(0), a, Decimal::add)),
    function("subf", "aa*", |a| fold(&a[0], &a[1..], |one, other| one.add(Decimal { digits: -other.digits, ..other }))),
    function("mulf", "aa*", |a| fold(&a[0], &a[1..], Decimal::multiply)),
    function("divf", "aa*", |a| fold(&a[0], &a[1..], Decimal::divide)),
];

/// As sprig's library of decimals divides.
const PLACES: i32 = 16;

/// `digits` times ten to the power of `exponent`.
#[derive(Clone, Copy)]
struct Decimal {
    digits: i128,
    exponent: i32,
}

fn fold(first: &Value, rest: &[Value], step: fn(Decimal, Decimal) -> Option<Decimal>) -> Result<Value> {
    let out_of_range = || fault("a number is out of range");
    let mut all = Decimal::of(float(first)).ok_or_else(out_of_range)?;
    for other in rest {
        let other = Decimal::of(float(other)).ok_or_else(out_of_range)?;
        all = step(all, other).ok_or_else(out_of_range)?;
    }
    let text = format!("{}e{}", all.digits, all.exponent);
    text.parse().map(Value::Float).map_err(|_| out_of_range())
}

impl Decimal {
    fn of(number: f64) -> Option<Self> {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e')?;
        let behind = digits.split_once('.').map_or(0, |(_, behind)| behind.len());
        let exponent = exponent.parse::<i32>().ok()? - i32::try_from(behind).ok()?;
        Some(Self { digits: digits.replace('.', "").parse().ok()?, exponent })
    }

    fn scaled(self, exponent: i32) -> Option<i128> {
        let by = u32::try_from(self.exponent - exponent).ok()?;
        if self.digits == 0 { Some(0) } else { self.digits.checked_mul(10i128.checked_pow(by)?) }
    }

    fn add(self, other: Self) -> Option<Self> {
        let exponent = self.exponent.min(other.exponent);
        Some(Self { digits: self.scaled(exponent)?.checked_add(other.scaled(exponent)?)?, exponent })
    }

    fn multiply(self, other: Self) -> Option<Self> {
        Some(Self { digits: self.digits.checked_mul(other.digits)?, exponent: self.exponent + other.exponent })
    }

    /// Rounded to so many places, halves away from zero.
    fn divide(self, other: Self) -> Option<Self> {
        let by = self.exponent - other.exponent + PLACES;
        let power = |by: i32| 10i128.checked_pow(u32::try_from(by).ok()?);
        let (above, below) = match by {
            ..0 => (self.digits, other.digits.checked_mul(power(-by)?)?),
            _ => (self.digits.checked_mul(power(by)?)?, other.digits),
        };
        let (quotient, rest) = (above.checked_div(below)?, above.checked_rem(below)?);
        let away = if (above < 0) == (below < 0) { 1 } else { -1 };
        let is_half = rest.unsigned_abs().checked_mul(2)? >= below.unsigned_abs();
        Some(Self { digits: quotient + if is_half { away } else { 0 }, exponent: -PLACES })
    }
}
