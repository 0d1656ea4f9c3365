//! A lasting relation to one database: connect, read the schema, monitor, keep the cache, and all that again when the
//! connection is lost.
//!
//! A lost connection keeps the cache readable ([`View::cache`] with [`View::link`] telling that it is old), and with
//! `monitor_cond_since` the next connection fetches only what was missed. A transaction that was under way when the
//! connection was lost is not sent again: it may have taken effect, so the caller gets `Unreachable` and looks first.
//!
//! Several servers are taken in turn: after one that is lost, or will not do, the next one at once, and after a whole round a pause.
//! One that is frozen is left when nothing was heard for two probe intervals ([`Limits`]), or none of what it was asked while
//! connecting was answered in time. What is said of the link is said of a whole round.

use crate::Error;
use crate::address::{Address, Remotes};
use crate::cache::Cache;
use crate::client::{Connection, Limits, Notification};
use crate::feed::Feed;
use crate::index::Indexed;
use crate::leader::Leader;
use crate::monitor::{self, Dialect, Update};
use crate::schema::DatabaseSchema;
use crate::transact::{Condition, Outcome, Transaction};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// How long to wait before each round of attempts to reconnect: the last entry holds for all further ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(Vec<Duration>);

impl Schedule {
    pub fn new(delays: Vec<Duration>) -> Self {
        Self(delays)
    }

    fn delay(&self, attempt: usize) -> Duration {
        self.0.get(attempt).or(self.0.last()).copied().unwrap_or(Duration::from_secs(1))
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self([100, 200, 400, 800, 1_600, 3_200, 5_000].map(Duration::from_millis).to_vec())
    }
}

#[derive(Debug, Clone)]
pub struct SessionConfig {
    pub remotes: Remotes,
    pub database: String,
    /// Tables to keep a copy of, with the columns wanted (empty: all). What the server's schema lacks is left out.
    pub monitored: BTreeMap<String, Vec<String>>,
    pub limits: Limits,
    pub schedule: Schedule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// The first connection has not succeeded or failed yet.
    Connecting,
    /// The cache follows the server.
    Synced(Dialect),
    /// The cache is as old as the loss.
    Lost(Error),
}

pub struct View {
    pub link: Link,
    pub cache: Cache,
    pub schema: Arc<DatabaseSchema>,
    connection: Option<Connection>,
    /// Notifications of this connection that are in the cache.
    merged: u64,
}

/// Enough for the server's restart; whoever looks at many things should not wait for each.
const LOST_PATIENCE: Duration = Duration::from_secs(1);

/// Ends when dropped.
pub struct Session {
    view: watch::Receiver<View>,
    feed: Arc<Feed>,
    task: JoinHandle<()>,
    database: String,
    address: String,
    limit: Duration,
    sent: AtomicU64,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Session {
    /// Returns at once and connects in the background; needs a Tokio runtime.
    pub fn start(config: SessionConfig) -> Self {
        Self::keep(config, None, None)
    }

    /// The same with the leader of the database's cluster only: another server counts as lost. An index of the copy is kept if
    /// one is wanted, and with it no row that can be nobody's.
    pub fn start_with_leader(config: SessionConfig, indexed: Option<Indexed>) -> Self {
        Self::keep(config, indexed, Some(Leader::default()))
    }

    fn keep(config: SessionConfig, indexed: Option<Indexed>, leader: Option<Leader>) -> Self {
        let conditions = indexed.as_ref().map(Indexed::conditions).unwrap_or_default();
        let cache = indexed.map(Cache::indexed).unwrap_or_default();
        let nothing = DatabaseSchema { name: config.database.clone(), version: String::new(), tables: BTreeMap::new() };
        let (publish, view) = watch::channel(View {
            link: Link::Connecting,
            cache,
            schema: Arc::new(nothing),
            connection: None,
            merged: 0,
        });
        let feed = Arc::<Feed>::default();
        let (database, address, limit) = (config.database.clone(), config.remotes.to_string(), config.limits.call);
        let at = config.remotes.turn(0).clone();
        let keeper = Keeper { config, conditions, at, publish, feed: Arc::clone(&feed), leader, last: None };
        let (task, sent) = (tokio::spawn(keeper.run()), AtomicU64::default());
        Self { view, feed, task, database, address, limit, sent }
    }

    pub fn database(&self) -> &str {
        &self.database
    }

    /// What is known now. Holding it stops updates: read and let go, never across an `await`.
    pub fn view(&self) -> watch::Ref<'_, View> {
        self.view.borrow()
    }

