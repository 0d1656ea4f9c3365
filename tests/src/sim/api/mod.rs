//! A Kubernetes API server in memory, as far as Metalplane uses one: a `tower` service under `kube::Client`.
//!
//! | file | what |
//! |---|---|
//! | `path.rs` | what a request is about |
//! | `store.rs` | objects, resourceVersion, generation, finalizers, preconditions, the status subresource |
//! | `collector.rs` | objects that go with their owner, or before it |
//! | `patch.rs` | merge patch and server-side apply |
//! | `rules.rs` | the CRDs' transition rules that fencing rests on |
//! | `watch.rs` | watches: events, bookmarks, initial events; late, twice, or cut off with 410 |
//! | `service.rs` | requests in, answers out; where faults happen |

mod collector;
pub mod patch;
pub mod path;
mod rules;
pub mod service;
pub mod store;
pub mod watch;

use super::signal::Signal;
use path::{Id, Target};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{Answer, Part, Refusal, Store};

pub struct Server {
    store: Mutex<Store>,
    /// The last version: woken with every change.
    pub changed: Arc<Signal<u64>>,
    requests: Mutex<Requests>,
}

/// How many requests a process has sent, watches left out: by the process's name, and by method, resource and subresource.
pub type Requests = BTreeMap<(String, String), usize>;

impl Server {
    pub fn new() -> Arc<Self> {
        let (store, requests) = (Mutex::new(Store::default()), Mutex::default());
        Arc::new(Self { store, changed: Signal::new(0), requests })
    }

    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, process: &str, what: String) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((process.to_owned(), what)).or_default() += 1;
    }

    pub fn requests(&self) -> Requests {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A write, by whomever; watchers are woken.
    pub fn write<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.store();
        let result = change(&mut store);
        let version = store.version();
        drop(store);
        self.changed.set(version);
        result
    }

    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store().get(&Id::new(resource, namespace, name)).ok()
    }

    /// Over all namespaces.
    pub fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        self.store().list(&Id::new(resource, "", ""))
    }

    /// One request that is not a watch.
    pub fn answer(&self, method: &http::Method, target: &Target, kind: &str, body: Value) -> Answer {
        let id = &target.id;
        let part = if target.subresource.as_deref() == Some("status") { Part::Status } else { Part::Main };
        match (method.as_str(), id.name.is_empty(), target.subresource.as_deref()) {
            ("GET", true, None) => Ok(Arc::new(self.listed(target))),
            ("GET", false, _) => self.store().get(id),
            ("POST", true, None) => {
                let name = body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                let id = Id { name: name.to_owned(), ..id.clone() };
                self.write(|store| store.create(&id, body))
            }
            ("POST", false, Some("token")) => self.token(id, body),
            ("PUT", false, _) => self.write(|store| store.update(id, part, body)),
            ("PATCH", false, _) => self.patch(target, part, kind, body),
            ("DELETE", false, None) => self.write(|store| store.delete(id, &body)),
            _ => Err(Refusal::new(405, "MethodNotAllowed", format!("{method} {id} is not served here"))),
        }
    }

    fn listed(&self, target: &Target) -> Value {
        let store = self.store();
        let all = store.list(&target.id);
        let items: Vec<&Value> = all.iter().map(AsRef::as_ref).filter(|o| path::selects(&target.query, o)).collect();
        json!({
            "apiVersion": "v1",
            "kind": "List",
            "metadata": {"resourceVersion": store.version().to_string()},
            "items": items,
        })
    }

    fn patch(&self, target: &Target, part: Part, kind: &str, body: Value) -> Answer {
        let id = &target.id;
        match kind {
            "application/merge-patch+json" => self.write(|store| {
                let mut new = Value::clone(&*store.get(id)?);
                patch::merge(&mut new, &body);
                // What the patch does not name is not a precondition.
                if body.pointer("/metadata/resourceVersion").is_none() {
                    new["metadata"].as_object_mut().and_then(|meta| meta.remove("resourceVersion"));
                }
                store.update(id, part, new)
            }),
            "application/json-patch+json" => self.write(|store| {
                let mut new = Value::clone(&*store.get(id)?);
                let invalid = |e: String| Refusal::new(422, "Invalid", e);
                let patch: json_patch::Patch = serde_json::from_value(body).map_err(|e| invalid(e.to_string()))?;
                json_patch::patch(&mut new, &patch).map_err(|e| invalid(e.to_string()))?;
                store.update(id, part, new)
            }),
            "application/apply-patch+yaml" => {
                let manager = target.query.get("fieldManager").cloned().unwrap_or_default();
                self.write(|store| store.apply(id, part, &manager, body))
            }
            other => Err(Refusal::new(415, "UnsupportedMediaType", format!("{id}: {other}"))),
        }
    }

    fn token(&self, id: &Id, mut request: Value) -> Answer {
        self.store().get(id)?;
        let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
        let expiry = runtime::clock::now() + jiff::SignedDuration::from_secs(seconds);
        request["metadata"] = json!({"name": id.name, "namespace": id.namespace});
        request["status"] =
            json!({"token": format!("token-of-{}", id.namespace), "expirationTimestamp": expiry.to_string()});
        Ok(Arc::new(request))
    }
}
