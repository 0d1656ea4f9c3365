//! SPDK's own description of its JSON-RPC requests (`schema/schema.json`), and whether a request is as it says.
//!
//! NVIDIA SNAP adds methods, of which there is no such description: `snap.json` beside this file is what is known of those that
//! are used, in the same format.
//!
//! It is SPDK's own format: `{enums, objects, arrays, methods}`, each a list of named things; a method has `params`, an
//! object `fields`, each with a name, a type, and whether it is required. Answers and error codes are not in it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// Names the file itself.
const SCHEMA: &str = "SPDK_SCHEMA";
const SNAP: &str = include_str!("snap.json");

#[derive(Debug, Deserialize)]
pub struct Schema {
    #[serde(default)]
    enums: Vec<Named>,
    #[serde(default)]
    objects: Vec<Named>,
    #[serde(default)]
    arrays: Vec<Array>,
    methods: Vec<Named>,
}

/// An enum, an object or a method.
#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    #[serde(default, alias = "params")]
    fields: Vec<Field>,
    #[serde(default)]
    bitmask: Value,
}

#[derive(Debug, Deserialize)]
struct Field {
    name: String,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    class: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Array {
    name: String,
    item_type: String,
    #[serde(default, alias = "item_class")]
    class: Option<String>,
    #[serde(default)]
    max_count: Option<usize>,
}

/// Where the schema is on this machine; else the name of what is missing.
pub fn find() -> Result<PathBuf, String> {
    if let Some(file) = std::env::var_os(SCHEMA) {
        return Ok(file.into());
    }
    let folder = super::real::folder().map_err(|missing| format!("neither {SCHEMA} nor {missing}"))?;
    ["schema/schema.json", "share/spdk/schema.json"]
        .iter()
        .map(|file| folder.join(file))
        .find(|file| file.exists())
        .ok_or_else(|| format!("{SCHEMA} is not set, and there is no schema/schema.json in {}", folder.display()))
}

impl Schema {
    pub fn read(file: &std::path::Path) -> Result<Schema> {
        let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        Schema::parse(&text).with_context(|| format!("understand {}", file.display()))
    }

    pub fn parse(text: &str) -> Result<Schema> {
        Ok(serde_json::from_str(text)?)
    }

    /// What SNAP adds.
    pub fn snap() -> Result<Schema> {
        Schema::parse(SNAP).context("understand snap.json")
    }

    pub fn knows(&self, method: &str) -> bool {
        find_named(&self.methods, method).is_some()
    }

    /// All that is wrong with a request.
    pub fn check(&self, method: &str, params: &Value) -> Vec<String> {
        let Some(known) = find_named(&self.methods, method) else { return vec![format!("{method}: no such method")] };
        let nothing = Value::Object(serde_json::Map::new());
        let params = if params.is_null() { &nothing } else { params };
        let mut wrong = Vec::new();
        self.object(&known.fields, params, method, &mut wrong);
        wrong
    }

    fn object(&self, fields: &[Field], value: &Value, at: &str, wrong: &mut Vec<String>) {
        let Value::Object(given) = value else { return wrong.push(format!("{at}: {value} is no object")) };
        for field in fields.iter().filter(|field| field.required && !given.contains_key(&field.name)) {
            wrong.push(format!("{at}: {} is missing", field.name));
        }
        for (name, value) in given {
            let at = format!("{at}.{name}");
            match fields.iter().find(|field| field.name == *name) {
                Some(field) => self.value(&field.kind, field.class.as_deref(), value, &at, wrong),
                None => wrong.push(format!("{at}: no such parameter")),
            }
        }
    }

    fn value(&self, kind: &str, class: Option<&str>, value: &Value, at: &str, wrong: &mut Vec<String>) {
        let class = class.unwrap_or_default();
        let good = match kind {
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "uint8" => value.as_u64().is_some_and(|n| n <= u64::from(u8::MAX)),
            "uint16" => value.as_u64().is_some_and(|n| n <= u64::from(u16::MAX)),
            "uint32" => value.as_u64().is_some_and(|n| n <= u64::from(u32::MAX)),
            "uint64" => value.is_u64(),
            "int32" => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            "uuid" => value.as_str().is_some_and(|text| uuid::Uuid::try_parse(text).is_ok()),
            "enum" => return self.enumeration(class, value, at, wrong),
            "object" => match find_named(&self.objects, class) {
                Some(object) => return self.object(&object.fields, value, at, wrong),
                None => false,
            },
            "array" => return self.array(class, value, at, wrong),
            // Later schemas have types that this one leaves open.
            _ => true,
        };
        if !good {
            wrong.push(format!("{at}: {value} is no {kind} {class}"));
        }
    }

