//! What templates read, made of JSON and of Rust's texts.

use gotmpl::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whole numbers stay whole, as in Go's objects of Kubernetes.
pub(super) fn value(json: &serde_json::Value) -> Value {
    with(json, |number| match number.as_i64() {
        Some(number) => Value::Int(number),
        None => Value::Float(number.as_f64().unwrap_or_default()),
    })
}

/// Every number is a float, as Go reads JSON of which it knows no more.
pub(super) fn floats(json: &serde_json::Value) -> Value {
    with(json, |number| Value::Float(number.as_f64().unwrap_or_default()))
}

fn with(json: &serde_json::Value, number: fn(&serde_json::Number) -> Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(b) => Value::Bool(*b),
        serde_json::Value::Number(given) => number(given),
        serde_json::Value::String(text) => string(text),
        serde_json::Value::Array(list) => Value::List(list.iter().map(|item| with(item, number)).collect()),
        serde_json::Value::Object(object) => map(object.iter().map(|(key, v)| (key.clone(), with(v, number)))),
    }
}

pub(super) fn string(text: &str) -> Value {
    Value::String(text.into())
}

pub(super) fn map(entries: impl IntoIterator<Item = (String, Value)>) -> Value {
    let entries: BTreeMap<Arc<str>, Value> = entries.into_iter().map(|(key, value)| (key.into(), value)).collect();
    Value::Map(Arc::new(entries))
}

pub(super) fn fields<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)))
}