    /// Tells of every change of the cache or the link.
    pub fn changes(&self) -> watch::Receiver<View> {
        self.view.clone()
    }

    /// Waits until an update came or the link changed since the last call, and tells whom the updates were about, by the
    /// index. For one caller.
    pub async fn touched(&self) -> BTreeSet<String> {
        self.feed.next().await
    }

    /// The view, if its copy follows the server; else why not. As [`Session::view`], never across an `await`.
    pub fn current(&self) -> Result<watch::Ref<'_, View>, Error> {
        let view = self.view.borrow();
        match &view.link {
            Link::Synced(_) => Ok(view),
            Link::Lost(error) => Err(error.clone()),
            Link::Connecting => Err(Error::Closed { address: self.address.clone(), cause: "not open yet".to_owned() }),
        }
    }

    /// The connection, waiting for the first one up to the time limit of a call and for a lost one a moment; then the
    /// reason why there is none.
    async fn connection(&self) -> Result<Connection, Error> {
        let lost = matches!(self.view.borrow().link, Link::Lost(_));
        let limit = if lost { self.limit.min(LOST_PATIENCE) } else { self.limit };
        let mut view = self.view.clone();
        let synced = view.wait_for(|view| view.connection.is_some());
        if let Ok(Ok(view)) = tokio::time::timeout(limit, synced).await
            && let Some(connection) = &view.connection
        {
            return Ok(connection.clone());
        }
        Err(match &self.view.borrow().link {
            Link::Lost(error) => error.clone(),
            Link::Connecting | Link::Synced(_) => {
                Error::Timeout { address: self.address.clone(), method: "connect".to_owned(), limit: self.limit }
            }
        })
    }

    /// A call after which the cache is at least as new as its answer.
    async fn call(&self, method: &str, params: Json) -> Result<Json, Error> {
        let connection = self.connection().await?;
        let (result, before) = connection.counted_call(method, params).await?;
        let mut view = self.view.clone();
        // Another connection's cache began after this answer.
        let caught_up = |view: &View| match &view.connection {
            Some(current) => !current.is(&connection) || view.merged >= before,
            None => false,
        };
        match tokio::time::timeout(self.limit, view.wait_for(caught_up)).await {
            Ok(Ok(_)) => Ok(result),
            Ok(Err(_)) | Err(_) => Err(connection.closed()),
        }
    }

    /// Returns when the cache is at least as new as this call.
    pub async fn refresh(&self) -> Result<(), Error> {
        self.call("echo", json!(["refresh"])).await.map(|_| ())
    }

    /// Bytes of all transactions so far, as JSON and without the envelope of the call.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The cache holds the transaction's effects when this returns.
    pub async fn transact(&self, transaction: &Transaction) -> Result<Vec<Outcome>, Error> {
        let params = transaction.params();
        self.sent.fetch_add(size(&params), Ordering::Relaxed);
        let reply = self.call("transact", params).await?;
        transaction.outcomes(&reply, &self.address)
    }
}

fn size(json: &Json) -> u64 {
    u64::try_from(json.to_string().len()).unwrap_or(u64::MAX)
}

/// The task behind a session.
struct Keeper {
    config: SessionConfig,
    /// By table; the same for every connection.
    conditions: BTreeMap<String, Condition>,
    /// Whose turn it is.
    at: Address,
    publish: watch::Sender<View>,
    feed: Arc<Feed>,
    /// Present if no other server will do.
    leader: Option<Leader>,
    last: Option<Uuid>,
}

/// A connection whose monitor has been answered.
struct Established {
    connection: Connection,
    notifications: mpsc::UnboundedReceiver<Notification>,
    monitored: BTreeMap<String, Vec<String>>,
}

impl Keeper {
    async fn run(mut self) {
        let servers = self.config.remotes.count();
        let (mut turn, mut failures, mut said) = (0, 0, BTreeMap::new());
        loop {
            self.at = self.config.remotes.turn(turn).clone();
            let (error, was_lost) = match self.establish().await {
                Ok(established) => (self.follow(established).await, true),
                Err(error) => (error, false),
            };
            if was_lost {
                failures = 0;
                said.clear();
            }
            said.insert(turn % servers, error.to_string());
            turn += 1;
            failures += 1;
            let round = failures % servers == 0;
            let delay = match (round, was_lost) {
                (true, _) => self.config.schedule.delay(failures / servers - 1),
                // It may be lost again and again.
                (false, true) => self.config.schedule.delay(0),
                (false, false) => Duration::ZERO,
            };
            tracing::info!(%error, delay_ms = delay.as_millis(), "OVSDB: will reconnect");
            if round && servers > 1 {
                let causes: Vec<&str> = said.values().map(String::as_str).collect();
                self.publish_loss(Error::NoneWillDo(causes.join("; ")));
            } else if round || was_lost {
                self.publish_loss(error);
            }
            tokio::time::sleep(delay).await;
        }
    }

