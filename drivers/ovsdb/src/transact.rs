//! Transactions: RFC 7047 section 4.1.3 and the operations of section 5.2.
//!
//! Operations of one transaction take effect together or not at all. A `wait` with a time limit of zero makes the rest
//! conditional on what was read before: optimistic locking without a lock.

use crate::Error;
use crate::value::{Atom, Row, Value};
use serde_json::{Map, Value as Json, json};
use uuid::Uuid;

/// `<function>`, section 5.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Equal,
    NotEqual,
    Includes,
    Excludes,
    Less,
    Greater,
}

impl Function {
    fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Includes => "includes",
            Self::Excludes => "excludes",
            Self::Less => "<",
            Self::Greater => ">",
        }
    }
}

/// `<condition>`, section 5.1. Several on one operation are joined by "and".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    column: String,
    function: Function,
    value: Value,
}

impl Condition {
    pub fn new(column: &str, function: Function, value: impl Into<Value>) -> Self {
        Self { column: column.to_owned(), function, value: value.into() }
    }

    pub fn row(uuid: Uuid) -> Self {
        Self::new("_uuid", Function::Equal, uuid)
    }

    /// For columns that hold maps or sets.
    pub fn includes(column: &str, value: Value) -> Self {
        Self { column: column.to_owned(), function: Function::Includes, value }
    }

    pub(crate) fn column(&self) -> &str {
        &self.column
    }

    pub(crate) fn to_json(&self) -> Json {
        json!([self.column, self.function.as_str(), self.value.to_json()])
    }
}

/// `<mutation>`, section 5.1: of its mutators those for sets and maps, and addition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mutation {
    Insert(String, Value),
    Delete(String, Value),
    Add(String, i64),
}

impl Mutation {
    fn to_json(&self) -> Json {
        match self {
            Self::Insert(column, value) => json!([column, "insert", value.to_json()]),
            Self::Delete(column, value) => json!([column, "delete", value.to_json()]),
            Self::Add(column, value) => json!([column, "+=", value]),
        }
    }
}

/// What one operation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Inserted(Uuid),
    /// Rows that an update, mutate or delete touched.
    Count(u64),
    Rows(Vec<Row>),
    Done,
}

#[derive(Debug, Clone)]
pub struct Transaction {
    database: String,
    operations: Vec<Json>,
}

impl Transaction {
    pub fn new(database: &str) -> Self {
        Self { database: database.to_owned(), operations: Vec::new() }
    }

    /// Section 5.2.1. The answer stands for the new row in later operations of this transaction.
    pub fn insert(&mut self, table: &str, row: &Row) -> Atom {
        let name = format!("row{}", self.operations.len());
        self.push(json!({"op": "insert", "table": table, "row": row_to_json(row), "uuid-name": name}));
        Atom::NamedUuid(name)
    }

    /// Section 5.2.2.
    pub fn select(&mut self, table: &str, conditions: &[Condition], columns: &[&str]) {
        self.push(json!({"op": "select", "table": table, "where": conditions_to_json(conditions), "columns": columns}));
    }

    /// Section 5.2.3.
    pub fn update(&mut self, table: &str, conditions: &[Condition], row: &Row) {
        let row = row_to_json(row);
        self.push(json!({"op": "update", "table": table, "where": conditions_to_json(conditions), "row": row}));
    }

    /// Section 5.2.4.
    pub fn mutate(&mut self, table: &str, conditions: &[Condition], mutations: &[Mutation]) {
        let mutations: Vec<Json> = mutations.iter().map(Mutation::to_json).collect();
        self.push(json!({
            "op": "mutate", "table": table, "where": conditions_to_json(conditions), "mutations": mutations,
        }));
    }

    /// Section 5.2.5.
    pub fn delete(&mut self, table: &str, conditions: &[Condition]) {
        self.push(json!({"op": "delete", "table": table, "where": conditions_to_json(conditions)}));
    }

    /// Section 5.2.6, with a time limit of zero: unless `columns` of the rows that match are exactly `rows` now, the
    /// transaction fails with "timed out".
    pub fn expect(&mut self, table: &str, conditions: &[Condition], columns: &[&str], rows: &[Row]) {
        let rows: Vec<Json> = rows.iter().map(row_to_json).collect();
        self.push(json!({
            "op": "wait", "timeout": 0, "table": table, "where": conditions_to_json(conditions),
            "columns": columns, "until": "==", "rows": rows,
        }));
    }

    /// Section 5.2.9: what the server writes beside the change in its database file.
    pub fn comment(&mut self, text: &str) {
        self.push(json!({"op": "comment", "comment": text}));
    }

    fn push(&mut self, operation: Json) {
        self.operations.push(operation);
    }

