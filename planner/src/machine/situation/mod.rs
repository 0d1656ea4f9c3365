//! What a round rests on, worked out once from what was observed: which server the machine has, how well its power is known, what
//! it shall be.
//!
//! The stages read it and never work it out again; none of it is stored (docs/design/architecture.md, *the stage is derived*).

mod guest;
mod hardware;
mod owned;
mod power;
mod record;
mod vetted;

pub(super) use guest::{UNDISTURBED, answered, heard_of};
pub(super) use hardware::{
    Host, Place, Power, dpu_of, granted_on, held, host, in_use, is_bare, is_granted, most_likely,
};
pub use hardware::{current, target};
pub(super) use owned::{Owned, Owner};
pub(super) use power::{Reading, SETTLE, Want, unread};
pub(super) use record::accepted_at;
pub use record::{action_name, state_name};
pub(super) use vetted::{vetted, vetted_of, wrong_server};

use hardware::place;

use super::maintenance;
use super::observed::Observed;
use crate::reason::Reason;
use api::machine::BootStrategy;
use api::tinkerbell::Hardware;
use std::ops::Deref;

/// What was observed, and what follows from it for every stage.
pub(super) struct Situation<'a> {
    o: &'a Observed,
    /// What belongs to the machine, as far as a release has to know.
    pub owned: Owned<'a>,
    /// The Hardware that a migration has claimed for this machine.
    pub target: Option<&'a Hardware>,
    /// Where the machine is moving to: it still has another Hardware.
    pub moves_to: Option<&'a Hardware>,
    /// How the machine runs on its Hardware, or why it cannot.
    pub place: Option<Result<Place<'a>, Reason>>,
    /// Its Hardware with the DPU in it, if that is how it runs.
    pub host: Option<Host<'a>>,
    /// Why the machine shall be off although its spec asks for something else.
    pub stopped: Option<Reason>,
    pub want: Want,
}

impl<'a> Situation<'a> {
    pub fn of(o: &'a Observed) -> Self {
        let (current, target) = (current(o), target(o));
        let moves_to = target.filter(|target| current.is_some_and(|current| !std::ptr::eq(*target, current)));
        let place = current.map(|current| place(o, current));
        let host = match &place {
            Some(Ok(Place::Dpu(host))) => Some(*host),
            _ => None,
        };
        let gives_back = o.deleting() || moves_to.is_some();
        let power = record::of_machine(&o.machine, current);
        let owned = Owned::new((Owner::Machine(&o.machine), &o.own), current, power, gives_back);
        let stopped = host.and_then(|host| maintenance::stops(o, host));
        let want = power::want(o, gives_back, stopped.is_some());
        Self { o, owned, target, moves_to, place, host, stopped, want }
    }

    /// A workflow installs this machine: as its claim says, or before there is one its spec.
    pub fn installs(&self) -> bool {
        match self.owned.current {
            Some(hardware) => is_bare(hardware),
            None => self.machine.spec.boot.strategy == BootStrategy::Workflow || self.owned.was_installed(),
        }
    }
}

impl Observed {
    /// Everything goes away from its Hardware: deleted, or on the way to another.
    pub fn gives_back(&self) -> bool {
        Situation::of(self).owned.gives_back
    }
}

impl Deref for Situation<'_> {
    type Target = Observed;

    fn deref(&self) -> &Observed {
        self.o
    }
}
