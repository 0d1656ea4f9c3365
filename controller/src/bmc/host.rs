//! One BMC: what was read of it, and the task that reads it.

use super::endpoint::BmcFactory;
use super::session::{Reading, Refused, Session};
use super::{Owner, enqueue};
use crate::cache::Cache;
use crate::clock;
use crate::metrics::Metrics;
use crate::objects::Objects;
use crate::world::World;
use api::names;
use api::tinkerbell::Machine;
use api::tinkerbell::machine::Connection;
use futures::FutureExt;
use jiff::Timestamp;
use planner::host::{BootConfiguration, HostObserved, Medium, Post};
use planner::machine::BmcNeed;
use planner::machine::observed::{BmcProblem, BmcSeen, uid};
use planner::seen::Seen;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// A reading older than this is not of this moment.
const FRESH: Duration = Duration::from_secs(2);
const AWAITING: Duration = Duration::from_millis(300);
const SLOW: Duration = Duration::from_secs(30);
/// As often as upstream by default.
const SELDOM: Duration = Duration::from_secs(180);
/// One read that fails in quiet times is not a problem yet.
const AGAIN: Duration = Duration::from_secs(2);

pub struct Context {
    pub factory: Arc<dyn BmcFactory>,
    pub objects: Objects,
    pub inventory: String,
    pub world: Arc<World>,
    /// Where the BMCs are, as the watch tells.
    pub machines: Arc<Cache<Machine>>,
    pub(crate) metrics: Arc<Metrics>,
    pub permits: Semaphore,
    pub token: AtomicU64,
}

/// Which BMC the name stands for: of another object, or with another connection, it is another BMC.
#[derive(PartialEq)]
pub(super) struct Source {
    uid: String,
    connection: Connection,
}

impl Source {
    pub(super) fn of(machine: &Machine) -> Self {
        Self { uid: uid(&machine.metadata).to_owned(), connection: machine.spec.connection.clone() }
    }

    /// As `Dpu.status.verifiedBmc` keeps it.
    pub(super) fn identity(&self) -> String {
        let connection = serde_json::to_string(&self.connection).unwrap_or_default();
        names::short(&format!("{}/{connection}", self.uid), 20)
    }
}

#[derive(Default)]
pub(super) struct State {
    needs: BTreeMap<Owner, BmcNeed>,
    source: Option<Source>,
    /// Of `source`.
    identity: Option<String>,
    /// Grows with every other `source`; and since when it is this one.
    pub(super) turn: u64,
    pub(super) since: Option<Timestamp>,
    /// Somebody waits for the next reading, whatever it says.
    pub(super) asked: bool,
    pub(super) host: Option<HostObserved>,
    /// When the read of `host` began, and when it was answered.
    began: Option<Timestamp>,
    pub(super) answered: Option<Instant>,
    listing_since: Option<Timestamp>,
    post_since: Option<Timestamp>,
    failures: u32,
    problem: Option<BmcProblem>,
    pub(super) accepted_at: Option<Timestamp>,
    pub(super) boot_sent_at: Option<Timestamp>,
    pub(super) boot_attempts: u32,
    /// What the BMC said when it refused the last one for now.
    pub(super) boot_refused: Option<String>,
    pub(super) boot_before: Option<(BootConfiguration, Medium)>,
}

pub struct Host {
    /// Of its bmc.tinkerbell.org Machine.
    pub(super) name: String,
    pub(super) context: Arc<Context>,
    state: Mutex<State>,
    pub(super) wake: Notify,
    /// Its lock is what keeps requests apart, whoever makes them.
    pub(super) session: tokio::sync::Mutex<Option<Session>>,
    pub(super) refused: Mutex<Option<Refused>>,
}

