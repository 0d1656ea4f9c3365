//! Rows of the copy, as the planner has them: values as cells, references and memberships by UID and part.

use super::IDS;
use crate::cache::Cache;
use crate::session::View;
use crate::value::{Atom, Row, Value};
use planner::network::rows::{self, CHASSIS, Cell, Found, KIND, Membership, PART, RowId, Table};
use ports::north_bound::Members;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Keys of `external_ids` that are ours to write; others may add their own to our rows.
pub(super) const OURS: &str = "metalplane-";

pub(super) struct Copy<'a> {
    cache: &'a Cache,
}

impl<'a> Copy<'a> {
    pub(super) fn of(view: &'a View) -> Self {
        Self { cache: &view.cache }
    }

    pub(super) fn cache(&self) -> &'a Cache {
        self.cache
    }

    /// The row that is meant by an id. Of two rows with one id the first is it, as for `diff`.
    pub(super) fn row(&self, table: Table, id: &RowId) -> Option<(Uuid, &'a Row)> {
        self.cache.rows_of(&id.uid, table.name()).find(|(_, row)| part(row) == id.part)
    }

    pub(super) fn found(&self, uid: &str) -> Vec<Found> {
        let of = |table: Table| {
            self.cache.rows_of(uid, table.name()).map(move |(uuid, row)| self.read(table, uid, uuid, row))
        };
        let mut found: Vec<Found> = Table::ALL.into_iter().flat_map(of).collect();
        found.sort_by(|a, b| a.uuid.cmp(&b.uuid));
        found
    }

    /// The ports of VNics in the sets of an object's own row.
    pub(super) fn members(&self, uid: &str) -> Members {
        let mut members = Members::default();
        let ports = Table::LogicalSwitchPort.name();
        for table in [Table::PortGroup, Table::LogicalSwitch] {
            let Some((_, row)) = self.row(table, &RowId::of(uid)) else { continue };
            let Some(Value::Set(named)) = row.get("ports") else { continue };
            let named = named.iter().filter_map(|atom| if let Atom::Uuid(uuid) = atom { Some(*uuid) } else { None });
            for port in named.filter_map(|uuid| self.cache.row(ports, uuid)) {
                // The port to the router is the Subnet's, and others may have ports of their own on our switches.
                if port.get(IDS).and_then(|ids| ids.get(KIND)) == Some("VNic") {
                    members.add(port.get("options").and_then(|options| options.get(CHASSIS)));
                }
            }
        }
        members
    }

    /// The row with this UUID as it is now, and as it came.
    pub(super) fn again(&self, found: &Found) -> Option<(Uuid, &'a Row, Found)> {
        let uuid = found.uuid.parse().ok()?;
        let row = self.cache.row(found.row.table.name(), uuid)?;
        let (_, uid) = self.cache.owner(uuid)?;
        Some((uuid, row, self.read(found.row.table, uid, uuid, row)))
    }

    fn read(&self, table: Table, uid: &str, uuid: Uuid, row: &Row) -> Found {
        let columns = table.columns().iter().map(|column| (*column, self.cell(row.get(*column)))).collect();
        let row = rows::Row {
            table,
            id: RowId::part(uid, part(row)),
            external_ids: our_ids(row),
            columns,
            member_of: self.cache.holders(uuid).filter_map(|holder| self.membership(holder)).collect(),
        };
        Found { uuid: uuid.to_string(), row }
    }

    /// A row that is ours, and that its id means.
    fn meant(&self, uuid: Uuid) -> Option<(Table, RowId)> {
        let (table, uid) = self.cache.owner(uuid)?;
        let table = Table::ALL.into_iter().find(|known| known.name() == table)?;
        let id = RowId::part(uid, part(self.cache.row(table.name(), uuid)?));
        (self.row(table, &id)?.0 == uuid).then_some((table, id))
    }

    fn membership(&self, holder: &crate::index::Holder) -> Option<Membership> {
        let (table, row) = self.meant(holder.row)?;
        let (column, _) = table.sets().iter().find(|(column, _)| *column == holder.column)?;
        Some(Membership { row, table, column })
    }

    /// OVSDB has no difference between nothing, an empty text and an empty set that would matter to OVN.
    fn cell(&self, value: Option<&Value>) -> Cell {
        match value {
            None => Cell::Empty,
            Some(Value::Map(pairs)) if pairs.is_empty() => Cell::Empty,
            Some(Value::Map(pairs)) => {
                let texts: Option<BTreeMap<String, String>> =
                    pairs.iter().map(|(key, value)| Some((text(key)?, text(value)?))).collect();
                let numbers: Option<BTreeMap<String, i64>> =
                    pairs.iter().map(|(key, value)| Some((text(key)?, number(value)?))).collect();
                texts.map(Cell::Pairs).or(numbers.map(Cell::Numbers)).unwrap_or(Cell::Foreign)
            }
            Some(Value::Set(atoms)) => match (atoms.len(), atoms.first()) {
                (0, _) | (_, None) => Cell::Empty,
                (1, Some(Atom::String(text))) if text.is_empty() => Cell::Empty,
                (1, Some(Atom::String(text))) => Cell::Text(text.clone()),
                (1, Some(Atom::Integer(number))) => Cell::Number(*number),
                (1, Some(Atom::Uuid(uuid))) => self.meant(*uuid).map_or(Cell::Foreign, |(_, id)| Cell::Row(id)),
                _ => atoms.iter().map(text).collect::<Option<BTreeSet<_>>>().map_or(Cell::Foreign, Cell::Texts),
            },
        }
    }
}

fn text(atom: &Atom) -> Option<String> {
    match atom {
        Atom::String(text) => Some(text.clone()),
        _ => None,
    }
}

fn number(atom: &Atom) -> Option<i64> {
    match atom {
        Atom::Integer(number) => Some(*number),
        _ => None,
    }
}

fn part(row: &Row) -> &str {
    row.get(IDS).and_then(|ids| ids.get(PART)).unwrap_or_default()
}

fn our_ids(row: &Row) -> BTreeMap<String, String> {
    let pairs = match row.get(IDS) {
        Some(Value::Map(pairs)) => Some(pairs),
        _ => None,
    };
    let texts = pairs.into_iter().flatten().filter_map(|(key, value)| Some((text(key)?, text(value)?)));
    texts.filter(|(key, _)| key.starts_with(OURS)).collect()
}
