//! A copy of the monitored tables, kept by merging updates.

use crate::index::{Holder, Index, Indexed};
use crate::schema::{ColumnType, DatabaseSchema};
use crate::value::{Row, Value};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Columns of a row as they came.
pub(crate) type RawRow = Map<String, Json>;

/// One row's change in any of the three dialects of `monitor`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// The row as it is now. `complete` rows hold every monitored column, others only what differs from the default.
    Put(RawRow),
    /// A difference to what we have.
    Modify(RawRow),
    Delete,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RowChange {
    pub table: String,
    pub row: Uuid,
    pub change: Change,
}

#[derive(Debug, Clone, Default)]
pub struct Cache {
    tables: BTreeMap<String, BTreeMap<Uuid, Row>>,
    index: Option<Index>,
}

impl Cache {
    pub fn rows(&self, table: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        self.tables.get(table).into_iter().flatten().map(|(uuid, row)| (*uuid, row))
    }

    pub fn row(&self, table: &str, uuid: Uuid) -> Option<&Row> {
        self.tables.get(table)?.get(&uuid)
    }

    pub fn find(&self, table: &str, column: &str, text: &str) -> Option<(Uuid, &Row)> {
        self.rows(table).find(|(_, row)| row.get(column).and_then(Value::as_str) == Some(text))
    }

    pub(crate) fn indexed(indexed: Indexed) -> Self {
        Self { index: Some(Index::new(indexed)), ..Self::default() }
    }

    /// Whom rows belong to, by the index. Without an index there is nobody.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        self.index.iter().flat_map(Index::owners)
    }

    /// The rows of a table that belong to `owner`.
    pub fn rows_of(&self, owner: &str, table: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        let rows = self.index.iter().flat_map(move |index| index.rows_of(owner, table));
        let of_table = self.tables.get(table);
        rows.filter_map(move |uuid| Some((uuid, of_table?.get(&uuid)?)))
    }

    /// The table of a row that belongs to somebody, and to whom.
    pub fn owner(&self, row: Uuid) -> Option<(&str, &str)> {
        self.index.as_ref()?.owner(row)
    }

    /// The indexed sets that name a row.
    pub fn holders(&self, row: Uuid) -> impl Iterator<Item = &Holder> {
        self.index.iter().flat_map(move |index| index.holders(row))
    }

    pub(crate) fn take_touched(&mut self) -> BTreeSet<String> {
        self.index.as_mut().map(Index::take_touched).unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        self.tables.clear();
        if let Some(index) = &mut self.index {
            index.clear();
        }
    }

    /// An error means that the copy no longer matches the server's: it has to be fetched afresh.
    pub(crate) fn apply(
        &mut self,
        changes: Vec<RowChange>,
        schema: &DatabaseSchema,
        monitored: &BTreeMap<String, Vec<String>>,
    ) -> Result<(), String> {
        for RowChange { table, row: uuid, change } in changes {
            let types = schema.tables.get(&table).ok_or_else(|| format!("an update of the unknown table {table}"))?;
            let rows = self.tables.entry(table.clone()).or_default();
            match change {
                Change::Put(raw) => {
                    let mut row = Row::new();
                    for column in monitored.get(&table).into_iter().flatten() {
                        if let Some(of) = types.get(column) {
                            row.insert(column.clone(), of.default_value());
                        }
                    }
                    row.extend(typed(raw, types)?);
                    let before = rows.insert(uuid, row);
                    if let Some(index) = &mut self.index {
                        before.iter().for_each(|row| index.toggle_all(&table, uuid, row));
                        index.own(&table, uuid, rows.get(&uuid));
                        rows.get(&uuid).into_iter().for_each(|row| index.toggle_all(&table, uuid, row));
                    }
                }
                Change::Modify(raw) => {
                    let row =
                        rows.get_mut(&uuid).ok_or_else(|| format!("a change of the unknown row {table} {uuid}"))?;
                    let mut own = false;
                    for (column, difference) in typed(raw, types)? {
                        let of = &types[&column];
                        let old = row.remove(&column).unwrap_or_else(|| of.default_value());
                        match &mut self.index {
                            Some(index) if index.is_set(&table, &column) => {
                                index.toggle(&table, &column, uuid, &difference);
                            }
                            _ => own = true,
                        }
                        row.insert(column, apply_difference(old, difference, of)?);
                    }
                    if let Some(index) = self.index.as_mut().filter(|_| own) {
                        index.own(&table, uuid, Some(row));
                    }
                }
                Change::Delete => {
                    let before = rows.remove(&uuid);
                    if let Some(index) = &mut self.index {
                        before.iter().for_each(|row| index.toggle_all(&table, uuid, row));
                        index.own(&table, uuid, None);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Columns that the schema does not have (`_version` and the like) are skipped.
fn typed(raw: RawRow, types: &BTreeMap<String, ColumnType>) -> Result<Row, String> {
    let mut row = Row::new();
    for (column, json) in raw {
        if let Some(of) = types.get(&column) {
            let value = Value::typed_from_json(&json, of).map_err(|error| format!("column {column}: {error}"))?;
            row.insert(column, value);
        }
    }
    Ok(row)
}

/// ovsdb-server(7), "update2": a set's difference holds the members to add or to remove; a map's the pairs to add, to
/// set, or (equal to the old pair) to remove; any other column's is the new value.
fn apply_difference(old: Value, difference: Value, of: &ColumnType) -> Result<Value, String> {
    if !of.is_composite() {
        return Ok(difference);
    }
    match (old, difference) {
        // In place: a set may have thousands of members, and a difference mostly one.
        (Value::Set(mut old), Value::Set(difference)) => {
            for atom in difference {
                if !old.remove(&atom) {
                    old.insert(atom);
                }
            }
            Ok(Value::Set(old))
        }
        (Value::Map(mut old), Value::Map(difference)) => {
            for (key, value) in difference {
                if old.get(&key) == Some(&value) {
                    old.remove(&key);
                } else {
                    old.insert(key, value);
                }
            }
            Ok(Value::Map(old))
        }
        _ => Err("a difference of another shape than the column".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The server's side of `apply_difference`, from the same manual page.
    fn difference(old: &Value, new: &Value, of: &ColumnType) -> Value {
        match (old, new) {
            (Value::Set(old), Value::Set(new)) if of.is_composite() => Value::Set(old ^ new),
            (Value::Map(old), Value::Map(new)) if of.is_composite() => {
                let gone = old.iter().filter(|(key, _)| !new.contains_key(key));
                let changed = new.iter().filter(|(key, value)| old.get(key) != Some(value));
                Value::Map(gone.chain(changed).map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            _ => new.clone(),
        }
    }

    fn column_and_two_values() -> impl Strategy<Value = (ColumnType, Value, Value)> {
        crate::schema::tests::column().prop_flat_map(|of| {
            let value = || crate::value::tests::value(of.clone());
            (Just(of.clone()), value(), value())
        })
    }

    proptest! {
        #[test]
        fn the_difference_of_two_values_leads_from_one_to_the_other((of, old, new) in column_and_two_values()) {
            let merged = apply_difference(old.clone(), difference(&old, &new, &of), &of).expect("same shape");
            prop_assert_eq!(merged, new);
        }
    }
}
