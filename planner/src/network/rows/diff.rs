//! Wanted − there: what one transaction has to do for one object.

use super::{Cell, Membership, Row};

/// A row that is there, by the database's own name for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub uuid: String,
    pub row: Row,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    pub before: Found,
    pub after: Row,
}

impl Update {
    /// The columns that change, with what they become; `external_ids` apart.
    pub fn columns(&self) -> impl Iterator<Item = (&'static str, &Cell)> {
        let before = &self.before.row.columns;
        self.after
            .columns
            .iter()
            .filter(|(name, cell)| before.get(*name) != Some(*cell))
            .map(|(name, cell)| (*name, cell))
    }

    pub fn joins(&self) -> impl Iterator<Item = &Membership> {
        self.after.member_of.difference(&self.before.row.member_of)
    }

    pub fn leaves(&self) -> impl Iterator<Item = &Membership> {
        self.before.row.member_of.difference(&self.after.member_of)
    }
}

/// For one object. All of it is one transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    pub inserts: Vec<Row>,
    pub updates: Vec<Update>,
    pub deletes: Vec<Found>,
}

impl Change {
    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// How many it touches.
    pub fn rows(&self) -> usize {
        self.inserts.len() + self.updates.len() + self.deletes.len()
    }
}

/// `found`: every row of the same object. A second row of one part is nobody's and goes.
pub fn diff(wanted: &[Row], found: &[Found]) -> Change {
    let is = |row: &Row, there: &Row| row.table == there.table && row.id == there.id;
    let first = |row: &Row| found.iter().find(|there| is(row, &there.row));
    let mut change = Change::default();
    for row in wanted {
        match first(row) {
            None => change.inserts.push(row.clone()),
            Some(there) if there.row == *row => {}
            Some(there) => change.updates.push(Update { before: there.clone(), after: row.clone() }),
        }
    }
    let kept = |there: &Found| wanted.iter().any(|row| first(row).is_some_and(|first| first.uuid == there.uuid));
    change.deletes = found.iter().filter(|there| !kept(there)).cloned().collect();
    change
}
