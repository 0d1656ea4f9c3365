//! Functions of templates: sprig's hermetic set, with sprig's arguments and results, and upstream's own four. A name that is not
//! here is refused when the text is parsed, by its name; docs/design/pxe.md, section 7, lists those of sprig's, and why.
//!
//! | file | what |
//! |---|---|
//! | `convert.rs` | what Go makes of a value of another type |
//! | `strings.rs`, `paths.rs` | texts |
//! | `numbers.rs`, `decimal.rs` | arithmetic |
//! | `lists.rs`, `dicts.rs`, `reflect.rs` | data |
//! | `encodings.rs`, `json.rs` | texts of data |
//! | `upstream.rs` | what is Tinkerbell's |
//! | `printing.rs` | what is Go's, done as Go does it |
//!
//! Values do not change in place here, so what changes its argument in Go (`set`, `merge`) is not served.

mod convert;
mod decimal;
mod dicts;
mod encodings;
mod json;
mod lists;
mod numbers;
mod paths;
mod printing;
mod reflect;
mod strings;
mod upstream;

use super::values::string;
use gotmpl::{Result, Template, TemplateError, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A text that a function makes may not be longer: what it is part of could not be rendered.
const LONGEST: usize = super::MAX_RENDERED;
/// Nor may a list have more items.
const MOST: usize = super::MAX_ITERATIONS as usize;

type Body = fn(&[Value]) -> Result<Value>;

/// `kinds`: one letter for each argument, and `*` after the last if it may be there any number of times, as a parameter of Go's: `s` a
/// text, `i` a whole number, `f` a number, `b` a bool, `m` a dict, `a` anything.
struct Function {
    name: &'static str,
    kinds: &'static str,
    body: Body,
}

const fn function(name: &'static str, kinds: &'static str, body: Body) -> Function {
    Function { name, kinds, body }
}

/// Of sprig's and Tinkerbell's names.
const TABLES: [&[Function]; 9] = [
    strings::FUNCTIONS,
    paths::FUNCTIONS,
    numbers::FUNCTIONS,
    decimal::FUNCTIONS,
    lists::FUNCTIONS,
    dicts::FUNCTIONS,
    reflect::FUNCTIONS,
    encodings::FUNCTIONS,
    upstream::FUNCTIONS,
];

fn all() -> impl Iterator<Item = &'static Function> {
    TABLES.into_iter().chain([printing::FUNCTIONS]).flatten()
}

pub(super) fn add(template: Template) -> Template {
    all().fold(template, |template, function| {
        template.func(function.name, move |arguments: &[Value]| {
            function.check(arguments)?;
            (function.body)(arguments)
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
