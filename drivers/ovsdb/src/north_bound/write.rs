//! A change as one transaction: first everything that it rests on (`wait`, RFC 7047 section 5.2.6), then what it does.
//!
//! Rows are named by UUID, never searched for, but for what must not be there yet: the server looks at every row of a
//! table for that, so it is asked of root rows alone. A child's guard is the set that it joins.

use super::found::Copy;
use super::{IDS, NorthBoundError, expect_row};
use crate::schema::DatabaseSchema;
use crate::session::View;
use crate::transact::{Condition, Mutation, Transaction};
use crate::value::{Atom, Row, Value};
use planner::network::rows::{self, Cell, Change, Found, Membership, RowId, SITE, Table, UID, Update};
use ports::{ErrorClass, PortError};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The change in a word, for errors and for the database's own log.
pub(super) fn what(change: &Change) -> String {
    let rows = change.inserts.iter().chain(change.updates.iter().map(|update| &update.after));
    let row = rows.chain(change.deletes.iter().map(|found| &found.row)).next();
    let kind = row.and_then(|row| row.external_ids.get(rows::KIND)).map_or("object", String::as_str);
    let uid = row.map_or("", |row| row.id.uid.as_str());
    let [inserts, updates, deletes] = [change.inserts.len(), change.updates.len(), change.deletes.len()];
    format!("{kind} {uid}: {inserts} rows to insert, {updates} to update, {deletes} to delete")
}

/// `transaction` has the guard of the leader already.
pub(super) fn transaction(
    transaction: Transaction,
    view: &View,
    what: &str,
    change: &Change,
) -> Result<Transaction, NorthBoundError> {
    let made = BTreeMap::new();
    let mut writer =
        Writer { copy: Copy::of(view), schema: &view.schema, what, transaction, made, sets: BTreeMap::new() };
    writer.guard(change)?;
    // Root rows first, since others refer to them; which rows are in a set is said when all are there.
    let (roots, children): (Vec<_>, Vec<_>) = change.inserts.iter().partition(|row| row.table.is_root());
    for row in roots.into_iter().chain(children) {
        writer.insert(row)?;
    }
    for update in &change.updates {
        writer.update(update)?;
    }
    for row in &change.inserts {
        writer.join(&row.id, row.table, row.member_of.iter())?;
    }
    for update in &change.updates {
        writer.join(&update.after.id, update.after.table, update.joins())?;
        writer.leave(update)?;
    }
    for found in &change.deletes {
        writer.leave_all(found)?;
    }
    writer.mutate_sets();
    for found in change.deletes.iter().filter(|found| found.row.table.is_root()) {
        let (uuid, row, _) = writer.unchanged(found)?;
        writer.keeps_nobody(found, row)?;
        writer.transaction.delete(found.row.table.name(), &[Condition::row(uuid)]);
    }
    writer.transaction.comment(&format!("metalplane: {what}"));
    Ok(writer.transaction)
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Set {
    table: String,
    column: String,
    row: Atom,
}

struct Writer<'a> {
    copy: Copy<'a>,
    schema: &'a DatabaseSchema,
    what: &'a str,
    transaction: Transaction,
    /// What is inserted, as later operations name it.
    made: BTreeMap<(Table, RowId), Atom>,
    /// Who joins and who leaves.
    sets: BTreeMap<Set, (BTreeSet<Atom>, BTreeSet<Atom>)>,
}

