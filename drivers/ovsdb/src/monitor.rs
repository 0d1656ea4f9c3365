//! The three dialects of monitoring, newest first.
//!
//! | method | asked with | updates come as | after a reconnect |
//! |---|---|---|---|
//! | `monitor_cond_since` (ovsdb-server(7) 4.1.15) | the last transaction's id | `update3`, differences | only what was missed |
//! | `monitor_cond` (ovsdb-server(7) 4.1.12) | – | `update2`, differences | everything again |
//! | `monitor` (RFC 7047 section 4.1.5) | – | `update`, whole rows (section 4.1.6) | everything again |
//!
//! Of a table with a condition (`where`) the newer two tell of the rows that meet it: one that comes to meet it is an `insert`, one that ceases to
//! a `delete`. RFC 7047 has no conditions, so a reader of the copy has to expect other rows, too. What a session asks for is the same after every
//! reconnect: else the rows between the last transaction's id and now would not be what is missing.

use crate::cache::{Change, RawRow, RowChange};
use crate::schema::DatabaseSchema;
use crate::transact::Condition;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    ConditionalSince,
    Conditional,
    Plain,
}

/// The id of our one monitor on a connection.
const MONITOR: &str = "metalplane";

impl Dialect {
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::ConditionalSince => "monitor_cond_since",
            Self::Conditional => "monitor_cond",
            Self::Plain => "monitor",
        }
    }

    /// What to try with a server that does not know this one.
    pub(crate) fn older(self) -> Option<Self> {
        match self {
            Self::ConditionalSince => Some(Self::Conditional),
            Self::Conditional => Some(Self::Plain),
            Self::Plain => None,
        }
    }

    pub(crate) fn params(
        self,
        database: &str,
        monitored: &BTreeMap<String, Vec<String>>,
        conditions: &BTreeMap<String, Condition>,
        since: Option<Uuid>,
    ) -> Json {
        let requests: Map<String, Json> = monitored
            .iter()
            .map(|(table, columns)| {
                let mut request = json!({"columns": columns});
                // RFC 7047 has one request for each table, ovsdb-server(7) an array of them.
                if self == Self::Plain {
                    return (table.clone(), request);
                }
                // Of a column that the schema lacks the server would refuse the whole request.
                let condition = conditions.get(table).filter(|of| columns.iter().any(|column| column == of.column()));
                if let Some(condition) = condition {
                    request["where"] = json!([condition.to_json()]);
                }
                (table.clone(), json!([request]))
            })
            .collect();
        match self {
            Self::ConditionalSince => json!([database, MONITOR, requests, since.unwrap_or_default().to_string()]),
            Self::Conditional | Self::Plain => json!([database, MONITOR, requests]),
        }
    }
}

/// What of `wanted` the server's schema has. An empty list of columns means all of them.
pub(crate) fn known(wanted: &BTreeMap<String, Vec<String>>, schema: &DatabaseSchema) -> BTreeMap<String, Vec<String>> {
    let mut monitored = BTreeMap::new();
    for (table, columns) in wanted {
        let Some(types) = schema.tables.get(table) else {
            tracing::info!(table, version = schema.version, "the OVSDB server has no such table");
            continue;
        };
        let columns = if columns.is_empty() {
            types.keys().cloned().collect()
        } else {
            columns.iter().filter(|column| types.contains_key(*column)).cloned().collect()
        };
        monitored.insert(table.clone(), columns);
    }
    monitored
}

/// The reply to a monitor request, or one notification.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Update {
    pub changes: Vec<RowChange>,
    /// Everything that was known before is void: `changes` is the whole content.
    pub afresh: bool,
    pub last_transaction: Option<Uuid>,
}

pub(crate) fn reply(dialect: Dialect, reply: Json) -> Result<Update, String> {
    match dialect {
        Dialect::ConditionalSince => match reply.as_array().map(Vec::as_slice) {
            Some([Json::Bool(found), Json::String(last), updates]) => {
                let last_transaction = last.parse().ok();
                Ok(Update { changes: differences(updates)?, afresh: !found, last_transaction })
            }
            _ => Err(format!("no [found, last-txn-id, updates] but {reply}")),
        },
        Dialect::Conditional => Ok(Update { changes: differences(&reply)?, afresh: true, last_transaction: None }),
        Dialect::Plain => Ok(Update { changes: whole_rows(&reply)?, afresh: true, last_transaction: None }),
    }
}

