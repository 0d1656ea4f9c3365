//! What is waited for where the host does not show a function as it shall, or that cannot be read.

use super::{Blocked, Stage, Stuck, Waiting};
use crate::exposure::Presence;

pub(super) fn presence(presence: Presence) -> Option<Stuck> {
    match presence {
        Presence::Present => None,
        Presence::Appearing => Some(Stuck::waiting(Waiting::HostConnecting, "the host does not see it yet")),
        Presence::Leaving => {
            Some(Stuck::waiting(Waiting::HostLettingGo, "it was asked to leave and comes back when the host let go"))
        }
        Presence::Stranded => {
            let message = "what presents it was restarted under the host, which has it back after a power cycle";
            Some(Stuck::blocked(Blocked::HostPowerCycleNeeded, message.to_owned()))
        }
    }
}

pub(super) fn emulation_unknown() -> Stage {
    Stage::Stuck(Stuck::waiting(Waiting::EmulationUnknown, "what the host sees cannot be read now"))
}
