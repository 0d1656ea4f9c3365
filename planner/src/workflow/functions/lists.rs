//! Lists. Each function is there a second time with `must` before its name, as in sprig; both end the rendering where they cannot.

use super::{Function, MOST, fault, function, int_of, items};
use crate::workflow::functions::convert::int;
use gotmpl::{Result, TemplateError, Value};
use std::sync::Arc;

pub(super) const FUNCTIONS: &[Function] = &[
    function("list", "a*", |a| Ok(Value::List(a.into()))),
    function("tuple", "a*", |a| Ok(Value::List(a.into()))),
    function("first", "a", first),
    function("mustFirst", "a", first),
    function("last", "a", last),
    function("mustLast", "a", last),
    function("rest", "a", rest),
    function("mustRest", "a", rest),
    function("initial", "a", initial),
    function("mustInitial", "a", initial),
    function("append", "aa", append),
    function("push", "aa", append),
    function("mustAppend", "aa", append),
    function("mustPush", "aa", append),
    function("prepend", "aa", prepend),
    function("mustPrepend", "aa", prepend),
    function("reverse", "a", reverse),
    function("mustReverse", "a", reverse),
    function("compact", "a", compact),
    function("mustCompact", "a", compact),
    function("uniq", "a", uniq),
    function("mustUniq", "a", uniq),
    function("without", "aa*", without),
    function("mustWithout", "aa*", without),
    function("has", "aa", has),
    function("mustHas", "aa", has),
    function("deepEqual", "aa", |a| is_same(&a[0], &a[1]).map(Value::Bool)),
    function("slice", "aa*", slice),
    function("mustSlice", "aa*", slice),
    function("chunk", "ia", chunk),
    function("mustChunk", "ia", chunk),
    function("concat", "a*", |a| {
        let lists = a.iter().map(list).collect::<Result<Vec<_>>>()?;
        limited(lists.iter().map(|list| list.len()).sum())?;
        Ok(items(lists.iter().flat_map(|list| list.iter().cloned())))
    }),
];

pub(super) fn list(value: &Value) -> Result<&Arc<[Value]>> {
    match value {
        Value::List(list) => Ok(list),
        other => Err(TemplateError::TypeMismatch { expected: "list", got: other.type_name() }),
    }
}

fn limited(length: usize) -> Result<()> {
    if length > MOST { Err(fault(format!("a list may have {MOST} items at most"))) } else { Ok(()) }
}

fn first(a: &[Value]) -> Result<Value> {
    Ok(list(&a[0])?.first().cloned().unwrap_or(Value::Nil))
}

fn last(a: &[Value]) -> Result<Value> {
    Ok(list(&a[0])?.last().cloned().unwrap_or(Value::Nil))
}

fn rest(a: &[Value]) -> Result<Value> {
    Ok(Value::List(list(&a[0])?.get(1..).unwrap_or_default().into()))
}

fn initial(a: &[Value]) -> Result<Value> {
    Ok(Value::List(list(&a[0])?.split_last().map_or(&[][..], |(_, initial)| initial).into()))
}

fn append(a: &[Value]) -> Result<Value> {
    let list = list(&a[0])?;
    limited(list.len() + 1)?;
    Ok(items(list.iter().chain([&a[1]]).cloned()))
}

fn prepend(a: &[Value]) -> Result<Value> {
    let list = list(&a[0])?;
    limited(list.len() + 1)?;
    Ok(items([&a[1]].into_iter().chain(list.iter()).cloned()))
}

fn reverse(a: &[Value]) -> Result<Value> {
    Ok(items(list(&a[0])?.iter().rev().cloned()))
}

fn compact(a: &[Value]) -> Result<Value> {
    Ok(items(list(&a[0])?.iter().filter(|item| item.is_truthy()).cloned()))
}

fn uniq(a: &[Value]) -> Result<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for item in list(&a[0])?.iter() {
        if !is_among(item, &kept)? {
            kept.push(item.clone());
        }
    }
    Ok(items(kept))
}

fn without(a: &[Value]) -> Result<Value> {
    let mut kept = Vec::new();
    for item in list(&a[0])?.iter() {
        if !is_among(item, &a[1..])? {
            kept.push(item.clone());
        }
    }
    Ok(items(kept))
}

fn has(a: &[Value]) -> Result<Value> {
    match &a[1] {
        Value::Nil => Ok(Value::Bool(false)),
        other => is_among(&a[0], list(other)?).map(Value::Bool),
    }
}

fn slice(a: &[Value]) -> Result<Value> {
    let list = list(&a[0])?;
    if list.is_empty() {
        return Ok(Value::Nil);
    }
    let place = |at: usize, default: usize| match a.get(at) {
        Some(value) => usize::try_from(int(value)).unwrap_or(usize::MAX),
        None => default,
    };
    let part = list.get(place(1, 0)..place(2, list.len()));
    part.map(|part| Value::List(part.into())).ok_or_else(|| fault("slice: a place is outside of the list"))
}

fn chunk(a: &[Value]) -> Result<Value> {
    let size = usize::try_from(int_of(&a[0])).ok().filter(|size| *size > 0);
    let size = size.ok_or_else(|| fault("chunk: write a size from 1 on"))?;
    Ok(items(list(&a[1])?.chunks(size).map(|chunk| Value::List(chunk.into()))))
}

fn is_among(needle: &Value, all: &[Value]) -> Result<bool> {
    all.iter().try_fold(false, |found, item| Ok(found || is_same(needle, item)?))
}

/// Go compares types too: an `int` of the template is never an `int64` of an object, and a list of texts no list of anything. Values do
/// not know which they are, so two that might be the same are refused.
fn is_same(one: &Value, other: &Value) -> Result<bool> {
    match (one, other) {
        (Value::Int(_), Value::Int(_)) | (Value::List(_), Value::List(_)) if one == other => {
            Err(fault("whole numbers and lists are not compared here; compare their texts, by toString"))
        }
        (Value::Map(one), Value::Map(other)) => {
            let keys = one.len() == other.len() && one.keys().eq(other.keys());
            let mut pairs = one.values().zip(other.values());
            let same = keys
                && pairs.try_fold(true, |all, (one, other)| -> Result<bool> { Ok(all && is_same(one, other)?) })?;
            // What `split` makes is a dict of texts, which is never the same as one of anything.
            if same && one.contains_key("_0") {
                return Err(fault("dicts as split makes them are not compared here; compare their texts, by toString"));
            }
            Ok(same)
        }
        _ => Ok(one == other),
    }
}
