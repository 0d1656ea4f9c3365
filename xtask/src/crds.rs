//! Writes every definition of `api` as one file of the chart `metalplane-crds`.
//!
//! The files are committed, so that a chart can be installed from a checkout and a change of the API is seen in a
//! review; `--check` says when they are behind. Keys are sorted: the same types give the same bytes.

use crate::generated::Folder;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

const FOLDER: Folder =
    Folder { path: "charts/metalplane-crds/templates", suffix: ".yaml", command: "cargo xtask crds" };
const HEADING: &str = "# Written by `cargo xtask crds` from the types of the crate api; do not edit.\n";

pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let wanted = api::crds::crds().into_iter().map(|crd| file(serde_json::to_value(crd)?)).collect::<Result<_>>()?;
    FOLDER.update(root, &wanted, check)
}

/// Name and contents of one definition's file.
fn file(mut crd: Value) -> Result<(String, String)> {
    let name = crd["metadata"]["name"].as_str().context("a definition has a name")?.to_owned();
    crd["apiVersion"] = json!("apiextensions.k8s.io/v1");
    crd["kind"] = json!("CustomResourceDefinition");
    // Uninstalling the chart must not delete every machine.
    crd["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
    let text = serde_saphyr::to_string(&Sorted::from(crd)).with_context(|| format!("write {name} as YAML"))?;
    if text.contains("{{") {
        bail!("{name}: \"{{{{\" in a description or pattern would be taken for Helm's; write it in another way");
    }
    Ok((format!("{name}.yaml"), format!("{HEADING}{text}")))
}

/// JSON whose maps are sorted, whatever the features of serde_json in this build.
#[derive(Clone)]
enum Sorted {
    Map(BTreeMap<String, Sorted>),
    List(Vec<Sorted>),
    Leaf(Value),
}

impl From<Value> for Sorted {
    fn from(value: Value) -> Self {
        match value {
            Value::Object(map) => Self::Map(map.into_iter().map(|(key, value)| (key, value.into())).collect()),
            Value::Array(list) => Self::List(list.into_iter().map(Self::from).collect()),
            leaf => Self::Leaf(leaf),
        }
    }
}

impl serde::Serialize for Sorted {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Map(map) => map.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
            Self::Leaf(leaf) => leaf.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Value {
        json!({"spec": {"z": "on", "a": ["~", "1e3", "0123", "12:30:45", "a: b", "no"]}, "metadata": {"name": "things.example.test"}})
    }

    #[test]
    fn what_is_written_reads_back_as_it_was() {
        let (name, text) = file(example()).expect("written");
        assert_eq!(name, "things.example.test.yaml");
        let read: Value = serde_saphyr::from_str(&text).expect("read");
        assert_eq!(read["spec"], example()["spec"]);
        assert_eq!(read["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
        assert!(text.contains("\"on\"") || text.contains("'on'"), "YAML 1.1 would read a bare `on` as true: {text}");
        assert!(text.find("a:") < text.find("z:"), "{text}");
    }

    #[test]
    fn text_that_helm_would_expand_is_refused() {
        let mut crd = example();
        crd["spec"]["z"] = json!("{{ .Values.x }}");
        assert!(file(crd).expect_err("refused").to_string().contains("Helm"));
    }
}
