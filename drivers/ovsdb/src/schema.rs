//! A database's schema (RFC 7047 section 3.2), as `get_schema` gives it: which tables and columns this server has, and
//! the types that tell how a difference is to be applied.

use crate::value::Value;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseSchema {
    pub name: String,
    pub version: String,
    /// Tables, and in them columns.
    pub tables: BTreeMap<String, BTreeMap<String, ColumnType>>,
}

/// `<base-type>` without its constraints: the server enforces those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseType {
    Integer,
    Real,
    Boolean,
    String,
    Uuid,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnType {
    pub key: BaseType,
    /// Present in maps.
    pub value: Option<BaseType>,
    pub min: u32,
    /// `None` is "unlimited".
    pub max: Option<u32>,
}

impl ColumnType {
    /// Whether an update2 `modify` holds a difference (else: the new value).
    pub fn is_composite(&self) -> bool {
        self.max.is_none_or(|max| max > 1)
    }

    /// RFC 7047 section 5.2.1: what a column has that an insert does not name.
    pub fn default_value(&self) -> Value {
        if self.value.is_some() {
            return Value::Map(BTreeMap::new());
        }
        if self.min == 0 {
            return Value::Set(BTreeSet::new());
        }
        match self.key {
            BaseType::Integer => Value::from(0),
            BaseType::Real => Value::from(crate::value::Atom::Real(crate::value::Real(0.0))),
            BaseType::Boolean => Value::from(false),
            BaseType::String => Value::from(""),
            BaseType::Uuid => Value::from(uuid::Uuid::nil()),
        }
    }

    fn from_json(json: &Json) -> Result<Self, String> {
        if json.is_string() {
            return Ok(Self { key: base(json)?, value: None, min: 1, max: Some(1) });
        }
        let bound = |name: &str| json.get(name).and_then(Json::as_u64).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let unlimited = json.get("max").and_then(Json::as_str) == Some("unlimited");
        Ok(Self {
            key: base(json.get("key").ok_or_else(|| format!("a column type without a key: {json}"))?)?,
            value: json.get("value").map(base).transpose()?,
            min: bound("min").unwrap_or(1),
            max: if unlimited { None } else { Some(bound("max").unwrap_or(1)) },
        })
    }
}

fn base(json: &Json) -> Result<BaseType, String> {
    match json.as_str().or_else(|| json.get("type").and_then(Json::as_str)) {
        Some("integer") => Ok(BaseType::Integer),
        Some("real") => Ok(BaseType::Real),
        Some("boolean") => Ok(BaseType::Boolean),
        Some("string") => Ok(BaseType::String),
        Some("uuid") => Ok(BaseType::Uuid),
        _ => Err(format!("no base type: {json}")),
    }
}

impl DatabaseSchema {
    pub fn from_json(json: &Json) -> Result<Self, String> {
        let text = |name: &str| json.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
        let tables = json.get("tables").and_then(Json::as_object).ok_or("a schema without tables")?;
        let mut schema = Self { name: text("name"), version: text("version"), tables: BTreeMap::new() };
        for (table, definition) in tables {
            let columns = definition.get("columns").and_then(Json::as_object);
            let columns = columns.ok_or_else(|| format!("table {table} without columns"))?;
            let mut types = BTreeMap::new();
            for (column, definition) in columns {
                let of = definition.get("type").ok_or_else(|| format!("{table}.{column} without a type"))?;
                types.insert(column.clone(), ColumnType::from_json(of).map_err(|e| format!("{table}.{column}: {e}"))?);
            }
            schema.tables.insert(table.clone(), types);
        }
        Ok(schema)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn types_are_read_in_all_their_notations() {
        let of = |json: Json| ColumnType::from_json(&json).expect("valid");
        assert_eq!(of(json!("string")), ColumnType { key: BaseType::String, value: None, min: 1, max: Some(1) });
        let set = of(json!({"key": {"type": "uuid", "refTable": "Port"}, "min": 0, "max": "unlimited"}));
        assert_eq!(set, ColumnType { key: BaseType::Uuid, value: None, min: 0, max: None });
        let map = of(json!({"key": "string", "value": "string", "min": 0, "max": "unlimited"}));
        assert_eq!(map.value, Some(BaseType::String));
        assert!(map.is_composite());
        let optional = of(json!({"key": {"type": "integer", "minInteger": 0}, "min": 0, "max": 1}));
        assert!(!optional.is_composite());
        assert_eq!(optional.default_value(), Value::empty_set());
        ColumnType::from_json(&json!({"key": "blob"})).expect_err("an unknown type");
    }

    pub(crate) fn column() -> impl Strategy<Value = ColumnType> {
        let base = || {
            prop::sample::select(vec![
                BaseType::Integer,
                BaseType::Real,
                BaseType::Boolean,
                BaseType::String,
                BaseType::Uuid,
            ])
        };
        // A set of booleans has at most two members, so nothing here asks for more than one.
        (base(), prop::option::of(base()), 0u32..2, prop::option::of(1u32..4)).prop_map(|(key, value, min, max)| {
            ColumnType { key, value, min, max: if key == BaseType::Boolean { Some(1) } else { max } }
        })
    }
}