impl Host {
    pub(super) fn new(name: &str, context: Arc<Context>) -> Arc<Self> {
        let host = Self {
            name: name.to_owned(),
            context,
            state: Mutex::default(),
            wake: Notify::new(),
            session: tokio::sync::Mutex::new(None),
            refused: Mutex::default(),
        };
        host.look(host.context.machines.get(&host.context.inventory, name).as_deref());
        Arc::new(host)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is under this name now. Of another BMC nothing counts that was read or sent before.
    pub(super) fn look(&self, machine: Option<&Machine>) {
        let source = machine.map(Source::of);
        let mut state = self.state();
        if state.source == source {
            return;
        }
        let (needs, turn) = (std::mem::take(&mut state.needs), state.turn + 1);
        let identity = source.as_ref().map(Source::identity);
        *state = State { needs, source, identity, turn, since: Some(clock::now()), asked: true, ..State::default() };
        drop(state);
        self.wake.notify_one();
    }

    pub(super) fn need(&self, owner: &Owner, need: BmcNeed) {
        let mut state = self.state();
        let before = match need {
            BmcNeed::None => state.needs.remove(owner),
            need => state.needs.insert(owner.clone(), need),
        };
        if need == BmcNeed::Now || (need > BmcNeed::Now && before < Some(need)) {
            state.asked = true;
        }
        drop(state);
        if before.unwrap_or_default() != need || need == BmcNeed::Now {
            self.wake.notify_one();
        }
    }

    pub(super) fn is_needed(&self) -> bool {
        !self.state().needs.is_empty()
    }

    pub fn seen(&self) -> BmcSeen {
        let state = self.state();
        let fresh = state.problem.is_none() && state.answered.is_some_and(|at| at.elapsed() <= FRESH);
        BmcSeen {
            host: match (state.host.clone(), state.began) {
                (Some(host), _) if fresh => Seen::Fresh(host),
                (Some(value), Some(since)) => Seen::Stale { value, since },
                _ => Seen::Unknown,
            },
            read_at: state.began,
            listing_since: state.listing_since,
            post_since: state.post_since,
            problem: state.problem.clone(),
            accepted_at: state.accepted_at,
            boot_sent_at: state.boot_sent_at,
            boot_attempts: state.boot_attempts,
            boot_refused: state.boot_refused.clone(),
            identity: state.identity.clone(),
        }
    }

    /// Reads for as long as somebody needs it. What panics is told and begins anew, with the back-off of a reading that failed.
    pub(super) async fn run(self: Arc<Self>) {
        while let Err(panic) = caught(self.reads()).await {
            *self.session.lock().await = None;
            self.panicked("observe", &panic);
            let message = format!("the driver of bmc.tinkerbell.org Machine '{}' panicked: {panic}", self.name);
            self.tell(self.store(Err(BmcProblem::Failed(message))));
        }
    }

    /// A panic is a bug: it is counted and stands in the log, beside what is told to users.
    pub(super) fn panicked(&self, call: &'static str, panic: &str) {
        tracing::error!(bmc = self.name, call, "the driver panicked: {panic}");
        self.context.metrics.bmc_panicked(call);
    }

    async fn reads(&self) {
        while self.is_needed() {
            let pause = self.pause();
            // Woken or not, the pause is computed anew.
            let woken = tokio::time::timeout(pause, self.wake.notified()).await.is_ok();
            if !woken || self.pause().is_zero() {
                self.read().await;
            }
        }
    }

    /// How long until the next read.
    fn pause(&self) -> Duration {
        let state = self.state();
        let need = state.needs.values().max().copied().unwrap_or_default();
        let Some(answered) = state.answered else { return Duration::ZERO };
        let slowest = if need == BmcNeed::Seldom { SELDOM } else { SLOW };
        let every = match (need, state.failures) {
            (BmcNeed::Awaiting | BmcNeed::Now, 0) if state.asked => return Duration::ZERO,
            (BmcNeed::Awaiting, 0) => AWAITING,
            (_, 0) => slowest,
            (_, 1) => AGAIN,
            // The Secret is looked at; the BMC is left alone.
            _ if matches!(state.problem, Some(BmcProblem::Unauthorized(_))) => AGAIN,
            (_, failures) => AGAIN.saturating_mul(1 << failures.min(7)).min(slowest),
        };
        every.saturating_sub(answered.elapsed())
    }

    async fn read(&self) {
        let Ok(_permit) = self.context.permits.acquire().await else { return };
        self.state().asked = false;
        let result = self.observe().await;
        self.tell(self.store(result));
    }

    fn tell(&self, owners: Vec<Owner>) {
        for owner in owners {
            enqueue(&self.context.world, &owner);
        }
    }

    /// Who is to be told.
    fn store(&self, result: Result<Reading, BmcProblem>) -> Vec<Owner> {
        let mut state = self.state();
        if result.as_ref().is_ok_and(|reading| reading.turn != state.turn) {
            // Of another BMC by now.
            return Vec::new();
        }
        let urgent = state.needs.values().any(|need| *need >= BmcNeed::Now);
        let before = state.problem.clone();
        state.answered = Some(Instant::now());
        let (mut news, mut answers_otherwise) = (false, false);
        match result {
            Ok(Reading { host, began, .. }) => {
                answers_otherwise = before.is_some() || state.host.as_ref().is_none_or(|was| was.power != host.power);
                news |= state.host.as_ref() != Some(&host) || before.is_some();
                let sent = state.boot_sent_at.is_some_and(|sent| began > sent);
                let is_other =
                    |(boot, medium): &(BootConfiguration, Medium)| *boot != host.boot || *medium != host.medium;
                if sent && state.boot_before.as_ref().is_some_and(is_other) {
                    (state.boot_attempts, state.boot_before) = (0, None);
                }
                let lists = |seen: &HostObserved| seen.boot.options == host.boot.options && seen.post == host.post;
                if !state.host.as_ref().is_some_and(lists) {
                    state.listing_since = Some(began);
                }
                // A guest may reboot whenever it likes. What is told when this BMC is read first may have been told for days.
                state.post_since = match (host.post, state.host.as_ref().map(|was| was.post)) {
                    (Post::Running, Some(Post::Running) | None) => state.post_since,
                    (Post::Running, Some(_)) => Some(began),
                    _ => None,
                };
                state.host = Some(host);
                state.began = Some(began);
                state.failures = 0;
                state.problem = None;
            }
            Err(problem) => {
                state.failures += 1;
                if urgent || state.failures > 1 || state.host.is_none() {
                    news |= before.as_ref() != Some(&problem);
                    answers_otherwise = news;
                    state.problem = Some(problem);
                }
            }
        }
        // Who awaits a reading is told of each; all others of what they did not know, and who says whether it answers of that.
        let told = state.needs.iter().filter(|(owner, need)| match owner {
            Owner::Contact(_) => answers_otherwise,
            _ => news || **need >= BmcNeed::Now,
        });
        told.map(|(owner, _)| owner.clone()).collect()
    }
}

/// The message of a panic, if the future ended in one.
pub(super) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let said = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast_ref::<&str>().map_or("no message", |message| message).to_owned(),
    };
    AssertUnwindSafe(future).catch_unwind().await.map_err(said)
}
