//! What a value is, and what stands in for one that is empty.

use super::{Function, fault, function, is_true, str_of, string};
use gotmpl::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    function("default", "aa*", |a| Ok(a.get(1).filter(|given| given.is_truthy()).unwrap_or(&a[0]).clone())),
    function("empty", "a", |a| is_true(!a[0].is_truthy())),
    function("coalesce", "a*", |a| Ok(a.iter().find(|value| value.is_truthy()).cloned().unwrap_or(Value::Nil))),
    function("all", "a*", |a| is_true(a.iter().all(Value::is_truthy))),
    function("any", "a*", |a| is_true(a.iter().any(Value::is_truthy))),
    function("ternary", "aab", |a| Ok(if a[2].is_truthy() { a[0].clone() } else { a[1].clone() })),
    function("kindOf", "a", |a| match &a[0] {
        Value::Int(_) => Err(fault("kindOf: a whole number is int or int64, which is not known here")),
        other => Ok(string(kind(other))),
    }),
    function("kindIs", "sa", |a| match (&a[1], str_of(&a[0])) {
        (Value::Int(_), "int" | "int64") => {
            Err(fault("kindIs: a whole number is int or int64, which is not known here"))
        }
        (Value::Int(_), _) => is_true(false),
        (other, wanted) => is_true(kind(other) == wanted),
    }),
];

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Uint(_) => "uint",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::List(_) => "slice",
        Value::Map(_) => "map",
        Value::Function(_) => "func",
    }
}
