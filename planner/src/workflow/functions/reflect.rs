//! What a value is, and what stands in for one that is empty.

use super::{Function, fault, function, is_true, str_of, string};
use gotmpl::{Result, Value};

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
    function("typeOf", "a", |a| types(&a[0]).known().map(string).ok_or_else(|| fault(not_known("typeOf")))),
    function("typeIs", "sa", |a| type_is("typeIs", a)),
    // Of a pointer too, which no value is here.
    function("typeIsLike", "sa", |a| type_is("typeIsLike", a)),
];

/// A type of Go's, as far as a value tells it.
enum Type {
    Known(&'static str),
    /// One of those whose names begin so: a whole number is `int` or `int64`, a list one of anything or of texts.
    Begins(&'static str),
}

impl Type {
    fn known(&self) -> Option<&'static str> {
        match self {
            Self::Known(name) => Some(name),
            Self::Begins(_) => None,
        }
    }
}

fn types(value: &Value) -> Type {
    match value {
        Value::Nil => Type::Known("<nil>"),
        Value::Bool(_) => Type::Known("bool"),
        Value::Float(_) => Type::Known("float64"),
        Value::String(_) => Type::Known("string"),
        Value::Int(_) => Type::Begins("int"),
        Value::Uint(_) => Type::Begins("uint"),
        Value::List(_) => Type::Begins("[]"),
        Value::Map(_) => Type::Begins("map["),
        Value::Function(_) => Type::Begins("func"),
    }
}

fn not_known(name: &str) -> String {
    format!("{name}: whether a whole number is int or int64, or what a list or dict may have in it, is not known here")
}

fn type_is(name: &str, a: &[Value]) -> Result<Value> {
    let wanted = str_of(&a[0]);
    match types(&a[1]) {
        Type::Known(known) => is_true(known == wanted),
        Type::Begins(with) if wanted.starts_with(with) => Err(fault(not_known(name))),
        Type::Begins(_) => is_true(false),
    }
}

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