    fn enumeration(&self, class: &str, value: &Value, at: &str, wrong: &mut Vec<String>) {
        let Some(named) = find_named(&self.enums, class) else { return };
        let is_one = |value: &Value| named.fields.iter().any(|field| Some(field.name.as_str()) == value.as_str());
        let several = !named.bitmask.is_null() && value.as_array().is_some_and(|all| all.iter().all(is_one));
        if !is_one(value) && !several {
            wrong.push(format!("{at}: {value} is none of {class}"));
        }
    }

    fn array(&self, class: &str, value: &Value, at: &str, wrong: &mut Vec<String>) {
        let (Some(array), Value::Array(items)) = (self.arrays.iter().find(|array| array.name == class), value) else {
            return wrong.push(format!("{at}: {value} is no array {class}"));
        };
        if array.max_count.is_some_and(|most| items.len() > most) {
            wrong.push(format!("{at}: {} items are too many", items.len()));
        }
        for (n, item) in items.iter().enumerate() {
            self.value(&array.item_type, array.class.as_deref(), item, &format!("{at}[{n}]"), wrong);
        }
    }
}

fn find_named<'a>(all: &'a [Named], name: &str) -> Option<&'a Named> {
    all.iter().find(|one| one.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SMALL: &str = r#"{
        "enums": [{"name": "level", "fields": [{"name": "raid0", "value": 0}]}],
        "objects": [{"name": "address", "fields": [
            {"name": "trtype", "type": "string", "required": true}, {"name": "port", "type": "uint16"}]}],
        "arrays": [{"name": "names", "item_type": "string", "max_count": 2}],
        "methods": [{"name": "make", "params": [
            {"name": "name", "type": "string", "required": true}, {"name": "level", "type": "enum", "class": "level"},
            {"name": "address", "type": "object", "class": "address"}, {"name": "id", "type": "uuid"},
            {"name": "names", "type": "array", "class": "names"}]}]
    }"#;

    #[test]
    fn requests_are_judged() {
        let schema = Schema::parse(SMALL).expect("a schema");
        let good = json!({"name": "a", "level": "raid0", "address": {"trtype": "TCP", "port": 4420},
            "id": "5f0c1c9e-58a4-4b1c-9a63-0123456789ab", "names": ["a", "b"]});
        assert_eq!(schema.check("make", &good), Vec::<String>::new());
        for (bad, says) in [
            (json!({}), "make: name is missing"),
            (json!({"name": 1}), "make.name: 1 is no string"),
            (json!({"name": "a", "nmae": "b"}), "make.nmae: no such parameter"),
            (json!({"name": "a", "level": "raid9"}), "make.level: \"raid9\" is none of level"),
            (json!({"name": "a", "address": {"port": 70000}}), "make.address: trtype is missing"),
            (json!({"name": "a", "address": {"trtype": "", "port": 70000}}), "make.address.port: 70000 is no uint16"),
            (json!({"name": "a", "id": "x"}), "make.id: \"x\" is no uuid"),
            (json!({"name": "a", "names": ["a", "b", "c"]}), "make.names: 3 items are too many"),
            (json!([]), "make: [] is no object"),
        ] {
            let wrong = schema.check("make", &bad);
            assert!(wrong.iter().any(|w| w.starts_with(says)), "{bad}: {wrong:?}");
        }
        assert_eq!(schema.check("mkae", &Value::Null), ["mkae: no such method"]);
        assert!(schema.check("make", &Value::Null)[0].contains("missing"));
    }

    #[test]
    fn every_method_of_spdks_schema_is_understood() {
        let file = match find() {
            Ok(file) => file,
            Err(missing) => {
                eprintln!("SKIP every_method_of_spdks_schema_is_understood: {missing}");
                return;
            }
        };
        let schema = Schema::read(&file).expect("SPDK's schema");
        assert!(schema.methods.len() > 200, "{} methods", schema.methods.len());
        for method in &schema.methods {
            for field in &method.fields {
                let class = field.class.as_deref().unwrap_or_default();
                let known = match field.kind.as_str() {
                    "enum" => find_named(&schema.enums, class).is_some(),
                    "object" => find_named(&schema.objects, class).is_some(),
                    "array" => schema.arrays.iter().any(|array| array.name == class),
                    _ => true,
                };
                assert!(known, "{}.{}: {} {class}", method.name, field.name, field.kind);
            }
        }
    }
}
