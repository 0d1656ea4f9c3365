//! Values of columns in the notation of RFC 7047 section 5.1.
//!
//! A scalar is a set of exactly one atom, as the RFC lets it be written; so there are two shapes only.

use crate::schema::{BaseType, ColumnType};
use serde_json::{Value as Json, json};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// A row: columns by name.
pub type Row = BTreeMap<String, Value>;

/// A `real` column's number, in the total order of IEEE 754 so that it can be in a set. Numbers of many digits are read
/// to within one unit in the last place, so a guard (`Transaction::expect`) on a real column may fail for no reason.
#[derive(Debug, Clone, Copy)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Real {}
impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Real {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Atom {
    Integer(i64),
    Real(Real),
    Boolean(bool),
    String(String),
    Uuid(Uuid),
    /// The row that an `insert` of the same transaction makes.
    NamedUuid(String),
}

impl Atom {
    fn from_json(json: &Json) -> Result<Self, String> {
        match json {
            Json::Bool(value) => Ok(Self::Boolean(*value)),
            Json::String(value) => Ok(Self::String(value.clone())),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(value), _) => Ok(Self::Integer(value)),
                (None, Some(value)) => Ok(Self::Real(Real(value))),
                (None, None) => Err(format!("no number: {number}")),
            },
            Json::Array(pair) => match pair.as_slice() {
                [Json::String(tag), Json::String(text)] if tag == "uuid" => {
                    text.parse().map(Self::Uuid).map_err(|error| format!("no UUID: `{text}`: {error}"))
                }
                [Json::String(tag), Json::String(text)] if tag == "named-uuid" => Ok(Self::NamedUuid(text.clone())),
                _ => Err(format!("no atom: {json}")),
            },
            _ => Err(format!("no atom: {json}")),
        }
    }

    fn to_json(&self) -> Json {
        match self {
            Self::Integer(value) => json!(value),
            Self::Real(Real(value)) => json!(value),
            Self::Boolean(value) => json!(value),
            Self::String(value) => json!(value),
            Self::Uuid(value) => json!(["uuid", value.to_string()]),
            Self::NamedUuid(name) => json!(["named-uuid", name]),
        }
    }

    /// JSON writes the real 1.0 as 1: only the column knows.
    fn of_type(self, base: BaseType) -> Self {
        match (self, base) {
            #[allow(clippy::cast_precision_loss)] // a real column cannot hold more than the JSON number had
            (Self::Integer(value), BaseType::Real) => Self::Real(Real(value as f64)),
            (atom, _) => atom,
        }
    }
}

impl From<&str> for Atom {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}
impl From<String> for Atom {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}
impl From<i64> for Atom {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}
impl From<bool> for Atom {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}
impl From<Uuid> for Atom {
    fn from(value: Uuid) -> Self {
        Self::Uuid(value)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Set(BTreeSet<Atom>),
    Map(BTreeMap<Atom, Atom>),
}

impl Value {
    pub fn empty_set() -> Self {
        Self::Set(BTreeSet::new())
    }

    pub fn set<A: Into<Atom>>(atoms: impl IntoIterator<Item = A>) -> Self {
        Self::Set(atoms.into_iter().map(Into::into).collect())
    }

    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// Without a schema a number without a fraction is an integer.
    pub fn from_json(json: &Json) -> Result<Self, String> {
        if let Json::Array(tagged) = json
            && let [Json::String(tag), Json::Array(items)] = tagged.as_slice()
        {
            match tag.as_str() {
                "set" => return items.iter().map(Atom::from_json).collect::<Result<_, _>>().map(Self::Set),
                "map" => return items.iter().map(pair_from_json).collect::<Result<_, _>>().map(Self::Map),
                _ => {}
            }
        }
        Ok(Self::Set(BTreeSet::from([Atom::from_json(json)?])))
    }

    pub fn typed_from_json(json: &Json, column: &ColumnType) -> Result<Self, String> {
        match (Self::from_json(json)?, column.value) {
            (Self::Set(atoms), None) => Ok(Self::Set(atoms.into_iter().map(|atom| atom.of_type(column.key)).collect())),
            (Self::Map(pairs), Some(value)) => {
                Ok(Self::Map(pairs.into_iter().map(|(k, v)| (k.of_type(column.key), v.of_type(value))).collect()))
            }
            _ => Err(format!("a set where the schema has a map, or the reverse: {json}")),
        }
    }