    pub(crate) fn params(&self) -> Json {
        let mut params = vec![json!(self.database)];
        params.extend(self.operations.iter().cloned());
        Json::Array(params)
    }

    /// Reads the reply: one element for each operation, or fewer and an error, or all and one more with the error of
    /// the commit itself.
    pub(crate) fn outcomes(&self, reply: &Json, address: &str) -> Result<Vec<Outcome>, Error> {
        let protocol = |cause: String| Error::Protocol { address: address.to_owned(), cause };
        let elements = reply.as_array().ok_or_else(|| protocol(format!("no array in answer to transact: {reply}")))?;
        for (index, element) in elements.iter().enumerate() {
            if let Some(error) = element.get("error").filter(|error| !error.is_null()) {
                let details = element.get("details").and_then(Json::as_str).map(str::to_owned);
                let error = error.as_str().map_or_else(|| error.to_string(), str::to_owned);
                return Err(Error::Operation { index, operation: self.step(index), error, details });
            }
        }
        if elements.len() != self.operations.len() {
            let (got, sent) = (elements.len(), self.operations.len());
            return Err(protocol(format!("{got} results for {sent} operations")));
        }
        elements.iter().map(|element| outcome(element).map_err(protocol)).collect()
    }

    fn step(&self, index: usize) -> String {
        match self.operations.get(index) {
            None => "commit".to_owned(),
            Some(operation) => {
                let word = |name: &str| operation.get(name).and_then(Json::as_str).unwrap_or_default();
                format!("{} ({} {})", index + 1, word("op"), word("table")).replace(" )", ")")
            }
        }
    }
}

fn outcome(element: &Json) -> Result<Outcome, String> {
    if let Some(uuid) = element.get("uuid") {
        let uuid = Value::from_json(uuid)?.uuids().next();
        return uuid.map(Outcome::Inserted).ok_or_else(|| format!("no UUID in {element}"));
    }
    if let Some(count) = element.get("count").and_then(Json::as_u64) {
        return Ok(Outcome::Count(count));
    }
    if let Some(rows) = element.get("rows").and_then(Json::as_array) {
        return rows.iter().map(row_from_json).collect::<Result<_, _>>().map(Outcome::Rows);
    }
    Ok(Outcome::Done)
}

fn row_from_json(json: &Json) -> Result<Row, String> {
    let columns = json.as_object().ok_or_else(|| format!("no row: {json}"))?;
    columns.iter().map(|(name, value)| Ok((name.clone(), Value::from_json(value)?))).collect()
}

fn row_to_json(row: &Row) -> Json {
    Json::Object(row.iter().map(|(name, value)| (name.clone(), value.to_json())).collect::<Map<_, _>>())
}

fn conditions_to_json(conditions: &[Condition]) -> Vec<Json> {
    conditions.iter().map(Condition::to_json).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ports::ErrorClass;

    fn two_steps() -> Transaction {
        let mut transaction = Transaction::new("db");
        let row = transaction.insert("Port", &Row::from([("name".to_owned(), "p".into())]));
        transaction.mutate("Bridge", &[], &[Mutation::Insert("ports".to_owned(), row.into())]);
        transaction
    }

    #[test]
    fn operations_are_written_as_the_rfc_has_them() {
        assert_eq!(
            two_steps().params(),
            json!(["db",
                {"op": "insert", "table": "Port", "row": {"name": "p"}, "uuid-name": "row0"},
                {"op": "mutate", "table": "Bridge", "where": [], "mutations": [["ports", "insert", ["named-uuid", "row0"]]]},
            ])
        );
    }

    #[test]
    fn outcomes_come_in_the_order_of_the_operations() {
        let uuid = Uuid::from_u128(7);
        let reply = json!([{"uuid": ["uuid", uuid.to_string()]}, {"count": 1}]);
        assert_eq!(two_steps().outcomes(&reply, "s"), Ok(vec![Outcome::Inserted(uuid), Outcome::Count(1)]));
        two_steps().outcomes(&json!([{"count": 1}]), "s").expect_err("a result is missing");
        two_steps().outcomes(&json!({}), "s").expect_err("no array");
    }

    #[test]
    fn the_failed_step_is_named_and_classed() {
        let reply = json!([{}, {"error": "timed out", "details": "\"wait\" timed out"}, null]);
        let error = two_steps().outcomes(&reply, "s").expect_err("a failed step");
        assert_eq!(error.class(), ErrorClass::Busy);
        assert!(error.to_string().contains("2 (mutate Bridge): timed out (\"wait\" timed out)"), "{error}");
        let reply = json!([{}, {}, {"error": "constraint violation", "details": "two rows"}]);
        let error = two_steps().outcomes(&reply, "s").expect_err("a failed commit");
        assert_eq!(error.class(), ErrorClass::Conflict);
        assert!(error.to_string().contains("step commit"), "{error}");
    }
}
