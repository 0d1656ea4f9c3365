//! [`ports::NorthBound`] on a real OVN_Northbound database.
//!
//! | file | what |
//! |---|---|
//! | `found.rs` | rows of the copy, as `planner::network::rows` has them |
//! | `write.rs` | a change as one transaction: its guards, then what it does |
//!
//! Of the tables whose rows are the many (ports, ACLs, NAT, routes, DHCP options, QoS, Gateway_Chassis) the copy has the rows of our site alone, by a
//! condition on `external_ids` that the server evaluates: on an OVN that others use too, theirs are not sent. No reader needs those: a row is found by
//! our site and UID, a name that somebody has is refused by the server, and a port that is not ours counts for nobody. Followed whole are:
//!
//! - Logical_Switch, Logical_Router, Logical_Router_Port and Port_Group: the server keeps a child row for as long as any set names it, so to delete
//!   one of ours every set has to be known that names it, whoever's row has the set;
//! - NB_Global: one row, of all sites.

mod found;
mod write;

use crate::Error;
use crate::index::Indexed;
use crate::session::{Session, SessionConfig, View};
use crate::transact::{Condition, Mutation, Outcome, Transaction};
use crate::value::{Row, Value};
use async_trait::async_trait;
use found::Copy;
use planner::network::rows::{Change, Found, RowId, SITE, Table, UID};
use ports::north_bound::{Changes, Members, NorthBoundError, Token};
use ports::{ErrorClass, NorthBound, PortError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use uuid::Uuid;

pub const DATABASE: &str = "OVN_Northbound";

const GLOBAL: &str = "NB_Global";
const IDS: &str = "external_ids";
const NUMBER: &str = "nb_cfg";
const UP: &str = "up";

/// What [`OvnNorthBound`] reads, for [`SessionConfig::monitored`].
pub fn monitored() -> BTreeMap<String, Vec<String>> {
    let own = |columns: Vec<&str>| columns.into_iter().map(str::to_owned).collect();
    let of = |table: &Table| {
        let sets = table.sets().iter().map(|(column, _)| *column);
        let up = (*table == Table::LogicalSwitchPort).then_some(UP);
        (
            table.name().to_owned(),
            own([IDS].into_iter().chain(table.columns().iter().copied()).chain(sets).chain(up).collect()),
        )
    };
    let mut all: BTreeMap<String, Vec<String>> = Table::ALL.iter().map(of).collect();
    all.insert(GLOBAL.to_owned(), own(vec![IDS, NUMBER]));
    all
}

fn indexed(site: &str) -> Indexed {
    let sets = |table: &Table| {
        (table.name().to_owned(), table.sets().iter().map(|(column, _)| (*column).to_owned()).collect())
    };
    Indexed {
        column: IDS.to_owned(),
        key: UID.to_owned(),
        only: (SITE.to_owned(), site.to_owned()),
        sets: Table::ALL.iter().map(sets).collect(),
    }
}

pub struct OvnNorthBound {
    session: Session,
    site: String,
    /// What this handle writes with.
    token: Mutex<Option<Token>>,
    /// The link as it was told last.
    told: Mutex<Option<Result<(), PortError>>>,
}

impl OvnNorthBound {
    /// `site`: the value of `metalplane-site` in our rows. Connects in the background; needs a Tokio runtime.
    pub fn new(config: SessionConfig, site: &str) -> Self {
        Self {
            session: Session::start_with_leader(config, Some(indexed(site))),
            site: site.to_owned(),
            token: Mutex::default(),
            told: Mutex::default(),
        }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    fn read<T>(&self, what: &str, read: impl FnOnce(&View) -> Result<T, PortError>) -> Result<T, PortError> {
        let view = self.session.current().map_err(|error| error.for_port(what))?;
        read(&view)
    }

    /// A transaction of whom leads, with the row that holds the token.
    fn guarded(&self, view: &View) -> Result<(Transaction, Uuid), NorthBoundError> {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let token = token.ok_or_else(|| NorthBoundError::NotLeader("this handle has taken no token".to_owned()))?;
        let (global, _) = global(view)?;
        let mut transaction = Transaction::new(DATABASE);
        let ours = Value::map([(Token::key(&self.site), token.to_string())]);
        expect_row(&mut transaction, GLOBAL, global, [Condition::includes(IDS, ours)]);
        Ok((transaction, global))
    }

    /// Carries out a transaction that began with `guarded`.
    async fn write(&self, what: &str, transaction: &Transaction) -> Result<Vec<Outcome>, NorthBoundError> {
        self.session.transact(transaction).await.map_err(|error| match &error {
            Error::Operation { index: 0, error: cause, .. } if cause == "timed out" => {
                NorthBoundError::NotLeader(format!("{what}: the north-bound database has the token of another leader"))
            }
            _ => contended_or_not(what, &error),
        })
    }
}

fn contended_or_not(what: &str, error: &Error) -> NorthBoundError {
    let refused =
        |cause: &str| matches!(cause, "timed out" | "constraint violation" | "referential integrity violation");
    match error {
        Error::Operation { error: cause, .. } if refused(cause) => {
            NorthBoundError::Contended(format!("{what}: somebody has changed the rows meanwhile: {error}"))
        }
        _ => NorthBoundError::Port(error.for_port(what)),
    }
}

/// The rest is done only if this row is there and meets the conditions.
fn expect_row(transaction: &mut Transaction, table: &str, row: Uuid, and: impl IntoIterator<Item = Condition>) {
    let conditions: Vec<Condition> = [Condition::row(row)].into_iter().chain(and).collect();
    transaction.expect(table, &conditions, &["_uuid"], &[Row::from([("_uuid".to_owned(), Value::from(row))])]);
}

fn global(view: &View) -> Result<(Uuid, &Row), PortError> {
    view.cache.rows(GLOBAL).next().ok_or_else(|| {
        // ovn-northd makes it when it starts on an empty database.
        let message = format!("the database {DATABASE} has no row in {GLOBAL} yet: start ovn-northd");
        PortError::new(ErrorClass::Unreachable, message)
    })
}

fn token_in(global: &Row, site: &str) -> Result<Option<Token>, PortError> {
    let key = Token::key(site);
    let text = global.get(IDS).and_then(|ids| ids.get(&key));
    text.map(str::parse).transpose().map_err(|cause: String| {
        PortError::new(ErrorClass::Invalid, format!("{GLOBAL} external_ids {key}: {cause}; remove that key"))
    })
}

fn number_in(row: &Row) -> u64 {
    row.get(NUMBER).and_then(Value::as_integer).and_then(|number| u64::try_from(number).ok()).unwrap_or_default()
}

#[async_trait]
impl NorthBound for OvnNorthBound {
    fn rows(&self, uid: &str) -> Result<Vec<Found>, PortError> {
        self.read(&format!("reading the rows of {uid}"), |view| Ok(Copy::of(view).found(uid)))
    }

    fn uids(&self) -> Result<BTreeSet<String>, PortError> {
        self.read("listing rows", |view| Ok(view.cache.owners().map(str::to_owned).collect()))
    }

    fn is_up(&self, uid: &str) -> Result<bool, PortError> {
        self.read(&format!("reading whether the port of {uid} is up"), |view| {
            let port = Copy::of(view).row(Table::LogicalSwitchPort, &RowId::of(uid));
            Ok(port.and_then(|(_, row)| row.get(UP)) == Some(&Value::from(true)))
        })
    }

    fn members(&self, uid: &str) -> Result<Members, PortError> {
        self.read(&format!("reading the members of {uid}"), |view| Ok(Copy::of(view).members(uid)))
    }

    fn number(&self) -> Result<u64, PortError> {
        self.read("reading nb_cfg", |view| Ok(number_in(global(view)?.1)))
    }

    fn token(&self) -> Result<Option<Token>, PortError> {
        self.read("reading the token", |view| token_in(global(view)?.1, &self.site))
    }

    async fn take_token(&self, token: &Token, over: Option<&Token>) -> Result<(), NorthBoundError> {
        let what = format!("taking the token {token}");
        if let Some(over) = over.filter(|over| !token.may_follow(over)) {
            return Err(NorthBoundError::NotLeader(format!("{what}: the north-bound database has {over}")));
        }
        let key = Token::key(&self.site);
        let take = |view: &View| {
            let (uuid, row) = global(view)?;
            let there = token_in(row, &self.site)?;
            if there.as_ref() != over {
                let there = there.map_or("none".to_owned(), |token| token.to_string());
                return Ok(Err(NorthBoundError::Contended(format!("{what}: the north-bound database has {there}"))));
            }
            let mut transaction = Transaction::new(DATABASE);
            let ids = row.get(IDS).cloned().unwrap_or(Value::Map(BTreeMap::new()));
            transaction.expect(GLOBAL, &[Condition::row(uuid)], &[IDS], &[Row::from([(IDS.to_owned(), ids)])]);
            // `insert` keeps the value of a key that is there (RFC 7047 section 5.1).
            let mutations = [
                Mutation::Delete(IDS.to_owned(), Value::set([key.as_str()])),
                Mutation::Insert(IDS.to_owned(), Value::map([(key.as_str(), token.to_string())])),
            ];
            transaction.mutate(GLOBAL, &[Condition::row(uuid)], &mutations);
            transaction.comment(&format!("metalplane: {what}"));
            Ok(Ok(transaction))
        };
        let transaction = self.read(&what, take)??;
        self.session.transact(&transaction).await.map_err(|error| contended_or_not(&what, &error))?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(())
    }

    async fn apply(&self, change: &Change) -> Result<(), NorthBoundError> {
        if change.is_empty() {
            return Ok(());
        }
        let what = write::what(change);
        let transaction = {
            let view = self.session.current().map_err(|error| error.for_port(&what))?;
            let (transaction, _) = self.guarded(&view)?;
            write::transaction(transaction, &view, &what, change)?
        };
        self.write(&what, &transaction).await.map(|_| ())
    }

    fn sent(&self) -> u64 {
        self.session.sent()
    }

    async fn raise(&self, above: u64) -> Result<u64, NorthBoundError> {
        let what = "raising nb_cfg";
        let transaction = {
            let view = self.session.current().map_err(|error| error.for_port(what))?;
            let (mut transaction, global) = self.guarded(&view)?;
            let number = view.cache.row(GLOBAL, global).map(number_in).unwrap_or_default();
            let more = i64::try_from(above.saturating_sub(number)).unwrap_or_default() + 1;
            transaction.mutate(GLOBAL, &[Condition::row(global)], &[Mutation::Add(NUMBER.to_owned(), more)]);
            transaction.select(GLOBAL, &[Condition::row(global)], &[NUMBER]);
            transaction
        };
        let outcomes = self.write(what, &transaction).await?;
        match outcomes.last() {
            Some(Outcome::Rows(rows)) if rows.len() == 1 => Ok(number_in(&rows[0])),
            other => Err(PortError::new(ErrorClass::Invalid, format!("{what}: no number in {other:?}")).into()),
        }
    }

    async fn changes(&self) -> Changes {
        loop {
            let uids = self.session.touched().await;
            // A database without its one row in NB_Global cannot be written yet.
            let link = self.read("following the database", |view| global(view).map(|_| ()));
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if !uids.is_empty() || told.as_ref() != Some(&link) {
                *told = Some(link.clone());
                return Changes { uids, link };
            }
        }
    }
}
