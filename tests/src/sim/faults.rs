//! Counts what the controllers, the agents and the boot service do to the outside, and makes one of these effects go wrong.
//!
//! An effect is a write to the API server, a command to a BMC, or a changing call of a port. Leases and Events are none:
//! they depend on time alone.

use super::random::Random;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Controller,
    Agent,
    /// The boot service.
    Boot,
}

/// What goes wrong with one effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is done; the process that did it dies before it hears so.
    Crash,
    /// It is not done; the process dies.
    CrashBefore,
    /// It is done; the caller is told 504 or that nobody answered.
    LoseAnswer,
    /// It is not done: 409, or that the part is busy.
    Refuse,
    /// The process dies, and its request arrives twenty seconds later all the same.
    Late,
    /// Nothing; but [`Faults::reached`] tells.
    Mark,
}

#[derive(Debug, Clone)]
pub enum Plan {
    None,
    /// The `at`th effect of these processes, counted from 0.
    At {
        who: Who,
        at: usize,
        fault: Fault,
    },
    /// Every effect when it is tried first.
    RefuseFirst(BTreeSet<String>),
    /// Some effects, so many in a thousand, until the moment has come.
    Storm {
        per_mille: u64,
        faults: Vec<Fault>,
        until: Timestamp,
    },
}

#[derive(Debug, Clone)]
pub struct Effect {
    pub at: Timestamp,
    pub who: Who,
    pub process: String,
    pub what: String,
    pub fault: Option<Fault>,
}

pub struct Faults {
    state: Mutex<State>,
    random: Random,
    pub reached: watch::Sender<bool>,
}

struct State {
    plan: Plan,
    journal: Vec<Effect>,
}

impl Faults {
    pub fn new(plan: Plan, random: Random) -> Self {
        let state = State { plan, journal: Vec::new() };
        Self { state: Mutex::new(state), random, reached: watch::Sender::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be asked right before an effect.
    pub fn effect(&self, who: Who, process: &str, what: &str) -> Option<Fault> {
        let mut state = self.state();
        let count = state.journal.iter().filter(|effect| effect.who == who).count();
        let now = runtime::clock::now();
        let fault = match &mut state.plan {
            Plan::None => None,
            Plan::At { who: whose, at, fault } => (*whose == who && *at == count).then_some(*fault),
            Plan::RefuseFirst(tried) => tried.insert(format!("{who:?} {what}")).then_some(Fault::Refuse),
            Plan::Storm { per_mille, faults, until } => {
                let hit = now < *until && self.random.below(1000) < *per_mille;
                hit.then(|| faults[self.random.below(faults.len() as u64) as usize])
            }
        };
        let (process, what) = (process.to_owned(), what.to_owned());
        state.journal.push(Effect { at: now, who, process, what, fault });
        drop(state);
        if fault == Some(Fault::Mark) {
            self.reached.send_replace(true);
        }
        fault
    }

    pub fn journal(&self) -> Vec<Effect> {
        self.state().journal.clone()
    }

    pub fn count(&self, who: Who) -> usize {
        self.state().journal.iter().filter(|effect| effect.who == who).count()
    }
}
