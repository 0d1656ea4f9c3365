//! The objects, their versions, and what happened to them in which order.

use super::patch::{Apply, apply};
use super::path::Id;
use super::rules;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

#[derive(Debug, Clone)]
pub struct Event {
    pub at: jiff::Timestamp,
    pub era: u32,
    pub version: u64,
    pub change: Change,
    pub id: Id,
    pub object: Arc<Value>,
}

/// A refusal as the API server words it.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
}

impl Refusal {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into() }
    }

    fn not_found(id: &Id) -> Self {
        Self::new(404, "NotFound", format!("{id} not found"))
    }

    fn conflict(id: &Id, why: &str) -> Self {
        Self::new(409, "Conflict", format!("{id}: the object has been modified: {why}"))
    }
}

pub type Answer = Result<Arc<Value>, Refusal>;

/// Which part of an object a write is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Main,
    Status,
}

pub struct Store {
    version: u64,
    pub(super) objects: BTreeMap<Id, Arc<Value>>,
    /// How many objects have had this name: UIDs are made from it, so that they are the same in every run.
    incarnations: HashMap<Id, u32>,
    /// What each field manager applied last, by UID and part.
    applied: BTreeMap<(String, bool, String), Value>,
    pub log: Vec<Event>,
    with_status: BTreeSet<String>,
    /// Those that wait for what they own.
    pub(super) in_foreground: BTreeSet<Id>,
    /// Grows with every restore: watches of before are ended.
    pub era: u32,
}

/// Which resource versions are given after a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// As `etcdutl snapshot restore --bump-revision --mark-compacted`.
    Later,
    /// As without: those that were given since the backup are given again.
    Again,
}

/// What a backup of etcd holds.
#[derive(Clone)]
pub struct Backup {
    version: u64,
    objects: BTreeMap<Id, Arc<Value>>,
    applied: BTreeMap<(String, bool, String), Value>,
}

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn finalizers(object: &Value) -> usize {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).map_or(0, Vec::len)
}

pub(super) fn now() -> String {
    let now = runtime::clock::now();
    jiff::Timestamp::from_second(now.as_second()).map(|at| at.to_string()).unwrap_or_default()
}

impl Default for Store {
    fn default() -> Self {
        let of_crds = api::crds::crds().into_iter().filter(|crd| {
            let subresources = crd.spec.versions.iter().filter_map(|version| version.subresources.as_ref());
            subresources.flat_map(|s| s.status.as_ref()).count() > 0
        });
        let mut with_status: BTreeSet<String> =
            of_crds.map(|crd| format!("{}/{}", crd.spec.group, crd.spec.names.plural)).collect();
        with_status.extend(["persistentvolumeclaims", "persistentvolumes", "pods"].map(str::to_owned));
        Self {
            version: 1,
            objects: BTreeMap::new(),
            incarnations: HashMap::new(),
            applied: BTreeMap::new(),
            log: Vec::new(),
            with_status,
            in_foreground: BTreeSet::new(),
            era: 0,
        }
    }
}

impl Store {
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn backup(&self) -> Backup {
        Backup { version: self.version, objects: self.objects.clone(), applied: self.applied.clone() }
    }

    /// Objects are as they were, and every watch ends.
    pub fn restore(&mut self, backup: Backup, numbers: Numbers) {
        (self.objects, self.applied) = (backup.objects, backup.applied);
        self.version = match numbers {
            Numbers::Later => self.version + 1000,
            Numbers::Again => backup.version,
        };
        self.era += 1;
    }

    /// Whether the release of this UID was ever asked for.
    pub fn was_released(&self, uid: &str) -> bool {
        let asked = |object: &Value| {
            object["metadata"].get("deletionTimestamp").is_some() && object["spec"]["release"] == json!(true)
        };
        self.log.iter().any(|event| text(&event.object, "/metadata/uid") == uid && asked(&event.object))
    }

    pub fn get(&self, id: &Id) -> Answer {
        self.objects.get(id).cloned().ok_or_else(|| Refusal::not_found(id))
    }

