//! What is asked of the API server, kind by kind, and what is known of its objects without asking.

use crate::Error;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::Preconditions;
use planner::meta::{Target, name};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

pub trait Object:
    Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug + Send + Sync + 'static
{
}
impl<K> Object for K where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug + Send + Sync + 'static
{
}

/// What a patch is of. The API server lets neither change the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Object,
    Status,
}

/// The verbs of one kind. Cluster-wide kinds have the empty namespace.
///
/// A request that has no answer is [`Error::Unavailable`]: it may have been done, or be done later. What is read is read from
/// quorum; [`Verbs::known`] alone may lag.
pub trait Verbs<K: Object> {
    fn get(&self, namespace: &str, name: &str) -> impl Future<Output = Result<K, Error>>;

    /// In all namespaces: those with this label, or all.
    fn list(&self, label: Option<(&str, &str)>) -> impl Future<Output = Result<Vec<K>, Error>>;

    /// [`Error::AlreadyExists`]: there is one of that name.
    fn create(&self, object: &K) -> impl Future<Output = Result<K, Error>>;

    /// A merge patch. `metadata.uid` and `metadata.resourceVersion` in it are preconditions, and [`Error::Conflict`] says that
    /// one of them is not met.
    fn patch(&self, namespace: &str, name: &str, part: Part, change: Value) -> impl Future<Output = Result<K, Error>>;

    /// What the answer shows: an object that waits for its finalizers, or for its grace period, is still there.
    fn delete(
        &self,
        namespace: &str,
        name: &str,
        rests_on: Preconditions,
        grace_seconds: Option<u32>,
    ) -> impl Future<Output = Result<Option<K>, Error>>;

    /// The watched copy.
    fn known(&self, namespace: &str, name: &str) -> Option<Arc<K>>;

    /// An answer goes into the watched copy, for the next plan rests on it.
    fn put(&self, object: K);

    /// What an answer showed the end of.
    fn forget(&self, meta: &ObjectMeta);
}

pub async fn get<K: Object>(c: &impl Verbs<K>, namespace: &str, name: &str) -> Result<K, Error> {
    c.get(namespace, name).await
}

pub async fn list<K: Object>(c: &impl Verbs<K>, label: Option<(&str, &str)>) -> Result<Vec<K>, Error> {
    c.list(label).await
}

pub fn known<K: Object>(c: &impl Verbs<K>, namespace: &str, name: &str) -> Option<Arc<K>> {
    c.known(namespace, name)
}

/// The object with the target's UID, if it is known.
pub fn seen<K: Object>(c: &impl Verbs<K>, target: &Target) -> Result<Arc<K>, Error> {
    let there = c.known(&target.namespace, &target.name);
    let there = there.filter(|there| there.meta().uid.as_deref() == Some(&target.uid));
    there.ok_or_else(|| Error::NotFound { what: format!("{} '{}'", K::kind(&()), target.name) })
}

pub fn put<K: Object>(c: &impl Verbs<K>, object: K) {
    c.put(object);
}

pub fn forget<K: Object>(c: &impl Verbs<K>, meta: &ObjectMeta) {
    c.forget(meta);
}

/// As messages name a request.
pub fn what<K: Object>(verb: &str, name: &str) -> String {
    format!("{verb} {} '{name}'", K::kind(&()))
}

pub(crate) fn names(meta: &ObjectMeta) -> (&str, &str) {
    (meta.namespace.as_deref().unwrap_or_default(), name(meta))
}
