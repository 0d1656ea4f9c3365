//! How objects are printed: `-o json|yaml|wide|name`, data on standard output only.

use crate::args::Output;
use anyhow::Context;
use kube::{Resource, ResourceExt};
use serde::Serialize;

/// `baremetalmachine.metalplane.io/bm-01`, as kubectl names objects.
pub fn name_of<K: Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{}.{}/{}", K::kind(&()).to_lowercase(), K::group(&()), object.name_any())
}

/// Prints one object; `None` and `Wide` are the caller's own format.
pub fn structured<T: Serialize>(output: Output, value: &T) -> anyhow::Result<String> {
    match output {
        Output::Json => Ok(format!("{}\n", serde_json::to_string_pretty(value).context("write JSON")?)),
        _ => serde_saphyr::to_string(value).context("write YAML"),
    }
}

/// After a change: the object as `-o` asks for it, or what was done.
pub fn changed<K>(output: Option<Output>, object: &K, done: impl FnOnce() -> String) -> anyhow::Result<String>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    match output {
        Some(Output::Name) => Ok(format!("{}\n", name_of(object))),
        Some(output @ (Output::Json | Output::Yaml)) => structured(output, object),
        Some(Output::Wide) | None => Ok(done()),
    }
}

/// What stands behind the words of a change that was not made.
pub fn dry(dry_run: bool) -> &'static str {
    if dry_run { " (server dry run)" } else { "" }
}

/// Several objects as kubectl's List.
pub fn list<T: Serialize>(output: Output, items: &[T]) -> anyhow::Result<String> {
    structured(output, &serde_json::json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}))
}
