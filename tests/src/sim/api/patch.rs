//! How a patch changes an object: RFC 7386 merge patches, and server-side apply.

use serde_json::{Map, Value};

/// RFC 7386.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The key by which a list is a map; other lists are replaced as a whole.
fn list_key(field: &str) -> Option<&'static str> {
    match field {
        "conditions" => Some("type"),
        "disks" | "interfaces" => Some("name"),
        "ownerReferences" => Some("uid"),
        _ => None,
    }
}

/// What one field manager said last, what it says now, and what others say that has to stay.
pub struct Apply<'a> {
    pub before: Option<&'a Value>,
    pub now: &'a Value,
    pub others: Vec<&'a Value>,
}

impl<'a> Apply<'a> {
    fn below(&self, key: &str) -> (Option<&'a Value>, Vec<&'a Value>) {
        let before = self.before.and_then(|before| before.get(key));
        (before, self.others.iter().filter_map(|other| other.get(key)).collect())
    }
}

/// Sets what is said now, and takes out what the same manager said before and nobody else says.
pub fn apply(live: &mut Value, what: &Apply<'_>, field: &str) {
    match what.now {
        Value::Object(now) => apply_map(live, what, now),
        Value::Array(now) if list_key(field).is_some() => {
            apply_list(live, what, now, list_key(field).unwrap_or_default());
        }
        other => *live = other.clone(),
    }
}

fn apply_map(live: &mut Value, what: &Apply<'_>, now: &Map<String, Value>) {
    if !live.is_object() {
        *live = Value::Object(Map::new());
    }
    let Value::Object(live) = live else { return };
    for key in what.before.and_then(Value::as_object).into_iter().flat_map(Map::keys) {
        if !now.contains_key(key) && what.below(key).1.is_empty() {
            live.remove(key);
        }
    }
    for (key, value) in now.iter().filter(|(_, value)| !value.is_null()) {
        let (before, others) = what.below(key);
        apply(live.entry(key.clone()).or_insert(Value::Null), &Apply { before, now: value, others }, key);
    }
}

fn apply_list(live: &mut Value, what: &Apply<'_>, now: &[Value], key: &str) {
    if !live.is_array() {
        *live = Value::Array(Vec::new());
    }
    let Value::Array(live) = live else { return };
    let find = |list: &'_ Value, name: &Value| -> Option<usize> {
        list.as_array()?.iter().position(|item| item.get(key) == Some(name))
    };
    let gone: Vec<Value> = what
        .before
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.get(key).cloned())
        .filter(|name| !now.iter().any(|item| item.get(key) == Some(name)))
        .filter(|name| !what.others.iter().any(|other| find(other, name).is_some()))
        .collect();
    live.retain(|item| !gone.iter().any(|name| item.get(key) == Some(name)));
    for item in now {
        let Some(name) = item.get(key) else { continue };
        let in_list = |list: &&Value| find(list, name).is_some();
        let at = |list: &Value| find(list, name).unwrap_or_default();
        let before = what.before.filter(|list| in_list(list)).map(|list| &list[at(list)]);
        let others = what.others.iter().copied().filter(|list| in_list(list)).map(|list| &list[at(list)]).collect();
        let place = match live.iter().position(|there| there.get(key) == Some(name)) {
            Some(place) => place,
            None => {
                live.push(Value::Null);
                live.len() - 1
            }
        };
        apply(&mut live[place], &Apply { before, now: item, others }, "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn null_removes_and_lists_are_replaced_by_a_merge_patch() {
        let mut target = json!({"a": {"b": 1, "c": 2}, "l": [1, 2]});
        merge(&mut target, &json!({"a": {"b": null, "d": {"e": null, "f": 3}}, "l": [3]}));
        assert_eq!(target, json!({"a": {"c": 2, "d": {"f": 3}}, "l": [3]}));
    }

    #[test]
    fn apply_takes_out_what_its_manager_no_longer_says() {
        let mine =
            json!({"boot": "x", "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]});
        let theirs = json!({"conditions": [{"type": "B", "status": "False"}, {"type": "C", "status": "True"}]});
        let mut live = Value::Null;
        apply(&mut live, &Apply { before: None, now: &theirs, others: vec![] }, "");
        apply(&mut live, &Apply { before: None, now: &mine, others: vec![&theirs] }, "");
        let now = json!({"phase": "y"});
        apply(&mut live, &Apply { before: Some(&mine), now: &now, others: vec![&theirs] }, "");
        assert_eq!(live["phase"], "y");
        assert_eq!(live.get("boot"), None);
        let types: Vec<_> = live["conditions"].as_array().expect("a list").iter().map(|c| c["type"].clone()).collect();
        assert_eq!(types, ["B", "C", "A"], "the list is still another's, so it stays");

        let fewer = json!({"conditions": [{"type": "B", "status": "True"}]});
        let mut live = json!({"conditions": [{"type": "A"}, {"type": "B"}]});
        apply(&mut live, &Apply { before: Some(&mine), now: &fewer, others: vec![] }, "");
        assert_eq!(live, json!({"conditions": [{"type": "B", "status": "True"}]}));
    }
}
