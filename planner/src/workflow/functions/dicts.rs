//! Dicts. Keys come in their order; in Go in none.

use super::convert::text;
use super::{Function, dict_of, fault, function, is_true, items, str_of, string};
use crate::workflow::values::map;
use gotmpl::{Result, Value};
use std::collections::BTreeSet;

pub(super) const FUNCTIONS: &[Function] = &[
    function("dict", "a*", |a| {
        let pair = |pair: &[Value]| (text(&pair[0]), pair.get(1).cloned().unwrap_or_else(|| string("")));
        Ok(map(a.chunks(2).map(pair)))
    }),
    function("get", "ms", |a| Ok(a[0].field(str_of(&a[1])).cloned().unwrap_or_else(|| string("")))),
    function("hasKey", "ms", |a| is_true(a[0].field(str_of(&a[1])).is_some())),
    function("pluck", "sm*", |a| Ok(items(a[1..].iter().filter_map(|dict| dict.field(str_of(&a[0])).cloned())))),
    function("keys", "m*", |a| {
        let keys = a.iter().flat_map(|dict| dict_of(dict).keys().cloned().collect::<Vec<_>>());
        Ok(items(keys.map(Value::String)))
    }),
    function("values", "m", |a| Ok(items(dict_of(&a[0]).values().cloned()))),
    function("pick", "ms*", |a| Ok(some(a, |named| named))),
    function("omit", "ms*", |a| Ok(some(a, |named| !named))),
    function("dig", "a*", dig),
    function("deepCopy", "a", deep_copy),
    function("mustDeepCopy", "a", deep_copy),
];

fn some(a: &[Value], is_kept: fn(bool) -> bool) -> Value {
    let named: BTreeSet<&str> = a[1..].iter().map(str_of).collect();
    let dict = dict_of(&a[0]);
    let kept = dict.iter().filter(|(key, _)| is_kept(named.contains(key.as_ref())));
    map(kept.map(|(key, value)| (key.to_string(), value.clone())))
}

fn dig(a: &[Value]) -> Result<Value> {
    let [keys @ .., default, dict] = a else { return Err(fault("dig: write keys, a default and a dict")) };
    if keys.is_empty() {
        return Err(fault("dig: write keys, a default and a dict"));
    }
    let mut at = dict.clone();
    for key in keys {
        let Value::Map(dict) = &at else { return Err(fault("dig: a value on the way is no dict")) };
        let key = key.as_str().ok_or_else(|| fault("dig: a key is no text"))?;
        at = match dict.get(key) {
            Some(value) => value.clone(),
            None => return Ok(default.clone()),
        };
    }
    Ok(at)
}

/// Nothing changes in place here.
fn deep_copy(a: &[Value]) -> Result<Value> {
    if matches!(a[0], Value::Nil) { Err(fault("deepCopy: there is nothing to copy")) } else { Ok(a[0].clone()) }
}
