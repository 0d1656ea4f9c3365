//! The claimed server is the one that the DPU sits in.
//!
//! A reading of another server is no reading: it is taken away before anything is planned on it, and what would have been
//! read says why. So no step can power, grant to, or prove off a host that is not the right one.

use super::hardware::{current, dpu_of, is_bare};
use crate::identity::{self, Identity};
use crate::machine::observed::{BmcProblem, BmcSeen, Observed};
use crate::meta::name;
use crate::reason::{Blocked, Reason};
use crate::seen::Seen;
use std::borrow::Cow;

/// The same, or without the reading if that is of another server.
pub(in crate::machine) fn vetted(o: &Observed) -> Cow<'_, Observed> {
    let Some(reason) = mismatch(o) else { return Cow::Borrowed(o) };
    let bmc = BmcSeen { host: Seen::Unknown, problem: Some(BmcProblem::WrongServer(reason)), ..o.bmc.clone() };
    Cow::Owned(Observed { bmc, ..o.clone() })
}

fn mismatch(o: &Observed) -> Option<Blocked> {
    // The host of a machine that a workflow installs is none of a DPU's.
    let hardware = current(o).filter(|hardware| !is_bare(hardware))?;
    let dpu = dpu_of(&o.dpus, name(&hardware.metadata))?;
    match identity::check(&dpu.dpu, o.bmc.host.last()) {
        Identity::Differs(message) => Some(Blocked::HardwareMismatch { dpu: dpu.name().to_owned(), message }),
        Identity::NotAsked | Identity::Matches | Identity::Unread | Identity::NotReported => None,
    }
}

/// Nothing is granted, claimed or powered because of this.
pub(in crate::machine) fn wrong_server(o: &Observed) -> Option<Reason> {
    match &o.bmc.problem {
        Some(BmcProblem::WrongServer(reason)) => Some(reason.clone().into()),
        _ => None,
    }
}
