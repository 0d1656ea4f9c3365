//! The session with one BMC: opened when it is needed, given up after a reading that failed; one request at a time.

use super::endpoint::{self, Endpoint};
use super::host::{Host, caught};
use crate::clock;
use jiff::Timestamp;
use planner::host::{BootChange, HostObserved, MediumChange, PowerAction};
use planner::job::Request;
use planner::machine::observed::BmcProblem;
use ports::{Bmc, ErrorClass, PortError};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A refused login is tried again after so long even if the Secret has not changed.
const REFUSED: Duration = Duration::from_secs(300);

pub(super) struct Session {
    /// Which BMC the name stood for when it was opened.
    turn: u64,
    driver: Arc<dyn Bmc>,
    /// What the driver was made with.
    endpoint: Endpoint,
}

pub(super) struct Reading {
    pub(super) turn: u64,
    pub(super) began: Timestamp,
    pub(super) host: HostObserved,
}

/// A login that the BMC refused. It is not tried again before the Secret changes: many BMCs lock an account after a few
/// wrong passwords.
pub(super) struct Refused {
    endpoint: Endpoint,
    message: String,
    at: Instant,
}

type Slot<'a> = tokio::sync::MutexGuard<'a, Option<Session>>;

impl Host {
    pub(super) async fn observe(&self) -> Result<Reading, BmcProblem> {
        let mut slot = self.session.lock().await;
        let read = async {
            let session = self.opened(&mut slot).await?;
            let began = clock::now();
            self.state().asked = false;
            let host = self.timed("observe", session.driver.observe()).await.map_err(problem)?;
            Ok(Reading { turn: session.turn, began, host })
        };
        let result = read.await;
        if let Err(problem) = &result {
            let given_up = slot.take();
            if let (Some(session), BmcProblem::Unauthorized(message)) = (given_up, problem) {
                let refused = Refused { endpoint: session.endpoint, message: message.clone(), at: Instant::now() };
                *self.refused() = Some(refused);
            }
        }
        result
    }

