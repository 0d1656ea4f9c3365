//! Writes to the API server, each bound to the object that was seen: by UID, by resourceVersion, or both.
//!
//! Every answer goes into the cache of its kind. A create that finds the name taken looks whether it is ours (a create
//! whose answer was lost) and adopts it; a delete that finds nothing, or another UID, is done.

use crate::cache::{Cache, Object};
use crate::error::{Error, call, found};
use api::labels;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ClusterResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Clone)]
pub struct Objects {
    pub client: Client,
}

impl Objects {
    pub fn namespaced<K: Object + Resource<Scope = NamespaceResourceScope>>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub fn cluster<K: Object + Resource<Scope = ClusterResourceScope>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }
}

fn what<K: Object>(verb: &str, name: &str) -> String {
    format!("{verb} {} '{name}'", K::kind(&()))
}

/// Creates, or adopts what `is_ours` accepts under that name.
pub async fn create<K: Object + Serialize>(
    api: &Api<K>,
    cache: &Cache<K>,
    object: &K,
    is_ours: impl Fn(&K) -> bool,
) -> Result<K, Error> {
    let name = object.meta().name.clone().unwrap_or_default();
    let what = what::<K>("create", &name);
    let created = match call(&what, api.create(&PostParams::default(), object)).await {
        Err(Error::Conflict { message, .. }) => {
            let there = call(&what, api.get(&name)).await?;
            if !is_ours(&there) {
                return Err(Error::Conflict { what, message });
            }
            there
        }
        result => result?,
    };
    cache.put(created.clone());
    Ok(created)
}

/// A merge patch of one object and no other: UID, and where it was seen the resourceVersion, are preconditions.
pub async fn patch<K: Object>(
    api: &Api<K>,
    cache: &Cache<K>,
    name: &str,
    uid: &str,
    resource_version: Option<&str>,
    mut change: Value,
) -> Result<K, Error> {
    change["metadata"]["uid"] = json!(uid);
    if let Some(version) = resource_version {
        change["metadata"]["resourceVersion"] = json!(version);
    }
    let patched =
        call(&what::<K>("patch", name), api.patch(name, &PatchParams::default(), &Patch::Merge(&change))).await?;
    cache.put(patched.clone());
    Ok(patched)
}

/// The same of a status.
pub async fn patch_status<K: Object>(
    api: &Api<K>,
    cache: &Cache<K>,
    meta: &ObjectMeta,
    status: Value,
) -> Result<K, Error> {
    let name = meta.name.clone().unwrap_or_default();
    let what = what::<K>("patch status of", &name);
    let change = json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": status});
    let patched = call(&what, api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&change))).await?;
    cache.put(patched.clone());
    Ok(patched)
}

/// Makes `after` of `before`, in the version that was read.
pub async fn change<K: Object + Serialize>(api: &Api<K>, cache: &Cache<K>, before: &K, after: &K) -> Result<K, Error> {
    let Some(change) = differing(before, after)? else { return Ok(after.clone()) };
    let name = before.meta().name.clone().unwrap_or_default();
    let what = what::<K>("patch", &name);
    let changed = call(&what, api.patch(&name, &PatchParams::default(), &Patch::Merge(&change))).await?;
    cache.put(changed.clone());
    Ok(changed)
}

/// The same of a status.
pub async fn change_status<K: Object + Serialize>(
    api: &Api<K>,
    cache: &Cache<K>,
    before: &K,
    after: &K,
) -> Result<K, Error> {
    let Some(change) = differing(before, after)? else { return Ok(after.clone()) };
    let name = before.meta().name.clone().unwrap_or_default();
    let what = what::<K>("patch status of", &name);
    let changed = call(&what, api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&change))).await?;
    cache.put(changed.clone());
    Ok(changed)
}

/// The patch that makes `after` of `before`; `None`: there is nothing to write.
pub fn differing<K: Resource<DynamicType = ()> + Serialize>(before: &K, after: &K) -> Result<Option<Value>, Error> {
    runtime::change::of(before, after).map_err(|error| {
        let what = format!("patch {} '{}'", K::kind(&()), before.meta().name.as_deref().unwrap_or_default());
        Error::Refused { what, message: error.to_string() }
    })
}

/// Deletes exactly the object with this UID (and, if given, in this version).
pub async fn delete<K: Object>(
    api: &Api<K>,
    cache: &Cache<K>,
    meta: &ObjectMeta,
    with_version: bool,
) -> Result<(), Error> {
    let name = meta.name.clone().unwrap_or_default();
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone().filter(|_| with_version),
        }),
        ..DeleteParams::default()
    };
    let what = what::<K>("delete", &name);
    match call(&what, api.delete(&name, &params)).await {
        Ok(answer) => {
            // An object with finalizers stays, and is what the answer shows.
            match answer.left().filter(|object| object.meta().finalizers.iter().flatten().count() > 0) {
                Some(object) => cache.put(object),
                None => cache.forget(meta),
            }
            Ok(())
        }
        Err(Error::NotFound { .. }) => {
            cache.forget(meta);
            Ok(())
        }
        Err(Error::Conflict { message, .. }) => match found(call(&what, api.get(&name)).await)? {
            Some(there) if there.meta().uid == meta.uid => {
                cache.put(there);
                Err(Error::Conflict { what, message })
            }
            // That one is gone already; the name belongs to another object.
            _ => {
                cache.forget(meta);
                Ok(())
            }
        },
        Err(error) => Err(error),
    }
}

/// The list with a finalizer added or taken out, for a merge patch (which replaces lists).
pub fn finalizers(meta: &ObjectMeta, finalizer: &str, present: bool) -> Vec<String> {
    let others = meta.finalizers.iter().flatten().filter(|f| *f != finalizer).cloned();
    others.chain(present.then(|| finalizer.to_owned())).collect()
}

/// Puts the finalizer of what is in use on the object that was seen, or takes it off.
pub async fn keep<K>(objects: &Objects, cache: &Cache<K>, meta: &ObjectMeta, present: bool) -> Result<(), Error>
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    let api = objects.namespaced::<K>(meta.namespace.as_deref().unwrap_or_default());
    let (name, uid) = (meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref().unwrap_or_default());
    let change = json!({"metadata": {"finalizers": finalizers(meta, labels::FINALIZER_IN_USE, present)}});
    match patch(&api, cache, name, uid, meta.resource_version.as_deref(), change).await {
        Ok(patched) => {
            let meta = patched.meta();
            if meta.deletion_timestamp.is_some() && meta.finalizers.iter().flatten().count() == 0 {
                // The last finalizer has ended it.
                cache.forget(meta);
            }
        }
        Err(Error::NotFound { .. }) if !present => cache.forget(meta),
        Err(error) => return Err(error),
    }
    Ok(())
}
