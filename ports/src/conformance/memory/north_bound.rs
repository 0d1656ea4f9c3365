//! OVN's north-bound database: rows of all sites, with what the real one does by itself. A child row that no set names is deleted,
//! a reference to a deleted row is emptied, names are unique.

use super::{lock, reachable, refuse};
use crate::north_bound::{Changes, Members, NorthBoundError, Token};
use crate::{ErrorClass, NorthBound, PortError};
use async_trait::async_trait;
use planner::network::rows::{CHASSIS, Cell, Change, Found, KIND, Membership, Row, RowId, SITE, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::Notify;

#[derive(Clone, Default)]
pub struct MemoryNorthBound {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    next: u64,
    rows: BTreeMap<String, Row>,
    up: BTreeSet<String>,
    tokens: BTreeMap<String, Token>,
    number: u64,
    down: bool,
    south_bound_down: bool,
    handles: Vec<Arc<Feed>>,
    /// Woken in the order in which they came, so that a simulation depends on its seed alone.
    chassis: Vec<Weak<Notify>>,
    /// What each of those that have stopped had installed, by name; the others have everything.
    stopped: BTreeMap<String, Installed>,
    /// The names of all.
    registered: BTreeSet<String>,
    /// What each maps to bridges beside [`PHYSICAL_NETWORK`].
    mapped: BTreeMap<String, BTreeSet<String>>,
}

/// What every chassis maps to a bridge.
pub const PHYSICAL_NETWORK: &str = "physnet1";

/// What a chassis has installed: a number, and the rows that were there.
#[derive(Clone, Default)]
pub struct Installed {
    pub number: u64,
    pub rows: Vec<Row>,
}

#[derive(Default)]
struct Feed {
    pending: Mutex<BTreeSet<String>>,
    notify: Notify,
}

/// What one controller has: the token that it took, and what it was told.
pub struct MemoryNorthBoundHandle {
    state: Arc<Mutex<State>>,
    site: String,
    token: Mutex<Option<Token>>,
    told: Mutex<Option<bool>>,
    feed: Arc<Feed>,
    sent: AtomicU64,
}

impl MemoryNorthBound {
    pub fn open(&self, site: &str) -> MemoryNorthBoundHandle {
        let feed = Arc::<Feed>::default();
        let mut state = lock(&self.state);
        lock(&feed.pending).extend(state.rows.values().map(|row| row.id.uid.clone()));
        feed.notify.notify_one();
        state.handles.push(Arc::clone(&feed));
        let (token, told, sent) = Default::default();
        MemoryNorthBoundHandle { state: Arc::clone(&self.state), site: site.to_owned(), token, told, feed, sent }
    }

    /// Cuts the database off, or puts it back.
    pub fn set_down(&self, down: bool) {
        let mut state = lock(&self.state);
        state.down = down;
        state.tell(BTreeSet::new());
    }

    /// The same of the south-bound database alone. The chassis go on: nobody hears how far they are.
    pub fn set_south_bound_down(&self, down: bool) {
        let mut state = lock(&self.state);
        state.south_bound_down = down;
        state.tell(BTreeSet::new());
    }

    /// Of all sites.
    pub fn rows(&self) -> Vec<Row> {
        lock(&self.state).rows.values().cloned().collect()
    }

    /// The same, as somebody who changes them by hand finds them.
    pub fn found(&self) -> Vec<Found> {
        let state = lock(&self.state);
        state.rows.iter().map(|(uuid, row)| Found { uuid: uuid.clone(), row: row.clone() }).collect()
    }

    /// Somebody writes one column of a row.
    pub fn set_by_hand(&self, uuid: &str, column: &'static str, cell: Cell) {
        let mut state = lock(&self.state);
        if let Some(row) = state.rows.get_mut(uuid) {
            row.columns.insert(column, cell);
            let uid = row.id.uid.clone();
            state.tell(BTreeSet::from([uid]));
        }
    }

    pub fn delete_by_hand(&self, uuid: &str) {
        let mut state = lock(&self.state);
        let mut uids: BTreeSet<String> = state.rows.remove(uuid).map(|row| row.id.uid).into_iter().collect();
        uids.extend(state.collect());
        state.tell(uids);
    }

    /// The chassis of a VNic's port has it.
    pub fn come_up(&self, uid: &str) {
        let mut state = lock(&self.state);
        if state.up.insert(uid.to_owned()) {
            state.tell(BTreeSet::from([uid.to_owned()]));
        }
    }

    /// A chassis stops, with what it has installed; or goes on, and installs everything at once.
    pub fn stop_chassis(&self, name: &str, stopped: bool) {
        let mut state = lock(&self.state);
        if stopped {
            let installed = state.installed(name);
            state.stopped.insert(name.to_owned(), installed);
        } else {
            state.stopped.remove(name);
        }
        state.tell(BTreeSet::new());
    }

    /// A chassis maps one more physical network to a bridge.
    pub fn map(&self, chassis: &str, physical_network: &str) {
        let mut state = lock(&self.state);
        state.mapped.entry(chassis.to_owned()).or_default().insert(physical_network.to_owned());
        state.tell(BTreeSet::new());
    }

    pub(super) fn maps(&self, chassis: &str) -> BTreeSet<String> {
        let state = lock(&self.state);
        let more = state.mapped.get(chassis).into_iter().flatten().cloned();
        more.chain([PHYSICAL_NETWORK.to_owned()]).collect()
    }

    /// What each chassis that has stopped had installed, by name.
    pub fn stopped(&self) -> BTreeMap<String, Installed> {
        lock(&self.state).stopped.clone()
    }

    /// For [`MemoryNorthBound::restore`].
    pub fn backup(&self) -> Installed {
        let state = lock(&self.state);
        Installed { number: state.number, rows: state.rows.values().cloned().collect() }
    }

    /// Somebody puts the database back: its rows and its number are those of then. The token stays, as if it had been taken before.
    pub fn restore(&self, backup: Installed) {
        let mut state = lock(&self.state);
        let mut uids: BTreeSet<String> = state.rows.values().map(|row| row.id.uid.clone()).collect();
        state.rows.clear();
        for row in backup.rows {
            uids.insert(row.id.uid.clone());
            state.next += 1;
            let uuid = format!("{:08}", state.next);
            state.rows.insert(uuid, row);
        }
        state.number = backup.number;
        state.tell(uids);
    }

    /// Somebody puts an empty database in the place of this one: whoever led has no token in it.
    pub fn replace_by_empty(&self) {
        let mut state = lock(&self.state);
        let uids = state.rows.values().map(|row| row.id.uid.clone()).collect();
        state.rows.clear();
        state.up.clear();
        state.tokens.clear();
        state.number = 0;
        state.tell(uids);
    }

    pub(super) fn number_of(&self, chassis: &str) -> u64 {
        let state = lock(&self.state);
        state.stopped.get(chassis).map_or(state.number, |stopped| stopped.number)
    }

    /// Registers a chassis, which is told of every change for as long as it keeps what it gets.
    pub(super) fn register(&self, name: &str) -> Arc<Notify> {
        let told = Arc::<Notify>::default();
        let mut state = lock(&self.state);
        state.registered.insert(name.to_owned());
        state.chassis.push(Arc::downgrade(&told));
        told
    }

    /// Told of every change, for as long as it is kept.
    pub(super) fn told(&self) -> Arc<Notify> {
        let told = Arc::<Notify>::default();
        lock(&self.state).chassis.push(Arc::downgrade(&told));
        told
    }

    pub(super) fn numbers(&self) -> Result<BTreeMap<String, Option<u64>>, PortError> {
        let state = lock(&self.state);
        reachable(state.down || state.south_bound_down, "the south-bound database")?;
        // 0 is what a chassis tells that has just registered: no change was ever given that number.
        let number = |name: &String| {
            let number = state.stopped.get(name).map_or(state.number, |stopped| stopped.number);
            (name.clone(), (number > 0).then_some(number))
        };
        Ok(state.registered.iter().map(number).collect())
    }
}

/// The set keeps its members: nothing else does.
fn keeps(set: &Membership) -> bool {
    set.table != Table::PortGroup || set.column != "ports"
}

fn of_site(row: &Row, site: &str) -> bool {
    row.external_ids.get(SITE).is_some_and(|of| of == site)
}

impl State {
    fn installed(&self, chassis: &str) -> Installed {
        let now = || Installed { number: self.number, rows: self.rows.values().cloned().collect() };
        self.stopped.get(chassis).cloned().unwrap_or_else(now)
    }

    fn tell(&mut self, uids: BTreeSet<String>) {
        self.chassis.retain(|chassis| chassis.upgrade().inspect(|told| told.notify_one()).is_some());
        for feed in &self.handles {
            lock(&feed.pending).extend(uids.iter().cloned());
            feed.notify.notify_one();
        }
    }

    fn has(&self, table: Table, id: &RowId) -> bool {
        self.rows.values().any(|row| row.table == table && row.id == *id)
    }

    /// What a deletion takes with it, until nothing more goes: the UIDs of rows that are other rows now.
    fn collect(&mut self) -> BTreeSet<String> {
        let before = self.rows.clone();
        loop {
            let there: BTreeSet<(Table, RowId)> = self.rows.values().map(|row| (row.table, row.id.clone())).collect();
            for row in self.rows.values_mut() {
                row.member_of.retain(|set| there.contains(&(set.table, set.row.clone())));
                for cell in row.columns.values_mut() {
                    let dangling = matches!(cell, Cell::Row(id) if !there.contains(&(Table::DhcpOptions, id.clone())));
                    *cell = if dangling { Cell::Empty } else { cell.clone() };
                }
            }
            let count = self.rows.len();
            self.rows.retain(|_, row| row.table.is_root() || row.member_of.iter().any(keeps));
            if self.rows.len() == count {
                self.up.retain(|uid| there.iter().any(|(_, id)| id.uid == *uid));
                let other = before.iter().filter(|(uuid, row)| self.rows.get(*uuid) != Some(row));
                return other.map(|(_, row)| row.id.uid.clone()).collect();
            }
        }
    }

    /// What stands against a change.
    fn check(&self, change: &Change, site: &str) -> Result<(), NorthBoundError> {
        let before = change.updates.iter().map(|update| &update.before).chain(&change.deletes);
        let is = |found: &&Found| {
            let row = self.rows.get(&found.uuid).filter(|row| of_site(row, site));
            row == Some(&found.row)
        };
        if let Some(found) = before.into_iter().find(|found| !is(found)) {
            return Err(NorthBoundError::Contended(format!("{:?} is not as it was", found.row.id)));
        }
        let twice = change.inserts.iter().find(|row| row.table.is_root() && self.has(row.table, &row.id));
        let twice =
            twice.or(change.inserts.iter().find(|row| row.table.has_unique_name() && self.has(row.table, &row.id)));
        if let Some(row) = twice {
            return Err(NorthBoundError::Contended(format!("{:?} is there already", row.id)));
        }
        let made = |table, id: &RowId| change.inserts.iter().any(|row| row.table == table && row.id == *id);
        for row in change.inserts.iter().chain(change.updates.iter().map(|update| &update.after)) {
            let sets = row.member_of.iter().map(|set| (set.table, &set.row));
            let cells = row.columns.values().filter_map(|cell| match cell {
                Cell::Row(id) => Some((Table::DhcpOptions, id)),
                _ => None,
            });
            if let Some((table, id)) = sets.chain(cells).find(|(table, id)| !made(*table, id) && !self.has(*table, id))
            {
                let message = format!("{:?}: {} {} is not there yet", row.id, table.name(), id.name());
                return Err(PortError::new(ErrorClass::NotFound, message).into());
            }
        }
        for found in &change.deletes {
            let holds = |row: &&Row| {
                let of = |set: &Membership| keeps(set) && set.table == found.row.table && set.row == found.row.id;
                row.id.uid != found.row.id.uid && row.member_of.iter().any(of)
            };
            if let Some(row) = self.rows.values().find(holds) {
                return refuse(ErrorClass::Busy, format!("{:?} still has rows of {}", found.row.id, row.id.uid))
                    .map_err(NorthBoundError::Port);
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, change: &Change) {
        for found in &change.deletes {
            self.rows.remove(&found.uuid);
        }
        for update in &change.updates {
            self.rows.insert(update.before.uuid.clone(), update.after.clone());
        }
        for row in &change.inserts {
            self.next += 1;
            self.rows.insert(format!("{:08}", self.next), row.clone());
        }
        let rows = change.inserts.iter().chain(change.updates.iter().map(|update| &update.after));
        let rows = rows.chain(change.deletes.iter().map(|found| &found.row));
        // A row whose set has other members is another row.
        let sets = change.updates.iter().flat_map(|update| update.joins().chain(update.leaves()));
        let sets = sets.chain(change.inserts.iter().flat_map(|row| &row.member_of));
        let sets = sets.chain(change.deletes.iter().flat_map(|found| &found.row.member_of));
        let sets: BTreeSet<String> = sets.map(|set| set.row.uid.clone()).collect();
        let uids = rows.map(|row| row.id.uid.clone()).chain(self.collect()).chain(sets).collect();
        self.tell(uids);
    }
}

impl MemoryNorthBoundHandle {
    fn leads(&self, state: &State) -> Result<(), NorthBoundError> {
        reachable(state.down, "the north-bound database")?;
        let mine = lock(&self.token).clone();
        if mine.is_none() || state.tokens.get(&self.site) != mine.as_ref() {
            return Err(NorthBoundError::NotLeader(format!("the token is {:?}", state.tokens.get(&self.site))));
        }
        Ok(())
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> Result<T, PortError> {
        let state = lock(&self.state);
        reachable(state.down, "the north-bound database")?;
        Ok(read(&state))
    }

    /// In place of what a driver would write: it grows with what there is to say.
    fn send(&self, what: impl fmt::Debug) {
        self.sent.fetch_add(format!("{what:?}").len() as u64, Ordering::Relaxed);
    }

    fn ours(&self, row: &Row) -> bool {
        of_site(row, &self.site)
    }
}

#[async_trait]
impl NorthBound for MemoryNorthBoundHandle {
    fn rows(&self, uid: &str) -> Result<Vec<Found>, PortError> {
        self.read(|state| {
            let mine = state.rows.iter().filter(|(_, row)| row.id.uid == uid && self.ours(row));
            mine.map(|(uuid, row)| Found { uuid: uuid.clone(), row: row.clone() }).collect()
        })
    }

    fn uids(&self) -> Result<BTreeSet<String>, PortError> {
        self.read(|state| state.rows.values().filter(|row| self.ours(row)).map(|row| row.id.uid.clone()).collect())
    }

    fn is_up(&self, uid: &str) -> Result<bool, PortError> {
        self.read(|state| state.up.contains(uid) && state.has(Table::LogicalSwitchPort, &RowId::of(uid)))
    }

    fn number(&self) -> Result<u64, PortError> {
        self.read(|state| state.number)
    }

    fn token(&self) -> Result<Option<Token>, PortError> {
        self.read(|state| state.tokens.get(&self.site).cloned())
    }

    async fn take_token(&self, token: &Token, over: Option<&Token>) -> Result<(), NorthBoundError> {
        self.send(token);
        let mut state = lock(&self.state);
        reachable(state.down, "the north-bound database")?;
        if let Some(over) = over.filter(|over| !token.may_follow(over)) {
            return Err(NorthBoundError::NotLeader(format!("the token is {over}")));
        }
        if state.tokens.get(&self.site) != over {
            return Err(NorthBoundError::Contended(format!("the token is {:?}", state.tokens.get(&self.site))));
        }
        state.tokens.insert(self.site.clone(), token.clone());
        *lock(&self.token) = Some(token.clone());
        Ok(())
    }

    async fn apply(&self, change: &Change) -> Result<(), NorthBoundError> {
        if change.is_empty() {
            return Ok(());
        }
        self.send(change);
        let mut state = lock(&self.state);
        self.leads(&state)?;
        state.check(change, &self.site)?;
        state.carry_out(change);
        Ok(())
    }

    fn members(&self, uid: &str) -> Result<Members, PortError> {
        self.read(|state| {
            let mut members = Members::default();
            let of_it = |row: &&Row| {
                row.table == Table::LogicalSwitchPort
                    && row.external_ids.get(KIND).is_some_and(|kind| kind == "VNic")
                    && row.member_of.iter().any(|set| set.row.uid == uid)
                    && self.ours(row)
            };
            for row in state.rows.values().filter(of_it) {
                members.add(match row.columns.get("options") {
                    Some(Cell::Pairs(options)) => options.get(CHASSIS).map(String::as_str),
                    _ => None,
                });
            }
            members
        })
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    async fn raise(&self, above: u64) -> Result<u64, NorthBoundError> {
        self.send(above);
        let mut state = lock(&self.state);
        self.leads(&state)?;
        state.number = state.number.max(above) + 1;
        state.tell(BTreeSet::new());
        Ok(state.number)
    }

    async fn changes(&self) -> Changes {
        loop {
            let down = lock(&self.state).down;
            let uids = std::mem::take(&mut *lock(&self.feed.pending));
            if !uids.is_empty() || *lock(&self.told) != Some(down) {
                *lock(&self.told) = Some(down);
                return Changes { uids, link: reachable(down, "the north-bound database") };
            }
            self.feed.notify.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::north_bound;

    #[derive(Default)]
    struct Bench(MemoryNorthBound);

    #[async_trait]
    impl north_bound::Bench for Bench {
        type NorthBound = MemoryNorthBoundHandle;

        async fn open(&self, site: &str) -> MemoryNorthBoundHandle {
            self.0.open(site)
        }

        async fn set_by_hand(&self, found: &Found, column: &'static str, text: &str) {
            self.0.set_by_hand(&found.uuid, column, Cell::Text(text.to_owned()));
        }

        async fn delete_port_by_hand(&self, found: &Found) {
            self.0.delete_by_hand(&found.uuid);
        }

        async fn come_up(&self, found: &Found) {
            self.0.come_up(&found.row.id.uid);
        }

        async fn set_down(&self, down: bool) {
            self.0.set_down(down);
        }

        async fn pause(&self) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn keeps_the_ports_promises() {
        north_bound::suite(&Bench::default()).await;
    }
}