    fn publish_loss(&self, error: Error) {
        self.publish.send_modify(|view| {
            view.connection = None;
            view.link = Link::Lost(error);
        });
        self.feed.tell(BTreeSet::new());
    }

    fn protocol(&self, cause: String) -> Error {
        Error::Protocol { address: self.at.to_string(), cause }
    }

    async fn establish(&mut self) -> Result<Established, Error> {
        let remotes = &self.config.remotes;
        let (connection, notifications) = Connection::open(remotes, &self.at, self.config.limits).await?;
        if self.leader.is_some() {
            let server = connection.call(Dialect::Plain.method(), Leader::params()).await?;
            self.judge(&server, true)?;
        }
        let schema = connection.call("get_schema", json!([self.config.database])).await?;
        let schema = DatabaseSchema::from_json(&schema).map_err(|cause| self.protocol(cause))?;
        if *self.publish.borrow().schema != schema {
            self.last = None;
        }
        let monitored = monitor::known(&self.config.monitored, &schema);
        let mut dialect = Dialect::ConditionalSince;
        let reply = loop {
            let params = dialect.params(&self.config.database, &monitored, &self.conditions, self.last);
            match (connection.call(dialect.method(), params).await, dialect.older()) {
                (Err(error), Some(older)) if error.is_unknown_method() => dialect = older,
                (result, _) => break result?,
            }
        };
        let update = monitor::reply(dialect, reply).map_err(|cause| self.protocol(cause))?;
        let schema = Arc::new(schema);
        self.merge(update, &monitored, |view| {
            view.schema = Arc::clone(&schema);
            view.link = Link::Synced(dialect);
            view.connection = Some(connection.clone());
            view.merged = 0;
        })?;
        tracing::info!(address = connection.address(), database = self.config.database, ?dialect, "OVSDB: in step");
        Ok(Established { connection, notifications, monitored })
    }

    /// What the server says of itself.
    fn judge(&mut self, server: &Json, first: bool) -> Result<(), Error> {
        let judged = self.leader.as_mut().map_or(Ok(()), |leader| leader.judge(server, &self.config.database, first));
        judged.map_err(|cause| Error::Unfit { address: self.at.to_string(), cause })
    }

    /// Returns when the connection has ended, with the reason.
    async fn follow(&mut self, established: Established) -> Error {
        let Established { connection, mut notifications, monitored } = established;
        while let Some(notification) = notifications.recv().await {
            if let Some(server) = Leader::updates(&notification.params) {
                if let Err(error) = self.judge(server, false) {
                    return error;
                }
                // Nothing of the database has changed.
                self.publish.send_modify(|view| view.merged += 1);
                continue;
            }
            let update = monitor::notification(&notification.method, &notification.params);
            let update = update.map(Option::unwrap_or_default).map_err(|cause| {
                self.last = None;
                self.protocol(cause)
            });
            let update = match update {
                Ok(update) => update,
                Err(error) => return error,
            };
            if let Err(error) = self.merge(update, &monitored, |view| view.merged += 1) {
                return error;
            }
        }
        connection.closed()
    }

    /// Applies an update to the published cache. After a failure the next connection starts afresh.
    fn merge(
        &mut self,
        update: Update,
        monitored: &BTreeMap<String, Vec<String>>,
        and: impl FnOnce(&mut View),
    ) -> Result<(), Error> {
        let (mut merged, mut touched) = (Ok(()), BTreeSet::new());
        self.publish.send_modify(|view| {
            and(view);
            if update.afresh {
                view.cache.clear();
            }
            let schema = Arc::clone(&view.schema);
            merged = view.cache.apply(update.changes, &schema, monitored);
            touched = view.cache.take_touched();
        });
        self.feed.tell(touched);
        if update.last_transaction.is_some() || update.afresh {
            self.last = update.last_transaction;
        }
        merged.map_err(|cause| {
            self.last = None;
            self.protocol(cause)
        })
    }
}
