//! Functions of templates: sprig's hermetic set, with sprig's arguments and results, and upstream's own four. A name that is not
//! here is refused when the text is parsed, by its name; docs/design/pxe.md, section 7, lists those of sprig's, and why.
//!
//! | file | what |
//! |---|---|
//! | `convert.rs` | what Go makes of a value of another type |
//! | `strings.rs`, `cases.rs`, `paths.rs`, `regexes`, `versions.rs` | texts |
//! | `numbers.rs`, `decimal.rs`, `durations.rs` | arithmetic |
//! | `lists.rs`, `dicts.rs`, `reflect.rs` | data |
//! | `encodings.rs`, `json.rs` | texts of data |
//! | `upstream.rs` | what is Tinkerbell's |
//! | `printing.rs` | what is Go's, done as Go does it |
//!
//! Values do not change in place here, so what changes its argument in Go (`set`, `merge`) is not served.

mod cases;
mod convert;
mod decimal;
mod dicts;
mod durations;
mod encodings;
mod json;
mod lists;
mod numbers;
mod paths;
mod printing;
mod reflect;
mod regexes;
mod strings;
mod upstream;
mod versions;

use super::values::string;
use gotmpl::{Result, Template, TemplateError, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A text that a function makes may not be longer: what it is part of could not be rendered.
const LONGEST: usize = super::MAX_RENDERED;
/// Nor may a list have more items.
const MOST: usize = super::MAX_ITERATIONS as usize;

/// What one rendering may search by regular expressions, in bytes: each search counts as if it went on to the end of its text.
const SEARCHED: usize = 16 << 20;

enum Body {
    Free(fn(&[Value]) -> Result<Value>),
    /// What takes time beyond that of reading its arguments.
    Metered(fn(&[Value], &Meter) -> Result<Value>),
}

/// What is left of `SEARCHED`, of one rendering.
struct Meter(AtomicUsize);

impl Meter {
    fn spend(&self, bytes: usize) -> Result<()> {
        let spent = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        spent.map(drop).map_err(|_| fault(format!("regular expressions searched more than {} MiB", SEARCHED >> 20)))
    }
}

/// `kinds`: one letter for each argument, and `*` after the last if it may be there any number of times, as a parameter of Go's: `s` a
/// text, `i` a whole number, `f` a number, `b` a bool, `m` a dict, `a` anything.
struct Function {
    name: &'static str,
    kinds: &'static str,
    body: Body,
}

const fn function(name: &'static str, kinds: &'static str, body: fn(&[Value]) -> Result<Value>) -> Function {
    Function { name, kinds, body: Body::Free(body) }
}

const fn metered(name: &'static str, kinds: &'static str, body: fn(&[Value], &Meter) -> Result<Value>) -> Function {
    Function { name, kinds, body: Body::Metered(body) }
}

/// Of sprig's and Tinkerbell's names.
const TABLES: [&[Function]; 13] = [
    strings::FUNCTIONS,
    cases::FUNCTIONS,
    paths::FUNCTIONS,
    regexes::FUNCTIONS,
    numbers::FUNCTIONS,
    decimal::FUNCTIONS,
    durations::FUNCTIONS,
    lists::FUNCTIONS,
    dicts::FUNCTIONS,
    reflect::FUNCTIONS,
    encodings::FUNCTIONS,
    upstream::FUNCTIONS,
    versions::FUNCTIONS,
];

fn all() -> impl Iterator<Item = &'static Function> {
    TABLES.into_iter().chain([printing::FUNCTIONS]).flatten()
}

/// For one rendering.
pub(super) fn add(template: Template) -> Template {
    let meter = Arc::new(Meter(AtomicUsize::new(SEARCHED)));
    all().fold(template, |template, function| {
        let meter = Arc::clone(&meter);
        template.func(function.name, move |arguments: &[Value]| {
            function.check(arguments)?;
            match function.body {
                Body::Free(body) => body(arguments),
                Body::Metered(body) => body(arguments, &meter),
            }
        })
    })
}

/// What is served of sprig's and Tinkerbell's, in no order.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLES.into_iter().flatten().map(|function| function.name)
}

pub(super) fn is_served(name: &str) -> bool {
    all().any(|function| function.name == name)
}

impl Function {
    fn check(&self, arguments: &[Value]) -> Result<()> {
        let (kinds, repeats) = self.kinds.strip_suffix('*').map_or((self.kinds, false), |kinds| (kinds, true));
        let least = kinds.len() - usize::from(repeats);
        if arguments.len() < least || (arguments.len() > least && !repeats) {
            return Err(TemplateError::ArgCount { name: self.name.to_owned(), expected: least, got: arguments.len() });
        }
        let each = kinds.chars().chain(kinds.chars().next_back().into_iter().cycle());
        for (kind, argument) in each.zip(arguments) {
            let (expected, fits) = match kind {
                's' => ("string", matches!(argument, Value::String(_))),
                'i' => ("int", matches!(argument, Value::Int(_))),
                'f' => ("float64", matches!(argument, Value::Int(_) | Value::Float(_))),
                'b' => ("bool", matches!(argument, Value::Bool(_))),
                'm' => ("map", matches!(argument, Value::Map(_))),
                _ => ("any", true),
            };
            if !fits {
                let got = argument.type_name();
                return Err(fault(format!("{}: expected {expected}; got {got}", self.name)));
            }
        }
        Ok(())
    }
}

fn fault(text: impl Into<String>) -> TemplateError {
    TemplateError::Exec(text.into())
}

fn too_long() -> TemplateError {
    fault(format!("a text became longer than {} KiB", LONGEST >> 10))
}

fn bounded(text: impl AsRef<str>) -> Result<Value> {
    let text = text.as_ref();
    if text.len() > LONGEST { Err(too_long()) } else { Ok(string(text)) }
}

fn items(list: impl IntoIterator<Item = Value>) -> Value {
    Value::List(list.into_iter().collect())
}

fn is_true(is: bool) -> Result<Value> {
    Ok(Value::Bool(is))
}

/// An argument whose kind has been checked.
fn str_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn int_of(value: &Value) -> i64 {
    value.as_int().unwrap_or_default()
}

fn dict_of(value: &Value) -> Arc<BTreeMap<Arc<str>, Value>> {
    match value {
        Value::Map(map) => Arc::clone(map),
        _ => Arc::default(),
    }
}
