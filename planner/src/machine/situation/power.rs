//! What the host's power is, how well that is known, and what it shall be.

use super::record::Record;
use crate::host::PowerState;
use crate::machine::observed::{Belongings, BmcProblem, Observed, annotation};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use api::labels;
use api::machine::RunStrategy;
use jiff::{SignedDuration, Timestamp};

/// How long a BMC may take to show what it accepted.
pub(in crate::machine) const SETTLE: SignedDuration = SignedDuration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::machine) enum Want {
    On,
    Off,
    /// As it is: `Manual` without a request.
    Keep,
}

pub(in crate::machine) fn want(o: &Observed, gives_back: bool, is_stopped: bool) -> Want {
    match o.run_strategy() {
        _ if gives_back || is_stopped => Want::Off,
        RunStrategy::Halted => Want::Off,
        RunStrategy::Always => Want::On,
        RunStrategy::Manual => match annotation(&o.machine.metadata, labels::POWER_REQUESTED) {
            Some("On") => Want::On,
            Some("Off") => Want::Off,
            _ => Want::Keep,
        },
    }
}

/// Why there is no reading of this moment.
pub(in crate::machine) fn unread(o: &Belongings, hardware: String) -> Reason {
    match o.bmc.problem.clone() {
        Some(BmcProblem::Missing(message)) => Blocked::BmcMissing { hardware, message }.into(),
        Some(BmcProblem::NotSpoken { machine, protocol }) => {
            Blocked::BmcProtocolUnsupported { hardware, machine, protocol: protocol.name().to_owned() }.into()
        }
        Some(BmcProblem::Unauthorized(message)) => Blocked::BmcUnauthorized { hardware, message }.into(),
        Some(BmcProblem::Unreachable(message)) => Failed::BmcUnreachable { hardware, message }.into(),
        Some(BmcProblem::Failed(message)) => Failed::BmcFailed { hardware, message }.into(),
        Some(BmcProblem::WrongServer(reason)) => reason.into(),
        None => Waiting::BmcReading { hardware }.into(),
    }
}

/// How well the power state is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::machine) enum Reading {
    /// Off, so soon after a power-on was sent that it may still come: until then it is neither on nor off.
    Rising(Timestamp),
    /// Read in this round, after the last action: what an action may rest on.
    Fresh(PowerState),
    /// Read after the last action, a while ago, and nothing has gone wrong since.
    Old(PowerState),
    None,
}

pub(in crate::machine) fn reading(o: &Belongings, record: &Record<'_>) -> Reading {
    let sent = record.at;
    if sent.is_some() && o.bmc.read_at <= sent {
        return Reading::None;
    }
    if let Some(settled) = rises(o, record) {
        return Reading::Rising(settled);
    }
    match (o.bmc.host.fresh(), o.bmc.host.last()) {
        (Some(host), _) => Reading::Fresh(host.power),
        (None, Some(host)) if o.bmc.problem.is_none() => Reading::Old(host.power),
        _ => Reading::None,
    }
}

/// Until when a host that is read off may still come on: its power-on was sent, and no reading since then was of a later
/// moment, or showed it on.
fn rises(o: &Belongings, record: &Record<'_>) -> Option<Timestamp> {
    let settled = record.at? + SETTLE;
    let is_off = o.bmc.problem.is_none() && o.bmc.host.last().is_some_and(|host| host.power == PowerState::Off);
    let pending = is_off && record.asked_on() && !record.went_off();
    (pending && o.bmc.read_at? < settled).then_some(settled)
}