    pub fn to_json(&self) -> Json {
        match self {
            Self::Set(atoms) => match atoms.first() {
                Some(only) if atoms.len() == 1 => only.to_json(),
                _ => json!(["set", atoms.iter().map(Atom::to_json).collect::<Vec<_>>()]),
            },
            Self::Map(pairs) => {
                json!(["map", pairs.iter().map(|(k, v)| json!([k.to_json(), v.to_json()])).collect::<Vec<_>>()])
            }
        }
    }

    /// The atom of a scalar, or of an optional that has one.
    pub fn only(&self) -> Option<&Atom> {
        match self {
            Self::Set(atoms) if atoms.len() == 1 => atoms.first(),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self.only() {
            Some(Atom::String(text)) => Some(text),
            _ => None,
        }
    }

    pub fn as_integer(&self) -> Option<i64> {
        match self.only() {
            Some(Atom::Integer(value)) => Some(*value),
            _ => None,
        }
    }

    /// What a map of strings has for `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        match self {
            Self::Map(pairs) => match pairs.get(&Atom::from(key)) {
                Some(Atom::String(text)) => Some(text),
                _ => None,
            },
            Self::Set(_) => None,
        }
    }

    /// The rows that a set of references names.
    pub fn uuids(&self) -> impl Iterator<Item = Uuid> + '_ {
        let atoms = match self {
            Self::Set(atoms) => Some(atoms.iter()),
            Self::Map(_) => None,
        };
        atoms.into_iter().flatten().filter_map(|atom| match atom {
            Atom::Uuid(uuid) => Some(*uuid),
            _ => None,
        })
    }
}

impl<A: Into<Atom>> From<A> for Value {
    fn from(atom: A) -> Self {
        Self::Set(BTreeSet::from([atom.into()]))
    }
}

fn pair_from_json(json: &Json) -> Result<(Atom, Atom), String> {
    match json.as_array().map(Vec::as_slice) {
        Some([key, value]) => Ok((Atom::from_json(key)?, Atom::from_json(value)?)),
        _ => Err(format!("no pair of a map: {json}")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scalars_sets_and_maps_are_told_apart() {
        let scalar = Value::from_json(&json!("set")).expect("a string");
        assert_eq!(scalar.as_str(), Some("set"));
        assert_eq!(Value::from_json(&json!(["set", []])).expect("a set"), Value::empty_set());
        let map = Value::from_json(&json!(["map", [["a", "b"]]])).expect("a map");
        assert_eq!(map.get("a"), Some("b"));
        let uuid = "6fd0b0a5-7b0e-4b0e-8f4b-5a6a3b6f6d1a";
        let reference = Value::from_json(&json!(["uuid", uuid])).expect("a reference");
        assert_eq!(reference.uuids().map(|u| u.to_string()).collect::<Vec<_>>(), [uuid]);
        for wrong in [json!(["uuid", "x"]), json!(["map", [["a"]]]), json!({}), json!(null), json!(["set", [[]]])] {
            Value::from_json(&wrong).expect_err("refused");
        }
    }

    pub(crate) fn atom(base: BaseType) -> BoxedStrategy<Atom> {
        match base {
            BaseType::Integer => any::<i64>().prop_map(Atom::Integer).boxed(),
            BaseType::Real => any::<i32>().prop_map(|value| Atom::Real(Real(f64::from(value) / 8.0))).boxed(),
            BaseType::Boolean => any::<bool>().prop_map(Atom::Boolean).boxed(),
            BaseType::String => "[a-d]{0,2}".prop_map(Atom::String).boxed(),
            BaseType::Uuid => (0u128..9).prop_map(|value| Atom::Uuid(Uuid::from_u128(value))).boxed(),
        }
    }

    pub(crate) fn value(column: ColumnType) -> BoxedStrategy<Value> {
        let max = column.max.unwrap_or(6) as usize;
        let size = column.min as usize..=max;
        match column.value {
            None => prop::collection::btree_set(atom(column.key), size).prop_map(Value::Set).boxed(),
            Some(base) => prop::collection::btree_map(atom(column.key), atom(base), size).prop_map(Value::Map).boxed(),
        }
    }

    proptest! {
        #[test]
        fn values_survive_the_wire(
            (column, value) in crate::schema::tests::column().prop_flat_map(|c| (Just(c.clone()), value(c)))
        ) {
            let text = value.to_json().to_string();
            let back: Json = serde_json::from_str(&text).expect("our own JSON");
            prop_assert_eq!(Value::typed_from_json(&back, &column).expect("our own value"), value);
        }
    }
}
