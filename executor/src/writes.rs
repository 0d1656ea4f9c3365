//! Writes to the API server, each bound to the object that was seen: by UID, by resourceVersion, or both.
//!
//! Every answer goes into the cache of its kind. A create that finds the name taken looks whether it is ours (a create
//! whose answer was lost) and adopts it; a delete that finds nothing, or another UID, is done.

use crate::verbs::{names, what};
use crate::{Error, Object, Part, Verbs, found};
use api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::Preconditions;
use planner::meta::Target;
use serde::Serialize;
use serde_json::{Value, json};

/// Creates, or adopts what `is_ours` accepts under that name.
pub async fn create<K: Object>(c: &impl Verbs<K>, object: &K, is_ours: impl Fn(&K) -> bool) -> Result<K, Error> {
    let created = match c.create(object).await {
        Err(Error::AlreadyExists { what, message }) => {
            let (namespace, name) = names(object.meta());
            let there = c.get(namespace, name).await?;
            if !is_ours(&there) {
                return Err(Error::AlreadyExists { what, message });
            }
            there
        }
        result => result?,
    };
    c.put(created.clone());
    Ok(created)
}

/// What is known of it is its UID alone.
pub(crate) fn by_uid(target: &Target) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(target.namespace.clone()),
        name: Some(target.name.clone()),
        uid: Some(target.uid.clone()),
        ..ObjectMeta::default()
    }
}

/// A merge patch of one object and no other: UID, and where it was seen the resourceVersion, are preconditions.
pub async fn patch<K: Object>(c: &impl Verbs<K>, seen: &ObjectMeta, change: Value) -> Result<K, Error> {
    write(c, seen, Part::Object, bound(seen, change)).await
}

/// The same of a status.
pub async fn patch_status<K: Object>(c: &impl Verbs<K>, seen: &ObjectMeta, status: Value) -> Result<K, Error> {
    write(c, seen, Part::Status, bound(seen, json!({"status": status}))).await
}

fn bound(seen: &ObjectMeta, mut change: Value) -> Value {
    change["metadata"]["uid"] = json!(seen.uid);
    if let Some(version) = &seen.resource_version {
        change["metadata"]["resourceVersion"] = json!(version);
    }
    change
}

async fn write<K: Object>(c: &impl Verbs<K>, seen: &ObjectMeta, part: Part, change: Value) -> Result<K, Error> {
    let (namespace, name) = names(seen);
    let patched = c.patch(namespace, name, part, change).await?;
    c.put(patched.clone());
    Ok(patched)
}

/// Makes `after` of `before`, in the version that was read.
pub async fn change<K: Object>(c: &impl Verbs<K>, before: &K, after: &K) -> Result<K, Error> {
    let Some(change) = differing(before, after)? else { return Ok(after.clone()) };
    write(c, before.meta(), Part::Object, change).await
}

/// The same of a status.
pub async fn change_status<K: Object>(c: &impl Verbs<K>, before: &K, after: &K) -> Result<K, Error> {
    let Some(change) = differing(before, after)? else { return Ok(after.clone()) };
    write(c, before.meta(), Part::Status, change).await
}

/// The patch that makes `after` of `before`; `None`: there is nothing to write.
pub fn differing<K: Resource<DynamicType = ()> + Serialize>(before: &K, after: &K) -> Result<Option<Value>, Error> {
    runtime::change::of(before, after).map_err(|error| {
        let what = format!("patch {} '{}'", K::kind(&()), before.meta().name.as_deref().unwrap_or_default());
        Error::Refused { what, message: error.to_string() }
    })
}

/// Deletes exactly the object with this UID (and, if given, in this version).
pub async fn delete<K: Object>(c: &impl Verbs<K>, meta: &ObjectMeta, with_version: bool) -> Result<(), Error> {
    let (namespace, name) = names(meta);
    let rests_on = Preconditions {
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone().filter(|_| with_version),
    };
    match c.delete(namespace, name, rests_on, None).await {
        // An object with finalizers stays, and is what the answer shows.
        Ok(answer) => match answer.filter(|object| object.meta().finalizers.iter().flatten().count() > 0) {
            Some(object) => c.put(object),
            None => c.forget(meta),
        },
        Err(Error::NotFound { .. }) => c.forget(meta),
        Err(Error::Conflict { message, .. }) => match found(c.get(namespace, name).await)? {
            Some(there) if there.meta().uid == meta.uid => {
                c.put(there);
                return Err(Error::Conflict { what: what::<K>("delete", name), message });
            }
            // That one is gone already; the name belongs to another object.
            _ => c.forget(meta),
        },
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The list with a finalizer added or taken out, for a merge patch (which replaces lists).
pub fn finalizers(meta: &ObjectMeta, finalizer: &str, present: bool) -> Vec<String> {
    let others = meta.finalizers.iter().flatten().filter(|f| *f != finalizer).cloned();
    others.chain(present.then(|| finalizer.to_owned())).collect()
}

/// Puts the finalizer of what is in use on the object that was seen, or takes it off.
pub async fn keep<K: Object>(c: &impl Verbs<K>, meta: &ObjectMeta, present: bool) -> Result<(), Error> {
    finalize(c, meta, labels::FINALIZER_IN_USE, present).await
}

/// Puts this finalizer on the object that was seen, or takes it off.
pub async fn finalize<K: Object>(
    c: &impl Verbs<K>,
    meta: &ObjectMeta,
    finalizer: &str,
    present: bool,
) -> Result<(), Error> {
    let change = json!({"metadata": {"finalizers": finalizers(meta, finalizer, present)}});
    match patch(c, meta, change).await {
        Ok(patched) => {
            let meta = patched.meta();
            if meta.deletion_timestamp.is_some() && meta.finalizers.iter().flatten().count() == 0 {
                // The last finalizer has ended it.
                c.forget(meta);
            }
        }
        Err(Error::NotFound { .. }) if !present => c.forget(meta),
        Err(error) => return Err(error),
    }
    Ok(())
}
