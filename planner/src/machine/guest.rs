//! GuestReachable: the guest answers, as its DPU reports.

use super::draft::Draft;
use super::situation::{Situation, UNDISTURBED, answered};
use super::steps::{Outcome, Step};
use crate::reason::Waiting;
use jiff::Timestamp;

/// The guest's answer, as the DPU reports it, since the host was last started.
pub(super) fn plan(o: &Situation<'_>, now: Timestamp, draft: &mut Draft) -> Outcome {
    if !draft.steps.done(Step::PoweredOn) {
        return match draft.steps.get(Step::PoweredOn) {
            Outcome::Off => Outcome::Off,
            _ => Outcome::Later,
        };
    }
    match answered(o, now) {
        Some(_) => Outcome::Done,
        None => {
            if let Some(at) = o.owned.record.at.map(|at| at + UNDISTURBED).filter(|at| *at > now) {
                draft.wake(at);
            }
            silent(o)
        }
    }
}

fn silent(o: &Situation<'_>) -> Outcome {
    match o.machine.spec.interfaces.first() {
        Some(first) => Outcome::Not(Waiting::GuestSilent { interface: first.name.clone() }.into()),
        None => Outcome::Later,
    }
}
