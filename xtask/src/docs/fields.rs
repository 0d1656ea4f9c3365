//! One page per kind: its fields, and what the API server refuses.

use super::{Page, cell};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

pub(super) fn pages() -> Result<Vec<Page>> {
    api::crds::crds().into_iter().map(|crd| page(&serde_json::to_value(crd)?)).collect()
}

fn page(crd: &Value) -> Result<Page> {
    let spec = &crd["spec"];
    let version = &spec["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = spec["names"]["kind"].as_str().context("a definition names its kind")?;
    let group = word(&spec["group"]);
    let mut text = String::new();
    let about = schema["description"].as_str().unwrap_or_default();
    let _ = writeln!(text, "{about}\n");
    let _ = writeln!(text, "`apiVersion: {group}/{}`, `kind: {kind}`\n", word(&version["name"]));
    let short = spec["names"]["shortNames"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<String> = [vec![word(&spec["names"]["plural"])], short.iter().map(word).collect()].concat();
    let scope = if spec["scope"] == "Namespaced" { "in a namespace" } else { "cluster-wide" };
    let _ = writeln!(text, "Known to kubectl as `{}`; {scope}.", names.join("`, `"));
    let mut found = Found::default();
    for part in ["spec", "status"] {
        let Some(schema) = schema["properties"].get(part) else { continue };
        found.field(part, schema, false);
    }
    found.rules("metadata", schema);
    let _ = write!(text, "\n## Fields\n\n| field | type | what it is |\n|---|---|---|\n{}", found.rows);
    if !found.refused.is_empty() {
        text.push_str("\n## Refused at apply\n\nBesides wrong types, unknown values and missing required fields:\n\n");
        for (path, message) in &found.refused {
            let _ = writeln!(text, "- `{path}`: {message}");
        }
    }
    let plural = word(&spec["names"]["plural"]);
    let file = if group == api::labels::GROUP { format!("{plural}.md") } else { format!("{plural}.{group}.md") };
    let title = if group == api::labels::GROUP { kind.to_owned() } else { format!("{kind} ({group})") };
    Ok(Page { file, title, about: first_sentence(about), text })
}

#[derive(Default)]
struct Found {
    /// Lines of the table.
    rows: String,
    /// Where, and what is said.
    refused: BTreeSet<(String, String)>,
}

impl Found {
    fn field(&mut self, path: &str, schema: &Value, required: bool) {
        self.rules(path, schema);
        let (path, inner) = match (schema.get("items"), schema.get("additionalProperties")) {
            (Some(items), _) => (format!("{path}[]"), items),
            (_, Some(values)) if values.is_object() => (format!("{path}.*"), values),
            _ => (path.to_owned(), schema),
        };
        if !path.is_empty() {
            let about = cell(schema["description"].as_str().or(inner["description"].as_str()).unwrap_or_default());
            let _ = writeln!(self.rows, "| `{path}` | {} | {about} |", cell(&type_of(schema, inner, required)));
        }
        if inner != schema {
            self.rules(&path, inner);
        }
        // Every condition of every kind has the same fields, which Kubernetes documents.
        if path.ends_with("conditions[]") {
            return;
        }
        let required: Vec<&str> =
            inner["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let properties = inner["properties"].as_object().into_iter().flatten();
        // Sorted, whatever the features of serde_json in this build.
        let mut properties: Vec<_> = properties.collect();
        properties.sort_by_key(|(name, _)| name.as_str());
        for (name, property) in properties {
            self.field(&format!("{path}.{name}"), property, required.contains(&name.as_str()));
        }
    }

    fn rules(&mut self, path: &str, schema: &Value) {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            if let Some(message) = rule["message"].as_str() {
                self.refused.insert((path.to_owned(), message.to_owned()));
            }
        }
    }
}

fn type_of(schema: &Value, inner: &Value, required: bool) -> String {
    let mut words = vec![match (inner["type"].as_str(), inner["x-kubernetes-int-or-string"].as_bool()) {
        (_, Some(true)) => "quantity or string".to_owned(),
        (Some(kind), _) => kind.to_owned(),
        (None, _) => "any".to_owned(),
    }];
    if let Some(values) = inner["enum"].as_array() {
        let values: Vec<String> = values.iter().filter(|value| !value.is_null()).map(short).collect();
        words.push(format!("one of {}", values.join(", ")));
    }
    match (inner["minimum"].as_f64(), inner["maximum"].as_f64()) {
        (Some(least), Some(most)) => words.push(format!("{least} to {most}")),
        (Some(least), None) => words.push(format!("at least {least}")),
        _ => {}
    }
    match inner["format"].as_str() {
        Some("int32" | "int64") | None => {}
        Some(format) => words.push(format.to_owned()),
    }
    if let Some(default) = schema.get("default").filter(|value| !value.is_object() && !value.is_array()) {
        words.push(format!("default {}", short(default)));
    }
    if required {
        words.push("required".to_owned());
    }
    words.join("; ")
}

fn short(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn first_sentence(text: &str) -> String {
    let sentence = text.split_once(". ").map_or(text, |(first, _)| first);
    sentence.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_defaults_and_refusals_of_a_machine_are_there() {
        let pages = pages().expect("pages");
        let page = pages.iter().find(|page| page.file == "baremetalmachines.md").expect("a page for machines");
        for line in [
            "| `spec.disks[].bus` | string; one of NVMe, VirtioBlk; default NVMe |",
            "| `spec.disks[].name` | string; required |",
            "`kind: BareMetalMachine`",
            "- `spec.disks[].source`: source must have exactly one of",
        ] {
            assert!(page.text.contains(line), "{line} is not in\n{}", page.text);
        }
        assert!(pages.iter().any(|page| page.file == "machines.bmc.tinkerbell.org.md"));
    }

    #[test]
    fn a_cell_keeps_the_table_whole() {
        assert_eq!(cell("a | b\n  <c>"), "a \\| b &lt;c>");
    }
}