impl<'a> Writer<'a> {
    fn guard(&mut self, change: &Change) -> Result<(), NorthBoundError> {
        for update in &change.updates {
            let (uuid, row, _) = self.unchanged(&update.before)?;
            let ids = (update.before.row.external_ids != update.after.external_ids).then_some(IDS);
            self.expect(&update.before, uuid, row, update.columns().map(|(column, _)| column).chain(ids));
        }
        for found in &change.deletes {
            let (uuid, row, _) = self.unchanged(found)?;
            let sets = found.row.table.sets().iter().map(|(column, _)| *column);
            self.expect(found, uuid, row, found.row.table.columns().iter().copied().chain(sets));
        }
        let made: BTreeSet<(Table, &RowId)> = change.inserts.iter().map(|row| (row.table, &row.id)).collect();
        for row in change.inserts.iter().filter(|row| row.table.is_root() && !row.table.has_unique_name()) {
            let ids = row.external_ids.iter().filter(|(key, _)| [SITE, UID, rows::PART].contains(&key.as_str()));
            let same = Value::map(ids.map(|(key, value)| (key.as_str(), value.as_str())));
            self.transaction.expect(row.table.name(), &[Condition::includes(IDS, same)], &["_uuid"], &[]);
        }
        // Sets that are joined: they must be there, and one of rows without names must be as it was read.
        let mut joined: BTreeMap<&Membership, bool> = BTreeMap::new();
        for row in &change.inserts {
            let nameless = !row.table.is_root() && !row.table.has_unique_name();
            row.member_of.iter().for_each(|set| *joined.entry(set).or_default() |= nameless);
        }
        change.updates.iter().flat_map(Update::joins).for_each(|set| *joined.entry(set).or_default() |= false);
        for (set, as_read) in joined.into_iter().filter(|(set, _)| !made.contains(&(set.table, &set.row))) {
            let (uuid, row) = self.copy.row(set.table, &set.row).ok_or_else(|| self.missing(set.table, &set.row))?;
            match row.get(set.column).filter(|_| as_read) {
                Some(members) => {
                    let members = Row::from([(set.column.to_owned(), members.clone())]);
                    self.transaction.expect(set.table.name(), &[Condition::row(uuid)], &[set.column], &[members]);
                }
                None => expect_row(&mut self.transaction, set.table.name(), uuid, []),
            }
        }
        Ok(())
    }

    /// The row is as the change was planned from, in the copy.
    fn unchanged(&self, before: &Found) -> Result<(Uuid, &'a Row, Found), NorthBoundError> {
        let again = self.copy.again(before).filter(|(_, _, now)| now == before);
        again.ok_or_else(|| {
            let (table, uuid) = (before.row.table.name(), &before.uuid);
            NorthBoundError::Contended(format!("{}: somebody has changed {table} {uuid} meanwhile", self.what))
        })
    }

    /// And in the database, as far as these columns go; and it is the same object's still.
    fn expect(&mut self, found: &Found, uuid: Uuid, row: &Row, columns: impl Iterator<Item = &'static str>) {
        let ids = [SITE, UID].map(|key| (key, found.row.external_ids.get(key).map_or("", String::as_str)));
        let ours = [Condition::row(uuid), Condition::includes(IDS, Value::map(ids))];
        let as_read = columns.filter_map(|column| Some((column.to_owned(), row.get(column)?.clone())));
        let mut as_read: Row = as_read.collect();
        as_read.insert("_uuid".to_owned(), Value::from(uuid));
        let columns: Vec<&str> = as_read.keys().map(String::as_str).collect();
        self.transaction.expect(found.row.table.name(), &ours, &columns, std::slice::from_ref(&as_read));
    }

    fn missing(&self, table: Table, id: &RowId) -> NorthBoundError {
        let message = format!("{}: {} '{}' is not there yet", self.what, table.name(), id.name());
        PortError::new(ErrorClass::NotFound, message).into()
    }

    fn named(&self, table: Table, id: &RowId) -> Result<Atom, NorthBoundError> {
        let made = self.made.get(&(table, id.clone())).cloned();
        let there = || self.copy.row(table, id).map(|(uuid, _)| Atom::Uuid(uuid));
        made.or_else(there).ok_or_else(|| self.missing(table, id))
    }

