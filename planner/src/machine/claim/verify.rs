//! The claimed server is the one that the DPU sits in.
//!
//! A reading of another server is no reading: it is taken away before anything is planned on it, and what would have been
//! read says why. So no step can power, grant to, or prove off a host that is not the right one.

use super::claim;
use super::observed::{BmcProblem, BmcSeen, DpuSeen, Observed, name};
use crate::identity::{self, Identity};
use crate::reason::{Blocked, Reason, Waiting};
use crate::seen::Seen;
use api::conditions::{self, HOST_VERIFIED};
use std::borrow::Cow;

/// The same, or without the reading if that is of another server.
pub(super) fn vetted(o: &Observed) -> Cow<'_, Observed> {
    let Some(reason) = mismatch(o) else { return Cow::Borrowed(o) };
    let bmc = BmcSeen { host: Seen::Unknown, problem: Some(BmcProblem::WrongServer(reason)), ..o.bmc.clone() };
    Cow::Owned(Observed { bmc, ..o.clone() })
}

fn mismatch(o: &Observed) -> Option<Blocked> {
    // The host of a machine that a workflow installs is none of a DPU's.
    let hardware = claim::current(o).filter(|hardware| !claim::is_bare(hardware))?;
    let dpu = claim::dpu_of(&o.dpus, name(&hardware.metadata))?;
    let reported = o.bmc.host.last().map(|host| host.serial_number.as_deref());
    match identity::check(&dpu.dpu, reported) {
        Identity::Differs(message) => Some(Blocked::HardwareMismatch { dpu: dpu.name().to_owned(), message }),
        Identity::NotAsked | Identity::Matches | Identity::Unread | Identity::NotReported => None,
    }
}

/// Nothing is granted, claimed or powered because of this.
pub(super) fn wrong_server(o: &Observed) -> Option<Reason> {
    match &o.bmc.problem {
        Some(BmcProblem::WrongServer(reason)) => Some(reason.clone().into()),
        _ => None,
    }
}

/// Before a claim: what the controller found out about the DPU's server, for this spec.
pub(super) fn claimable(dpu: &DpuSeen) -> Result<(), Reason> {
    if identity::expected(&dpu.dpu).is_none() {
        return Ok(());
    }
    let dpu_name = dpu.name().to_owned();
    if let Identity::Differs(message) = identity::check(&dpu.dpu, None) {
        return Err(Blocked::HardwareMismatch { dpu: dpu_name, message }.into());
    }
    let said = dpu.dpu.status.as_ref().and_then(|status| conditions::get(&status.conditions, HOST_VERIFIED));
    let said = said.filter(|said| said.observed_generation == dpu.dpu.metadata.generation);
    match said.map(|said| (said.status.as_str(), said.reason.as_str(), said.message.clone())) {
        Some(("True", ..)) | Some((_, crate::dpu::NOT_REPORTED, _)) => Ok(()),
        Some(("False", _, message)) => Err(Blocked::HardwareMismatch { dpu: dpu_name, message }.into()),
        Some((_, _, message)) => Err(Waiting::DpuNotVerified { dpu: dpu_name, message }.into()),
        None => {
            let message = "the controller has not looked at it since it was changed".to_owned();
            Err(Waiting::DpuNotVerified { dpu: dpu_name, message }.into())
        }
    }
}
