//! One BMC: the task that reads it, and the commands to it.

use super::endpoint::{self, BmcFactory, Endpoint};
use super::{Owner, Which, enqueue};
use crate::clock;
use crate::metrics::Metrics;
use crate::objects::Objects;
use crate::world::World;
use jiff::Timestamp;
use planner::host::{BootChange, BootConfiguration, HostObserved, PowerAction};
use planner::machine::BmcNeed;
use planner::machine::observed::{BmcProblem, BmcSeen};
use planner::seen::Seen;
use ports::{Bmc, ErrorClass, PortError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// A reading older than this is not of this moment.
const FRESH: Duration = Duration::from_secs(2);
const AWAITING: Duration = Duration::from_millis(300);
const SLOW: Duration = Duration::from_secs(30);
/// A refused login is tried again after so long even if the Secret has not changed.
const REFUSED: Duration = Duration::from_secs(300);
/// One read that fails in quiet times is not a problem yet.
const AGAIN: Duration = Duration::from_secs(2);

pub struct Context {
    pub factory: Arc<dyn BmcFactory>,
    pub objects: Objects,
    pub inventory: String,
    pub world: Arc<World>,
    pub(crate) metrics: Arc<Metrics>,
    pub permits: Semaphore,
    pub token: AtomicU64,
}

#[derive(Default)]
struct State {
    needs: BTreeMap<Owner, BmcNeed>,
    /// Somebody waits for the next reading, whatever it says.
    asked: bool,
    host: Option<HostObserved>,
    /// When the read of `host` began, and when it was answered.
    began: Option<Timestamp>,
    answered: Option<Instant>,
    failures: u32,
    problem: Option<BmcProblem>,
    accepted_at: Option<Timestamp>,
    boot_sent_at: Option<Timestamp>,
    boot_attempts: u32,
    boot_before: Option<BootConfiguration>,
}

pub struct Host {
    which: Which,
    context: Arc<Context>,
    state: Mutex<State>,
    wake: Notify,
    driver: tokio::sync::Mutex<Option<Arc<dyn Bmc>>>,
    /// A login that the BMC refused. It is not tried again before the Secret changes: many BMCs lock an account after a
    /// few wrong passwords.
    refused: Mutex<Option<Refused>>,
    /// What the open driver was made with.
    endpoint: Mutex<Option<Endpoint>>,
}

struct Refused {
    endpoint: Endpoint,
    message: String,
    at: Instant,
}

impl Host {
    pub(super) fn new(which: Which, context: Arc<Context>) -> Arc<Self> {
        Arc::new(Self {
            which,
            context,
            state: Mutex::default(),
            wake: Notify::new(),
            driver: tokio::sync::Mutex::new(None),
            refused: Mutex::default(),
            endpoint: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn need(&self, owner: Owner, need: BmcNeed) {
        let mut state = self.state();
        let before = match need {
            BmcNeed::None => state.needs.remove(&owner),
            need => state.needs.insert(owner, need),
        };
        if need == BmcNeed::Now || (need > BmcNeed::Now && before < Some(need)) {
            state.asked = true;
        }
        drop(state);
        if before != Some(need) || need == BmcNeed::Now {
            self.wake.notify_one();
        }
    }

    pub(super) fn is_needed(&self) -> bool {
        !self.state().needs.is_empty()
    }

    pub(super) fn is_owned_by(&self, owner: &Owner) -> bool {
        self.state().needs.contains_key(owner)
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
            problem: state.problem.clone(),
            accepted_at: state.accepted_at,
            boot_sent_at: state.boot_sent_at,
            boot_attempts: state.boot_attempts,
        }
    }

    /// Reads for as long as somebody needs it.
    pub(super) fn start(self: Arc<Self>) {
        tokio::spawn(async move {
            while self.is_needed() {
                let pause = self.pause();
                // Woken or not, the pause is computed anew.
                let woken = tokio::time::timeout(pause, self.wake.notified()).await.is_ok();
                if !woken || self.pause().is_zero() {
                    self.read().await;
                }
            }
        });
    }

    /// How long until the next read.
    fn pause(&self) -> Duration {
        let state = self.state();
        let need = state.needs.values().max().copied().unwrap_or_default();
        let Some(answered) = state.answered else { return Duration::ZERO };
        let every = match (need, state.failures) {
            (BmcNeed::Awaiting | BmcNeed::Now, 0) if state.asked => return Duration::ZERO,
            (BmcNeed::Awaiting, 0) => AWAITING,
            (_, 0) => SLOW,
            (_, 1) => AGAIN,
            // The Secret is looked at; the BMC is left alone.
            _ if matches!(state.problem, Some(BmcProblem::Unauthorized(_))) => AGAIN,
            (_, failures) => AGAIN.saturating_mul(1 << failures.min(5)).min(SLOW),
        };
        every.saturating_sub(answered.elapsed())
    }

    async fn read(&self) {
        let Ok(_permit) = self.context.permits.acquire().await else { return };
        let began = clock::now();
        self.state().asked = false;
        let result = match self.driver().await {
            Ok(driver) => self.timed("observe", driver.observe()).await.map_err(problem),
            Err(problem) => Err(problem),
        };
        if let Err(problem) = &result {
            self.remember(problem);
            *self.driver.lock().await = None;
        }
        let owners = self.store(began, result);
        for owner in owners {
            enqueue(&self.context.world.queues, &owner);
        }
    }

    /// Who is to be told.
    fn store(&self, began: Timestamp, result: Result<HostObserved, BmcProblem>) -> Vec<Owner> {
        let mut state = self.state();
        let urgent = state.needs.values().any(|need| *need >= BmcNeed::Now);
        let before = state.problem.clone();
        state.answered = Some(Instant::now());
        let mut news = urgent;
        match result {
            Ok(host) => {
                news |= state.host.as_ref() != Some(&host) || before.is_some();
                let sent = state.boot_sent_at.is_some_and(|sent| began > sent);
                if sent && state.boot_before.as_ref().is_some_and(|before| *before != host.boot) {
                    (state.boot_attempts, state.boot_before) = (0, None);
                }
                state.host = Some(host);
                state.began = Some(began);
                state.failures = 0;
                state.problem = None;
            }
            Err(problem) => {
                state.failures += 1;
                if urgent || state.failures > 1 || state.host.is_none() {
                    news |= before.as_ref() != Some(&problem);
                    state.problem = Some(problem);
                }
            }
        }
        if news { state.needs.keys().cloned().collect() } else { Vec::new() }
    }

    async fn driver(&self) -> Result<Arc<dyn Bmc>, BmcProblem> {
        let mut driver = self.driver.lock().await;
        if let Some(driver) = driver.as_ref() {
            return Ok(driver.clone());
        }
        let context = &self.context;
        let token = context.token.load(Ordering::SeqCst);
        let endpoint = endpoint::resolve(&context.objects, &context.inventory, &self.which, token).await?;
        if let Some(refused) = self.refused().as_ref().filter(|r| r.endpoint == endpoint && r.at.elapsed() < REFUSED) {
            return Err(BmcProblem::Unauthorized(refused.message.clone()));
        }
        let opened = context.factory.open(&endpoint).map_err(problem)?;
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner) = Some(endpoint);
        Ok(driver.insert(opened).clone())
    }

    async fn timed<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, PortError>>,
    ) -> Result<T, PortError> {
        let began = Instant::now();
        let result = call.await;
        self.context.metrics.bmc(name, began.elapsed(), result.as_ref().err().map(|error| error.class.as_str()));
        result
    }

    fn refused(&self) -> MutexGuard<'_, Option<Refused>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the login that was refused just now.
    fn remember(&self, problem: &BmcProblem) {
        let endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (BmcProblem::Unauthorized(message), Some(endpoint)) = (problem, endpoint) {
            *self.refused() = Some(Refused { endpoint, message: message.clone(), at: Instant::now() });
        }
    }

    async fn commanded(&self) -> Result<Arc<dyn Bmc>, PortError> {
        self.driver().await.map_err(|problem| match problem {
            BmcProblem::Missing(message) | BmcProblem::Failed(message) => PortError::new(ErrorClass::Invalid, message),
            BmcProblem::Unreachable(message) => PortError::new(ErrorClass::Unreachable, message),
            BmcProblem::Unauthorized(message) => PortError::new(ErrorClass::Unauthorized, message),
            BmcProblem::WrongServer(reason) => PortError::new(ErrorClass::Invalid, reason.message()),
        })
    }

    /// Sends one power action. What it did is seen in a reading that begins later.
    pub async fn power(&self, action: PowerAction) -> Result<(), PortError> {
        let driver = self.commanded().await?;
        let result = self.timed("power", driver.power(action)).await;
        {
            let mut state = self.state();
            state.asked = true;
            if result.is_ok() {
                state.accepted_at = Some(clock::now());
            }
        }
        self.wake.notify_one();
        result
    }

    pub async fn configure_boot(&self, change: &BootChange) -> Result<(), PortError> {
        let driver = self.commanded().await?;
        {
            let mut state = self.state();
            state.boot_sent_at = Some(clock::now());
            state.boot_attempts += 1;
            state.boot_before = state.host.as_ref().map(|host| host.boot.clone());
        }
        let result = self.timed("configure_boot", driver.configure_boot(change)).await;
        self.state().asked = true;
        self.wake.notify_one();
        result
    }
}

fn problem(error: PortError) -> BmcProblem {
    match error.class {
        ErrorClass::Unreachable => BmcProblem::Unreachable(error.message),
        ErrorClass::Unauthorized => BmcProblem::Unauthorized(error.message),
        ErrorClass::Busy
        | ErrorClass::NotFound
        | ErrorClass::Conflict
        | ErrorClass::Unsupported
        | ErrorClass::Invalid => BmcProblem::Failed(error.message),
    }
}
