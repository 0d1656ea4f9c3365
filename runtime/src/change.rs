//! A change of an object that was read: a merge patch (RFC 7386) of what differs and no more, with the UID and the
//! resourceVersion that were read as preconditions.
//!
//! A whole object that is written back loses what its writer does not know: the fields of a newer version. A merge patch replaces
//! lists as a whole; who changes a list that users write, reads the object as [`Raw`], and what the list's items have beside that
//! stays too.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// What makes `after` of `before`; `None`: nothing.
fn between(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return Some(after.clone()) };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let set = after.iter().filter_map(|(key, value)| match before.get(key) {
        Some(before) => between(before, value).map(|change| (key.clone(), change)),
        None => Some((key.clone(), value.clone())),
    });
    Some(Value::Object(gone.chain(set).collect::<Map<_, _>>()))
}

/// `after`, with what `raw` has and `before`, which is what was understood of it, lacks. An item of a list is the one that it was
/// equal to, or that had its name.
fn carried_over(raw: &Value, before: &Value, after: &Value) -> Value {
    match (raw, before, after) {
        _ if before == after => raw.clone(),
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            let unknown = raw.iter().filter(|(key, _)| !before.contains_key(*key));
            let unknown = unknown.map(|(key, value)| (key.clone(), value.clone()));
            let known = after.iter().map(|(key, value)| {
                let was = raw.get(key).zip(before.get(key));
                (key.clone(), was.map_or_else(|| value.clone(), |(raw, before)| carried_over(raw, before, value)))
            });
            Value::Object(unknown.chain(known).collect())
        }
        (Value::Array(raw), Value::Array(before), Value::Array(after)) => {
            let named =
                |item: &Value, other: &Value| item.get("name").is_some() && item.get("name") == other.get("name");
            let was = |item: &Value| {
                let at = before.iter().position(|other| other == item);
                at.or_else(|| before.iter().position(|other| named(other, item)))
            };
            let item = |item: &Value| match was(item).and_then(|at| raw.get(at).zip(before.get(at))) {
                Some((raw, before)) => carried_over(raw, before, item),
                None => item.clone(),
            };
            Value::Array(after.iter().map(item).collect())
        }
        _ => after.clone(),
    }
}

fn bound(mut change: Value, meta: &ObjectMeta) -> Value {
    change["metadata"]["uid"] = json!(meta.uid);
    change["metadata"]["resourceVersion"] = json!(meta.resource_version);
    change
}

/// The patch that makes `after` of `before`, which was read; `None`: they are the same.
pub fn of<K: Resource + Serialize>(before: &K, after: &K) -> serde_json::Result<Option<Value>> {
    let change = between(&serde_json::to_value(before)?, &serde_json::to_value(after)?);
    Ok(change.map(|change| bound(change, before.meta())))
}

/// An object as the API server has it, and what this program knows of it.
#[derive(Debug, Clone)]
pub struct Raw<K> {
    raw: Value,
    pub object: K,
}

impl<K: Resource + Serialize> Raw<K> {
    /// The patch that makes `after` of it; what this program does not know of stays, in the items of lists too.
    pub fn change(&self, after: &K) -> serde_json::Result<Option<Value>> {
        let changed = carried_over(&self.raw, &serde_json::to_value(&self.object)?, &serde_json::to_value(after)?);
        Ok(between(&self.raw, &changed).map(|change| bound(change, self.object.meta())))
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Raw<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Value::deserialize(deserializer)?;
        let object = K::deserialize(&raw).map_err(D::Error::custom)?;
        Ok(Self { raw, object })
    }
}

impl<K: Resource> Resource for Raw<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(known: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(known)
    }

    fn group(known: &Self::DynamicType) -> Cow<'_, str> {
        K::group(known)
    }

    fn version(known: &Self::DynamicType) -> Cow<'_, str> {
        K::version(known)
    }

    fn plural(known: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(known)
    }

    fn meta(&self) -> &ObjectMeta {
        self.object.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.object.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};

    #[test]
    fn only_what_differs_is_in_a_patch() {
        let (before, after) =
            (json!({"a": 1, "b": {"c": 2, "d": 3}, "l": [1]}), json!({"b": {"c": 4, "d": 3}, "l": [1, 2]}));
        assert_eq!(between(&before, &after), Some(json!({"a": null, "b": {"c": 4}, "l": [1, 2]})));
        assert_eq!(between(&before, &before), None);
        assert_eq!(between(&Value::Null, &json!({"a": 1})), Some(json!({"a": 1})));
    }

    #[test]
    fn what_was_read_is_a_precondition() {
        let mut before = ConfigMap::default();
        (before.metadata.uid, before.metadata.resource_version) = (Some("u".into()), Some("7".into()));
        let mut after = before.clone();
        assert_eq!(of(&before, &after).expect("json"), None);
        after.data = Some([("a".to_owned(), "b".to_owned())].into());
        let change = of(&before, &after).expect("json").expect("it differs");
        assert_eq!(change, json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "data": {"a": "b"}}));
    }

    #[test]
    fn what_a_newer_server_has_stays() {
        let raw = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u", "resourceVersion": "7"},
            "spec": {"newer": true, "containers": [{"name": "a", "newer": 1}, {"name": "b", "newer": 2}]},
        });
        let read: Raw<Pod> = serde_json::from_value(raw).expect("a pod");
        let mut after = read.object.clone();
        let containers = &mut after.spec.as_mut().expect("a spec").containers;
        containers.remove(0);
        containers[0].image = Some("i".to_owned());
        let change = read.change(&after).expect("json").expect("it differs");
        let expected = json!([{"name": "b", "newer": 2, "image": "i"}]);
        assert_eq!(change["spec"], json!({ "containers": expected }));
    }
}