/// `None` for a notification that is not about our monitor's content.
pub(crate) fn notification(method: &str, params: &Json) -> Result<Option<Update>, String> {
    let params = params.as_array().map(Vec::as_slice).unwrap_or_default();
    let (changes, last_transaction) = match (method, params) {
        ("update3", [_, Json::String(last), updates]) => (differences(updates)?, last.parse().ok()),
        ("update2", [_, updates]) => (differences(updates)?, None),
        ("update", [_, updates]) => (whole_rows(updates)?, None),
        ("update" | "update2" | "update3", _) => return Err(format!("`{method}` with other parameters")),
        // The schema changed or the database left: the session has to begin again.
        ("monitor_canceled", _) => return Err("the server cancelled the monitor".to_owned()),
        _ => return Ok(None),
    };
    Ok(Some(Update { changes, afresh: false, last_transaction }))
}

/// `<table-updates2>`.
fn differences(updates: &Json) -> Result<Vec<RowChange>, String> {
    each_row(updates, |row| {
        let (kind, columns) = row.as_object()?.iter().next()?;
        let raw = || columns.as_object().cloned();
        match kind.as_str() {
            "initial" | "insert" => raw().map(Change::Put),
            "modify" => raw().map(Change::Modify),
            "delete" => Some(Change::Delete),
            _ => None,
        }
    })
}

/// `<table-updates>`, RFC 7047 section 4.1.6.
fn whole_rows(updates: &Json) -> Result<Vec<RowChange>, String> {
    each_row(updates, |row| match row.get("new") {
        Some(new) => new.as_object().cloned().map(Change::Put),
        None => row.get("old").map(|_| Change::Delete),
    })
}

fn each_row(updates: &Json, read: impl Fn(&Json) -> Option<Change>) -> Result<Vec<RowChange>, String> {
    let none = RawRow::new();
    let mut changes = Vec::new();
    let tables = match updates {
        Json::Null => &none,
        tables => tables.as_object().ok_or_else(|| format!("no table updates: {tables}"))?,
    };
    for (table, rows) in tables {
        for (uuid, row) in rows.as_object().ok_or_else(|| format!("no row updates: {rows}"))? {
            let change = read(row).ok_or_else(|| format!("no update of a row: {row}"))?;
            let row = uuid.parse().map_err(|error| format!("row `{uuid}` of {table}: {error}"))?;
            changes.push(RowChange { table: table.clone(), row, change });
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    #[test]
    fn a_condition_is_asked_for_where_the_server_can() {
        let columns = |all: &[&str]| all.iter().map(|&column| column.to_owned()).collect::<Vec<_>>();
        let monitored = [("ACL", ["ids", "match"].as_slice()), ("NAT", &["type"]), ("Port", &["ids"])];
        let monitored = monitored.into_iter().map(|(table, all)| (table.to_owned(), columns(all))).collect();
        let ours = Condition::includes("ids", Value::map([("site", "x")]));
        let conditions = ["ACL", "NAT", "QoS"].into_iter().map(|table| (table.to_owned(), ours.clone())).collect();
        let asked = |dialect: Dialect| dialect.params("db", &monitored, &conditions, None)[2].clone();
        let pair = json!(["ids", "includes", ["map", [["site", "x"]]]]);
        for dialect in [Dialect::ConditionalSince, Dialect::Conditional] {
            assert_eq!(
                asked(dialect),
                json!({
                    "ACL": [{"columns": ["ids", "match"], "where": [pair]}],
                    "NAT": [{"columns": ["type"]}],
                    "Port": [{"columns": ["ids"]}],
                })
            );
        }
        assert_eq!(asked(Dialect::Plain)["ACL"], json!({"columns": ["ids", "match"]}));
    }
}
