//! GuestReachable: the guest answers, as its DPU reports; of a server without a DPU, the boot service has heard of the system.

use super::draft::Draft;
use super::situation::{Situation, UNDISTURBED, answered};
use super::steps::{Outcome, Step};
use crate::meta::name;
use crate::reason::Waiting;
use jiff::Timestamp;

/// Since the host was last started.
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
    if let Some(hardware) = o.owned.bare() {
        return Outcome::Not(Waiting::SystemSilent { hardware: name(&hardware.metadata).to_owned() }.into());
    }
    match o.machine.spec.interfaces.first() {
        Some(first) => Outcome::Not(Waiting::GuestSilent { interface: first.name.clone() }.into()),
        None => Outcome::Later,
    }
}