    /// The session that is open, if it is with the BMC that the name stands for now; or another one.
    async fn opened<'a>(&self, slot: &'a mut Option<Session>) -> Result<&'a Session, BmcProblem> {
        let turn = self.state().turn;
        drop(slot.take_if(|session| session.turn != turn));
        Ok(match slot {
            Some(session) => session,
            none => none.insert(self.open().await?),
        })
    }

    async fn open(&self) -> Result<Session, BmcProblem> {
        let (context, name) = (&self.context, self.name.as_str());
        let there = endpoint::machine(&context.objects, &context.inventory, name).await?;
        if let Some(machine) = &there {
            context.machines.put(machine.clone());
        }
        self.look(there.as_ref());
        let turn = self.state().turn;
        let machine = there.ok_or_else(|| endpoint::no_machine(&context.inventory, name))?;
        let token = context.token.load(Ordering::SeqCst);
        let endpoint = endpoint::of(&context.objects, &context.inventory, &machine, token).await?;
        if let Some(refused) = self.refused().as_ref().filter(|r| r.endpoint == endpoint && r.at.elapsed() < REFUSED) {
            return Err(BmcProblem::Unauthorized(refused.message.clone()));
        }
        let driver = endpoint.open(context.factory.as_ref())?;
        Ok(Session { turn, driver, endpoint })
    }

    fn refused(&self) -> MutexGuard<'_, Option<Refused>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// To command the BMC of which a reading began at `read_at`: the plan rests on that.
    async fn ready(&self, read_at: Option<Timestamp>) -> Result<(Slot<'_>, Arc<dyn Bmc>), PortError> {
        let mut slot = self.session.lock().await;
        let driver = self.opened(&mut slot).await.map_err(refusal)?.driver.clone();
        if self.state().since > read_at {
            let message = format!("bmc.tinkerbell.org Machine '{}' has changed: the BMC is read first", self.name);
            return Err(PortError::new(ErrorClass::Busy, message));
        }
        Ok((slot, driver))
    }

    async fn send(
        &self,
        name: &'static str,
        mut slot: Slot<'_>,
        call: impl Future<Output = Result<(), PortError>>,
    ) -> Result<(), PortError> {
        let result = caught(self.timed(name, call)).await.unwrap_or_else(|panic| {
            *slot = None;
            self.panicked(name, &panic);
            let message = format!("bmc.tinkerbell.org Machine '{}': the driver panicked: {panic}", self.name);
            // It may have been done.
            Err(PortError::new(ErrorClass::Unreachable, message))
        });
        drop(slot);
        self.state().asked = true;
        self.wake.notify_one();
        result
    }

    /// Sends one power action. What it did is seen in a reading that begins later.
    pub async fn power(&self, action: PowerAction, read_at: Option<Timestamp>) -> Result<(), PortError> {
        let (slot, driver) = self.ready(read_at).await?;
        let result = self.send("power", slot, driver.power(action)).await;
        if result.is_ok() {
            self.state().accepted_at = Some(clock::now());
        }
        result
    }

    /// Sends what a Job asks for. Whatever was read before says nothing of the host afterwards, whoever rests on it.
    pub async fn command(&self, request: &Request, read_at: Option<Timestamp>) -> Result<(), PortError> {
        let (slot, driver) = self.ready(read_at).await?;
        let result = match request {
            Request::Power(action) => self.send("power", slot, driver.power(*action)).await,
            Request::Boot(change) => self.send("configure_boot", slot, driver.configure_boot(change)).await,
            Request::Medium(change) => self.send("change_medium", slot, driver.change_medium(change)).await,
        };
        let mut state = self.state();
        (state.answered, state.since) = (None, Some(clock::now()));
        drop(state);
        self.wake.notify_one();
        result
    }

    pub async fn configure_boot(&self, change: &BootChange, read_at: Option<Timestamp>) -> Result<(), PortError> {
        let (slot, driver) = self.ready(read_at).await?;
        self.prepare("configure_boot", slot, driver.configure_boot(change)).await
    }

    pub async fn change_medium(&self, change: &MediumChange, read_at: Option<Timestamp>) -> Result<(), PortError> {
        let (slot, driver) = self.ready(read_at).await?;
        self.prepare("change_medium", slot, driver.change_medium(change)).await
    }

    /// Sends what the host's next start rests on; it is an attempt until a reading shows anything new.
    async fn prepare(
        &self,
        name: &'static str,
        slot: Slot<'_>,
        call: impl Future<Output = Result<(), PortError>>,
    ) -> Result<(), PortError> {
        {
            let mut state = self.state();
            state.boot_sent_at = Some(clock::now());
            state.boot_attempts += 1;
            state.boot_before = state.host.as_ref().map(|host| (host.boot.clone(), host.medium.clone()));
        }
        let result = self.send(name, slot, call).await;
        let mut state = self.state();
        // Refused for now, as many BMCs do while their host is in POST: that was no attempt.
        state.boot_refused = result.as_ref().err().filter(|e| e.class == ErrorClass::Busy).map(|e| e.message.clone());
        if state.boot_refused.is_some() {
            state.boot_attempts = state.boot_attempts.saturating_sub(1);
        }
        drop(state);
        result
    }
}

pub(super) fn problem(error: PortError) -> BmcProblem {
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

/// Why nothing was sent.
fn refusal(problem: BmcProblem) -> PortError {
    let class = match &problem {
        BmcProblem::Unreachable(_) => ErrorClass::Unreachable,
        BmcProblem::Unauthorized(_) => ErrorClass::Unauthorized,
        BmcProblem::NotSpoken { .. } => ErrorClass::Unsupported,
        BmcProblem::Missing(_) | BmcProblem::Failed(_) | BmcProblem::WrongServer(_) => ErrorClass::Invalid,
    };
    PortError::new(class, problem.message())
}
