//! What the garbage collector does: owned objects go with their owner, or before it.

use super::path::Id;
use super::store::{Change, Store, finalizers, now, text, tidy};
use serde_json::{Value, json};
use std::sync::Arc;

/// The finalizer of an owner that waits for what it owns.
const FOREGROUND: &str = "foregroundDeletion";

impl Store {
    pub(super) fn collect(&mut self, owner: &str) {
        let owned = |object: &Value| {
            let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            owners.into_iter().flatten().any(|reference| text(reference, "/uid") == owner)
        };
        let owned: Vec<Id> = self.objects.iter().filter(|(_, o)| owned(o)).map(|(id, _)| id.clone()).collect();
        for id in owned {
            // Nothing that is owned here has finalizers of its own that could refuse.
            let _ = self.delete(&id, &Value::Null);
        }
    }

    /// What it owns goes before it does, as the garbage collector has it with `--cascade=foreground`.
    pub(super) fn delete_in_foreground(&mut self, id: &Id, mut object: Value) -> Arc<Value> {
        match object["metadata"]["finalizers"].as_array_mut() {
            Some(all) => all.push(json!(FOREGROUND)),
            None => object["metadata"]["finalizers"] = json!([FOREGROUND]),
        }
        object["metadata"]["deletionTimestamp"] = json!(now());
        let object = self.commit(id, object, Change::Modified);
        self.in_foreground.insert(id.clone());
        self.collect(text(&object, "/metadata/uid"));
        self.end_foreground();
        self.objects.get(id).cloned().unwrap_or(object)
    }

    /// Of those that nothing is left of that would hold them up.
    pub(super) fn end_foreground(&mut self) {
        for id in self.in_foreground.clone() {
            let Some(object) = self.objects.get(&id).cloned() else {
                self.in_foreground.remove(&id);
                continue;
            };
            if self.is_held_up(text(&object, "/metadata/uid")) {
                continue;
            }
            self.in_foreground.remove(&id);
            let mut object = Value::clone(&object);
            if let Some(all) = object["metadata"]["finalizers"].as_array_mut() {
                all.retain(|finalizer| finalizer != FOREGROUND);
            }
            tidy(&mut object);
            let change = if finalizers(&object) == 0 { Change::Deleted } else { Change::Modified };
            self.commit(&id, object, change);
        }
    }

    fn is_held_up(&self, owner: &str) -> bool {
        let holds = |reference: &Value| {
            text(reference, "/uid") == owner && reference.get("blockOwnerDeletion") == Some(&json!(true))
        };
        let owners = |object: &Value| object.pointer("/metadata/ownerReferences").and_then(Value::as_array).cloned();
        self.objects.values().any(|object| owners(object).into_iter().flatten().any(|reference| holds(&reference)))
    }
}
