//! The claimed server is the one that the DPU sits in.
//!
//! A reading of another server is no reading: it is taken away before anything is planned on it, and what would have been
//! read says why. So no step can power, grant to, or prove off a host that is not the right one.

use super::hardware::{current, dpu_in, is_bare};
use crate::identity::{self, Identity};
use crate::machine::observed::{Belongings, BmcProblem, BmcSeen, Observed};
use crate::meta::name;
use crate::reason::{Blocked, Reason};
use crate::seen::Seen;
use api::tinkerbell::Hardware;
use std::borrow::Cow;

/// The same, or without the reading if that is of another server.
pub(in crate::machine) fn vetted(o: &Observed) -> Cow<'_, Observed> {
    match vetted_of(o, current(o)) {
        Cow::Borrowed(_) => Cow::Borrowed(o),
        Cow::Owned(own) => Cow::Owned(Observed { own, ..o.clone() }),
    }
}

/// `current`: the owner's Hardware.
pub(in crate::machine) fn vetted_of<'a>(own: &'a Belongings, current: Option<&Hardware>) -> Cow<'a, Belongings> {
    let Some(reason) = mismatch(own, current) else { return Cow::Borrowed(own) };
    let bmc = BmcSeen { host: Seen::Unknown, problem: Some(BmcProblem::WrongServer(reason)), ..own.bmc.clone() };
    Cow::Owned(Belongings { bmc, ..own.clone() })
}

fn mismatch(own: &Belongings, current: Option<&Hardware>) -> Option<Blocked> {
    // The host of a machine that a workflow installs is none of a DPU's.
    let hardware = current.filter(|hardware| !is_bare(hardware))?;
    let dpu = dpu_in(own, name(&hardware.metadata))?;
    match identity::check(&dpu.dpu, own.bmc.host.last()) {
        Identity::Differs(message) => Some(Blocked::HardwareMismatch { dpu: dpu.name().to_owned(), message }),
        Identity::NotAsked | Identity::Matches | Identity::Unread | Identity::NotReported => None,
    }
}

/// Nothing is granted, claimed or powered because of this.
pub(in crate::machine) fn wrong_server(o: &Belongings) -> Option<Reason> {
    match &o.bmc.problem {
        Some(BmcProblem::WrongServer(reason)) => Some(reason.clone().into()),
        _ => None,
    }
}
