//! What is waited for where the host does not show a function as it shall, or that cannot be read.

use super::{Blocked, Stage, Stuck, Waiting};
use crate::exposure::Presence;

pub(super) fn presence(presence: Presence) -> Option<Stuck> {
    match presence {
        Presence::Present => None,
        Presence::Appearing => {
            Some(Stuck::waiting(Waiting::HostConnecting, "the host has not enumerated the function yet"))
        }
        Presence::Leaving => Some(Stuck::waiting(
            Waiting::HostLettingGo,
            "the function is being hot-unplugged, and is presented again once the host has released the function",
        )),
        Presence::Stranded => {
            let message = "the program that presents the disk was restarted while the host ran: the host sees the disk again after a power cycle";
            Some(Stuck::blocked(Blocked::HostPowerCycleNeeded, message.to_owned()))
        }
    }
}

pub(super) fn emulation_unknown() -> Stage {
    Stage::Stuck(Stuck::waiting(Waiting::EmulationUnknown, "the agent cannot read now which functions the host has"))
}
