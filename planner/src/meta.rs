//! What is read off the metadata of any object.

use api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// An object by namespace, name and UID: what a deletion or a patch is bound to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Target {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

pub fn target(meta: &ObjectMeta) -> Target {
    Target {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: name(meta).to_owned(),
        uid: uid(meta).to_owned(),
    }
}

pub fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.as_ref().is_some_and(|all| all.iter().any(|f| f == finalizer))
}

/// Marked as used by the machine with this UID, and kept by the finalizer.
pub fn in_use_by(meta: &ObjectMeta, machine_uid: &str) -> bool {
    has_finalizer(meta, labels::FINALIZER_IN_USE)
        && annotation(meta, &format!("{}{machine_uid}", labels::IN_USE_BY)).is_some()
}