    fn value(&self, table: Table, column: &str, cell: &Cell) -> Result<Option<Value>, NorthBoundError> {
        let Some(of) = self.schema.tables.get(table.name()).and_then(|columns| columns.get(column)) else {
            if *cell == Cell::Empty {
                return Ok(None);
            }
            let (table, version) = (table.name(), &self.schema.version);
            let cause = format!("OVN is too old: its schema {version} has no column {column} in {table}");
            return Err(PortError::new(ErrorClass::Unsupported, format!("{}: {cause}", self.what)).into());
        };
        Ok(Some(match cell {
            Cell::Empty => of.default_value(),
            Cell::Text(text) => Value::from(text.as_str()),
            Cell::Number(number) => Value::from(*number),
            Cell::Texts(texts) => Value::set(texts.iter().map(String::as_str)),
            Cell::Pairs(pairs) => Value::map(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()))),
            Cell::Numbers(pairs) => Value::map(pairs.iter().map(|(key, value)| (key.as_str(), *value))),
            Cell::Row(id) => Value::from(self.named(Table::DhcpOptions, id)?),
            Cell::Foreign => {
                let cause = format!("{} {column}: a row that is not ours is never referred to", table.name());
                return Err(PortError::new(ErrorClass::Invalid, format!("{}: {cause}", self.what)).into());
            }
        }))
    }

    fn insert(&mut self, row: &rows::Row) -> Result<(), NorthBoundError> {
        let mut columns = Row::new();
        for (column, cell) in row.columns.iter().filter(|(_, cell)| **cell != Cell::Empty) {
            columns.extend(self.value(row.table, column, cell)?.map(|value| ((*column).to_owned(), value)));
        }
        columns.insert(IDS.to_owned(), Value::map(row.external_ids.iter().map(|(k, v)| (k.as_str(), v.as_str()))));
        let name = self.transaction.insert(row.table.name(), &columns);
        self.made.insert((row.table, row.id.clone()), name);
        Ok(())
    }

    fn update(&mut self, update: &Update) -> Result<(), NorthBoundError> {
        let (uuid, ..) = self.unchanged(&update.before)?;
        let table = update.after.table;
        let mut columns = Row::new();
        for (column, cell) in update.columns() {
            columns.extend(self.value(table, column, cell)?.map(|value| (column.to_owned(), value)));
        }
        if !columns.is_empty() {
            self.transaction.update(table.name(), &[Condition::row(uuid)], &columns);
        }
        let (before, after) = (&update.before.row.external_ids, &update.after.external_ids);
        if before != after {
            let gone = before.keys().filter(|key| after.get(*key) != before.get(*key)).map(String::as_str);
            let new = after.iter().filter(|(key, value)| before.get(*key) != Some(value));
            let new = new.map(|(key, value)| (key.as_str(), value.as_str()));
            let mutations =
                [Mutation::Delete(IDS.to_owned(), Value::set(gone)), Mutation::Insert(IDS.to_owned(), Value::map(new))];
            self.transaction.mutate(table.name(), &[Condition::row(uuid)], &mutations);
        }
        Ok(())
    }

    fn set(&mut self, of: &Membership) -> Result<&mut (BTreeSet<Atom>, BTreeSet<Atom>), NorthBoundError> {
        let row = self.named(of.table, &of.row)?;
        let set = Set { table: of.table.name().to_owned(), column: of.column.to_owned(), row };
        Ok(self.sets.entry(set).or_default())
    }

    fn join<'b>(
        &mut self,
        id: &RowId,
        table: Table,
        sets: impl Iterator<Item = &'b Membership>,
    ) -> Result<(), NorthBoundError> {
        let member = self.named(table, id)?;
        for set in sets {
            self.set(set)?.0.insert(member.clone());
        }
        Ok(())
    }

    fn leave(&mut self, update: &Update) -> Result<(), NorthBoundError> {
        let (uuid, ..) = self.unchanged(&update.before)?;
        for set in update.leaves() {
            self.set(set)?.1.insert(Atom::Uuid(uuid));
        }
        Ok(())
    }

    /// Out of every set, whoever's: the server deletes a child row that no set names, and refuses that one does.
    fn leave_all(&mut self, found: &Found) -> Result<(), NorthBoundError> {
        let (uuid, ..) = self.unchanged(found)?;
        for holder in self.copy.cache().holders(uuid) {
            let (table, column) = (holder.table.clone(), holder.column.clone());
            let set = Set { table, column, row: Atom::Uuid(holder.row) };
            self.sets.entry(set).or_default().1.insert(Atom::Uuid(uuid));
        }
        Ok(())
    }

    /// The server would delete the ports of others with their switch.
    fn keeps_nobody(&self, found: &Found, row: &Row) -> Result<(), NorthBoundError> {
        let owner = |uuid| self.copy.cache().owner(uuid).map(|(_, uid)| uid).filter(|uid| *uid != found.row.id.uid);
        let sets = found.row.table.sets().iter().filter(|_| found.row.table != Table::PortGroup);
        let mut others = sets.filter_map(|(column, _)| row.get(*column)).flat_map(Value::uuids).filter_map(owner);
        others.next().map_or(Ok(()), |uid| {
            let (table, name) = (found.row.table.name(), found.row.id.name());
            let cause = format!("{table} '{name}' still has rows of {uid}: delete those first");
            Err(PortError::new(ErrorClass::Busy, format!("{}: {cause}", self.what)).into())
        })
    }

    fn mutate_sets(&mut self) {
        for (Set { table, column, row }, (join, leave)) in std::mem::take(&mut self.sets) {
            let mut mutations = Vec::new();
            if !leave.is_empty() {
                mutations.push(Mutation::Delete(column.clone(), Value::Set(leave)));
            }
            if !join.is_empty() {
                mutations.push(Mutation::Insert(column, Value::Set(join)));
            }
            let of = Condition::new("_uuid", crate::transact::Function::Equal, row);
            self.transaction.mutate(&table, &[of], &mutations);
        }
    }
}
