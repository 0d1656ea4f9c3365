//! Rows of the copy by what a column says of them, and by the sets that name them; and whom an update is about.
//!
//! Costs what the update is large, not what the copy is: a difference of a set touches the members that joined or left.

use crate::transact::Condition;
use crate::value::{Row, Value};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// What to index by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indexed {
    /// A column that is a map of texts.
    pub column: String,
    /// Its key whose value names whom a row belongs to.
    pub key: String,
    /// Rows without this pair in the same column belong to nobody.
    pub only: (String, String),
    /// Sets of references, by table. That a member joins or leaves is about the member, not about the row with the set. A table with
    /// sets is copied whole, for a set of anybody's may name a row that belongs to somebody; of one that is named here without a set
    /// only the rows with the pair `only` are copied.
    pub sets: BTreeMap<String, Vec<String>>,
}

impl Indexed {
    /// Of these tables only the rows that meet the condition are copied.
    pub(crate) fn conditions(&self) -> BTreeMap<String, Condition> {
        let (key, value) = &self.only;
        let pair = Value::map([(key.as_str(), value.as_str())]);
        let without_sets = self.sets.iter().filter(|(_, sets)| sets.is_empty());
        without_sets.map(|(table, _)| (table.clone(), Condition::includes(&self.column, pair.clone()))).collect()
    }
}

/// A row with a set that names another row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    pub table: String,
    pub column: String,
    pub row: Uuid,
}

#[derive(Debug, Clone)]
pub(crate) struct Index {
    of: Indexed,
    /// Owner, table, rows.
    owned: BTreeMap<String, BTreeMap<String, BTreeSet<Uuid>>>,
    owners: BTreeMap<Uuid, (String, String)>,
    holders: BTreeMap<Uuid, BTreeSet<Holder>>,
    /// Owners that updates were about.
    touched: BTreeSet<String>,
}

impl Index {
    pub(crate) fn new(of: Indexed) -> Self {
        let (owned, owners, holders, touched) = Default::default();
        Self { of, owned, owners, holders, touched }
    }

    pub(crate) fn owners(&self) -> impl Iterator<Item = &str> {
        self.owned.keys().map(String::as_str)
    }

    pub(crate) fn rows_of(&self, owner: &str, table: &str) -> impl Iterator<Item = Uuid> {
        self.owned.get(owner).and_then(|tables| tables.get(table)).into_iter().flatten().copied()
    }

    /// Table and owner of a row that has one.
    pub(crate) fn owner(&self, row: Uuid) -> Option<(&str, &str)> {
        self.owners.get(&row).map(|(table, owner)| (table.as_str(), owner.as_str()))
    }

    pub(crate) fn holders(&self, row: Uuid) -> impl Iterator<Item = &Holder> {
        self.holders.get(&row).into_iter().flatten()
    }

    pub(crate) fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }

    /// The copy is made afresh: whoever had rows may have none.
    pub(crate) fn clear(&mut self) {
        self.touched.extend(std::mem::take(&mut self.owned).into_keys());
        self.owners.clear();
        self.holders.clear();
    }

    pub(crate) fn is_set(&self, table: &str, column: &str) -> bool {
        self.of.sets.get(table).is_some_and(|columns| columns.iter().any(|known| known == column))
    }

    /// The row is about its owner, before and after.
    pub(crate) fn own(&mut self, table: &str, uuid: Uuid, row: Option<&Row>) {
        let ids = row.and_then(|row| row.get(&self.of.column));
        let ours = ids.filter(|ids| ids.get(&self.of.only.0) == Some(self.of.only.1.as_str()));
        let after = ours.and_then(|ids| ids.get(&self.of.key)).map(str::to_owned);
        if let Some((_, before)) = self.owners.remove(&uuid) {
            if after.as_ref() != Some(&before)
                && let Some(tables) = self.owned.get_mut(&before)
            {
                tables.get_mut(table).map(|rows| rows.remove(&uuid));
                tables.retain(|_, rows| !rows.is_empty());
                if tables.is_empty() {
                    self.owned.remove(&before);
                }
            }
            self.touched.insert(before);
        }
        if let Some(owner) = after {
            self.owned.entry(owner.clone()).or_default().entry(table.to_owned()).or_default().insert(uuid);
            self.owners.insert(uuid, (table.to_owned(), owner.clone()));
            self.touched.insert(owner);
        }
    }

    /// All sets of a row that appears, or of one that leaves.
    pub(crate) fn toggle_all(&mut self, table: &str, uuid: Uuid, row: &Row) {
        for column in self.of.sets.get(table).cloned().unwrap_or_default() {
            if let Some(members) = row.get(&column) {
                self.toggle(table, &column, uuid, members);
            }
        }
    }

    /// These members joined the set if they were not in it, and left it if they were.
    pub(crate) fn toggle(&mut self, table: &str, column: &str, uuid: Uuid, members: &Value) {
        let holder = Holder { table: table.to_owned(), column: column.to_owned(), row: uuid };
        for member in members.uuids() {
            let holders = self.holders.entry(member).or_default();
            if !holders.remove(&holder) {
                holders.insert(holder.clone());
            } else if holders.is_empty() {
                self.holders.remove(&member);
            }
            if let Some((_, owner)) = self.owners.get(&member) {
                self.touched.insert(owner.clone());
            }
        }
    }
}