    /// Of a collection; an empty namespace means all.
    pub fn list(&self, collection: &Id) -> Vec<Arc<Value>> {
        let of = |id: &Id| {
            id.resource == collection.resource
                && (collection.namespace.is_empty() || id.namespace == collection.namespace)
        };
        // They are in the order of resource and namespace.
        let first = Id::new(&collection.resource, &collection.namespace, "");
        self.objects.range(first..).take_while(|(id, _)| of(id)).map(|(_, object)| object.clone()).collect()
    }

    pub fn all(&self) -> impl Iterator<Item = (&Id, &Arc<Value>)> {
        self.objects.iter()
    }

    pub(super) fn commit(&mut self, id: &Id, mut object: Value, change: Change) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        let at = runtime::clock::now();
        self.log.push(Event {
            at,
            era: self.era,
            version: self.version,
            change,
            id: id.clone(),
            object: object.clone(),
        });
        match change {
            Change::Deleted => {
                self.objects.remove(id);
                self.collect(text(&object, "/metadata/uid"));
                if !self.in_foreground.is_empty() {
                    self.end_foreground();
                }
            }
            Change::Added | Change::Modified => {
                self.objects.insert(id.clone(), object.clone());
            }
        }
        object
    }

    pub fn create(&mut self, id: &Id, mut object: Value) -> Answer {
        if self.objects.contains_key(id) {
            return Err(Refusal::new(409, "AlreadyExists", format!("{id} already exists")));
        }
        if self.with_status.contains(&id.resource)
            && let Some(object) = object.as_object_mut()
        {
            object.remove("status");
        }
        string_data(&mut object);
        let count = self.incarnations.entry(id.clone()).or_default();
        *count += 1;
        let uid = uid(&format!("{id} {count}"));
        let meta = &mut object["metadata"];
        meta["name"] = json!(id.name);
        if !id.namespace.is_empty() {
            meta["namespace"] = json!(id.namespace);
        }
        meta["uid"] = json!(uid);
        meta["creationTimestamp"] = json!(now());
        meta["generation"] = json!(1);
        Ok(self.commit(id, object, Change::Added))
    }

    /// Writes `new` in place of what is there.
    pub fn update(&mut self, id: &Id, part: Part, new: Value) -> Answer {
        let old = self.get(id)?;
        let said = |key: &str| new["metadata"].get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        for key in ["uid", "resourceVersion"] {
            let there = text(&old, &format!("/metadata/{key}"));
            if said(key).is_some_and(|said| said != there) {
                return Err(Refusal::conflict(id, &format!("{key} is {there}")));
            }
        }
        let mut object = match part {
            Part::Main => new,
            Part::Status => {
                let mut object = Value::clone(&old);
                object["status"] = new["status"].clone();
                // Of a pod, unlike of our own kinds, what is said of it may be written with its status.
                if id.resource == "pods" {
                    object["metadata"]["annotations"] = new["metadata"]["annotations"].clone();
                }
                object
            }
        };
        if part == Part::Main && self.with_status.contains(&id.resource) {
            match old.get("status") {
                Some(status) => object["status"] = status.clone(),
                None => {
                    object.as_object_mut().and_then(|object| object.remove("status"));
                }
            }
        }
        string_data(&mut object);
        for key in
            ["uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion", "name", "namespace"]
        {
            match old["metadata"].get(key) {
                Some(value) => object["metadata"][key] = value.clone(),
                None => {
                    object["metadata"].as_object_mut().and_then(|meta| meta.remove(key));
                }
            }
        }
        tidy(&mut object);
        if let Some(message) = rules::refuse(&id.resource, &old, &object) {
            return Err(Refusal::new(422, "Invalid", format!("{id} is invalid: {message}")));
        }
        if object == *old {
            return Ok(old);
        }
        if object.get("spec") != old.get("spec") {
            let generation = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
            object["metadata"]["generation"] = json!(generation + 1);
        }
        let ends = object["metadata"].get("deletionTimestamp").is_some() && finalizers(&object) == 0;
        Ok(self.commit(id, object, if ends { Change::Deleted } else { Change::Modified }))
    }

    /// With finalizers it stays, marked. `options`: the request's body.
    pub fn delete(&mut self, id: &Id, options: &Value) -> Answer {
        let old = self.get(id)?;
        for key in ["uid", "resourceVersion"] {
            let wanted = options.pointer(&format!("/preconditions/{key}")).and_then(Value::as_str);
            let there = text(&old, &format!("/metadata/{key}"));
            if wanted.is_some_and(|wanted| wanted != there) {
                return Err(Refusal::conflict(id, &format!("precondition failed: {key} is {there}")));
            }
        }
        let mut object = Value::clone(&old);
        let in_foreground = options.get("propagationPolicy") == Some(&json!("Foreground"));
        let is_new = object["metadata"].get("deletionTimestamp").is_none();
        if in_foreground && is_new {
            return Ok(self.delete_in_foreground(id, object));
        }
        // kubelet ends a pod, and then says so.
        let takes_time = id.resource == "pods" && options.get("gracePeriodSeconds") != Some(&json!(0));
        if finalizers(&object) == 0 && !takes_time {
            return Ok(self.commit(id, object, Change::Deleted));
        }
        if object["metadata"].get("deletionTimestamp").is_some() {
            return Ok(old);
        }
        object["metadata"]["deletionTimestamp"] = json!(now());
        Ok(self.commit(id, object, Change::Modified))
    }

    /// Server-side apply, always forced.
    pub fn apply(&mut self, id: &Id, part: Part, manager: &str, said: Value) -> Answer {
        let Ok(old) = self.get(id) else {
            if part == Part::Status {
                return Err(Refusal::not_found(id));
            }
            let created = self.create(id, said.clone())?;
            self.remember(&created, part, manager, said);
            return Ok(created);
        };
        let mut new = Value::clone(&old);
        let uid = text(&old, "/metadata/uid").to_owned();
        let is_status = part == Part::Status;
        let mine = self.applied.get(&(uid.clone(), is_status, manager.to_owned()));
        let others: Vec<&Value> = self
            .applied
            .iter()
            .filter(|((of, status, by), _)| *of == uid && *status == is_status && by != manager)
            .map(|(_, value)| value)
            .collect();
        let mut content = said.clone();
        if let Some(meta) = content["metadata"].as_object_mut() {
            meta.retain(|key, _| ["labels", "annotations", "finalizers", "ownerReferences"].contains(&key.as_str()));
        }
        apply(&mut new, &Apply { before: mine, now: &content, others }, "");
        for key in ["uid", "resourceVersion"] {
            if let Some(value) = said["metadata"].get(key) {
                new["metadata"][key] = value.clone();
            }
        }
        let updated = self.update(id, part, new)?;
        self.remember(&updated, part, manager, content);
        Ok(updated)
    }

    fn remember(&mut self, object: &Value, part: Part, manager: &str, said: Value) {
        let key = (text(object, "/metadata/uid").to_owned(), part == Part::Status, manager.to_owned());
        self.applied.insert(key, said);
    }
}

/// `stringData` of a Secret becomes `data`.
fn string_data(object: &mut Value) {
    use base64::Engine;
    let Some(Value::Object(plain)) = object.as_object_mut().and_then(|object| object.remove("stringData")) else {
        return;
    };
    for (key, value) in plain {
        let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        object["data"][key] = json!(encoded);
    }
}

/// Empty maps and lists in metadata are as good as none.
pub(super) fn tidy(object: &mut Value) {
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.retain(|_, value| {
            !value.is_null()
                && value.as_object().is_none_or(|m| !m.is_empty())
                && value.as_array().is_none_or(|l| !l.is_empty())
        });
    }
}

/// A UUID made from `input`.
pub fn uid(input: &str) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(input.as_bytes());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}
