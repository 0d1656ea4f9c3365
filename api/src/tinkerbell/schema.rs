//! From our types to a CustomResourceDefinition as Go's tooling writes it: nothing is nullable (a null is refused, an
//! absent field is fine), `int` has no format, and the root lists `apiVersion`, `kind` and `metadata` and requires
//! nothing.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::dynamic::ApiResource;
use kube_core::schema::{OptionalEnum, StructuralSchemaRewriter};
use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// clusterctl moves objects of definitions with these labels from one management cluster to another.
const LABELS: [&str; 2] = ["clusterctl.cluster.x-k8s.io", "clusterctl.cluster.x-k8s.io/move"];

/// Texts that are required, and that are read all the same where an older version has left them out.
pub(super) fn read_without(schema: &mut Schema) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    let left_out = |(name, property): (&String, &mut Value)| {
        let is_empty = property["default"] == "";
        is_empty.then(|| property.as_object_mut().map(|property| property.remove("default")))?;
        Some(Value::from(name.as_str()))
    };
    let mut required: Vec<Value> = properties.iter_mut().filter_map(left_out).collect();
    required.extend(schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default());
    required.sort_by_key(Value::to_string);
    schema.insert("required".to_owned(), required.into());
}

pub(super) fn definition<Spec: JsonSchema, Status: JsonSchema>(
    resource: &ApiResource,
    short_names: &[&str],
    columns: Value,
    moved: bool,
) -> CustomResourceDefinition {
    let ApiResource { group, version, kind, plural, .. } = resource;
    let mut names = json!({
        "categories": ["tinkerbell"],
        "kind": kind,
        "listKind": format!("{kind}List"),
        "plural": plural,
        "singular": kind.to_lowercase(),
    });
    if !short_names.is_empty() {
        names["shortNames"] = json!(short_names);
    }
    let root = json!({
        "description": format!("{kind} as Tinkerbell defines it."),
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this kind."},
            "kind": {"type": "string", "description": "Name of this kind."},
            "metadata": {"type": "object"},
            "spec": of::<Spec>(),
            "status": of::<Status>(),
        },
    });
    let mut served = json!({
        "name": version,
        "served": true,
        "storage": true,
        "schema": {"openAPIV3Schema": root},
        "subresources": {"status": {}},
    });
    if columns.as_array().is_some_and(|columns| !columns.is_empty()) {
        served["additionalPrinterColumns"] = columns;
    }
    let mut metadata = json!({"name": format!("{plural}.{group}")});
    if moved {
        metadata["labels"] = LABELS.map(|label| (label.to_owned(), json!(""))).into_iter().collect();
    }
    serde_json::from_value(json!({
        "metadata": metadata,
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
    }))
    .expect("the schema of a Tinkerbell type is a CustomResourceDefinition's")
}

fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(as_go_writes_it)
        .into_generator()
        .into_root_schema_for::<T>()
}

fn as_go_writes_it(schema: &mut Schema) {
    schema.remove("nullable");
    schema.remove("title");
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if schema.get("x-kubernetes-int-or-string").is_some() {
        // Here and not in the type's own schema: the rewriter takes types out of an anyOf.
        schema.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    transform_subschemas(&mut as_go_writes_it, schema);
}

/// A Go `int`: an integer without a format.
pub(super) fn int(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer"})
}

/// A map of names to quantities; apimachinery's grammar of a quantity as one pattern, so that a bad one is refused.
pub(super) fn quantities(_: &mut SchemaGenerator) -> Schema {
    let number = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))";
    let sign = r"(\+|-)?";
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "pattern": format!("^{sign}{number}(([KMGTPE]i)|[numkMGTPE]|([eE]{sign}{number}))?$"),
            "x-kubernetes-int-or-string": true,
        },
    })
}
