//! What one DPU's agent does next: `plan(observed) -> Plan`.
//!
//! An attachment is worked on one step at a time. The shell observes, asks for a plan, takes the steps, and observes
//! again until there is nothing left to do; a step that failed comes back after a back-off, and so does everything
//! that a crash interrupted. docs/design/fencing.md is kept here:
//!
//! - Nothing is connected or exposed for an attachment unless the record, which a reboot forgets, says that this very
//!   (UID, epoch) was claimed on this boot. [`Step::Claim`] is the only way into the record (*ActivatedFromQuorum*).
//! - What the record names is adopted and, if its process crashed, replayed, with or without the API server
//!   (*RecordIsAdopted*, *RecordIsReplayed*).
//! - An attachment is taken away from the host when it is being deleted *and* has `release` (*HostIsOffFirst*,
//!   *AgentDetaches*).
//! - What the host was shown and no attachment explains is an orphan: it is kept, served and reported ([`orphans`]).
//! - What else nothing explains is taken away only if the list of attachments was read in this round; from an older list
//!   follows [`Plan::needs_fresh_list`], never a step. So it is with an orphan that may go, and with a report of orphans.

mod bring;
mod desired;
mod exposures;
mod nic;
mod observed;
mod orphans;
mod presence;
mod recovery;
mod report;
mod retry;
mod step;
mod take;
#[cfg(test)]
mod tests;

pub use desired::{
    Attachment, Eraser, Function, HoldDisk, Import, ImportDone, Key, Kind, Nic, Presentation, Seed, Volume,
};
pub use exposures::Exposures;
pub use observed::{Connected, Entry, Failure, FailureClass, Guest, ImportRun, Observed, Plugged, Recovery, Word};
pub use recovery::{Recover, Shown};
pub use report::{Exposed, Report, disk_status, nic_status};
pub use step::{Blocked, Step, StepKind, Stuck, Waiting, Why};

use crate::exposure::Presence;
use crate::seen::Seen;
use api::dpu::Orphan;
use std::time::Duration;

/// How soon to look again while the host or the switch is about to do something that nobody tells us of.
const SOON: Duration = Duration::from_millis(250);
/// How soon to look again for what a host that erases its disks reports.
const ERASER: Duration = Duration::from_secs(2);
/// How soon to look again at what could not be read, or at storage that is about to grow.
const LATER: Duration = Duration::from_secs(1);
/// What nearly always passes within a moment is told if it still stands after so long: that an attachment waits for its grant, a NIC for its
/// port, or the agent for the host that is to release a NIC.
const MOMENT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// One per attachment that is known, per orphan, and per entry of the record while the API server has never answered.
    pub items: Vec<Item>,
    /// Takes away what nothing explains and no host was shown, or what may be taken from a host.
    pub clear: Vec<Step>,
    /// Every disk of the host, to be presented at once.
    pub recover: Option<Recover>,
    /// What the host was shown and no attachment explains; `None`: not known now, so what was reported stands.
    pub orphans: Option<Vec<Orphan>>,
    /// Something is there that the list of attachments does not explain: read it from quorum, the Dpu too, and plan again.
    pub needs_fresh_list: bool,
    /// When to plan again although nothing was heard of.
    pub look_again: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    pub key: Key,
    pub step: Option<Step>,
    /// What to tell the user; `None` if the API server does not tell us of the attachment.
    pub report: Option<Report>,
    /// What the report says is about to pass: it is not told yet.
    pub passes: bool,
}

/// The outcome for one attachment.
#[derive(Debug, Clone, PartialEq)]
enum Stage {
    Act(Step),
    Done,
    Stuck(Stuck),
}

pub fn plan(observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    match observed.attachments.last() {
        None => {
            for entry in observed.record.values() {
                let asked = bring::Asked { size_bytes: None, limits: entry.limits };
                let stage = bring::bring(observed, &entry.id, &entry.function, asked);
                let (step, _) = retry::retry(observed, &mut plan.look_again, stage);
                plan.items.push(Item { key: entry.key.clone(), step, report: None, passes: false });
            }
        }
        Some(attachments) => {
            for attachment in attachments {
                let stage = decide(observed, attachment);
                let (step, stuck) = retry::retry(observed, &mut plan.look_again, stage);
                let rest = stuck.as_ref().map_or(Duration::ZERO, |stuck| untold(observed, &attachment.key, stuck.why));
                let passes = !rest.is_zero();
                if passes {
                    sooner(&mut plan.look_again, rest);
                }
                let report = report::report(observed, attachment, step.as_ref(), stuck);
                plan.items.push(Item { key: attachment.key.clone(), step, report: Some(report), passes });
            }
            let unexplained = orphans::unexplained(observed, attachments);
            for (entry, stage) in unexplained.serve {
                let (step, _) = retry::retry(observed, &mut plan.look_again, stage);
                plan.items.push(Item { key: entry.key, step, report: None, passes: false });
            }
            let is_told = unexplained.orphans == observed.word.reported;
            let is_fresh = matches!(observed.attachments, Seen::Fresh(_));
            if is_fresh {
                for step in unexplained.clear {
                    plan.clear.extend(retry::retry(observed, &mut plan.look_again, Stage::Act(step)).0);
                }
            } else {
                plan.needs_fresh_list = !is_told || !unexplained.clear.is_empty();
            }
            plan.orphans = (is_fresh || is_told).then_some(unexplained.orphans);
        }
    }
    plan.recover = recovery::due(observed);
    if observed.recovery.is_some() {
        sooner(&mut plan.look_again, SOON);
    }
    // Nobody tells when the host has let go: also what no attachment explains is looked at until it is gone.
    let mut shown = observed.exposures.last().into_iter().flatten();
    if shown.any(|exposure| exposure.presence == Presence::Leaving) {
        sooner(&mut plan.look_again, SOON);
    }
    // Nobody tells what a host writes onto its disk.
    if observed.record.values().any(|entry| matches!(entry.function, Function::Eraser(_))) {
        sooner(&mut plan.look_again, ERASER);
    }
    // What is said of a port changes with the time that it takes.
    let rests = observed.not_in_force_since.keys().map(|uid| nic::rest(observed, uid));
    rests.filter(|rest| !rest.is_zero()).for_each(|rest| sooner(&mut plan.look_again, rest));
    plan
}

/// How long until it is told that this is waited for.
fn untold(observed: &Observed, key: &Key, why: Why) -> Duration {
    let since = match why {
        Why::Waiting(Waiting::NotGranted) => observed.ungranted_since.get(&key.uid),
        Why::Waiting(Waiting::NotBound | Waiting::NotInForce | Waiting::PortNotForwarding) => {
            observed.not_in_force_since.get(&key.uid)
        }
        Why::Waiting(Waiting::HostLettingGo) if key.kind == Kind::Nic => observed.hidden_at.get(&key.uid),
        _ => None,
    };
    let Some(since) = since else { return Duration::ZERO };
    let waited = observed.now.duration_since(*since).max(jiff::SignedDuration::ZERO).unsigned_abs();
    MOMENT.saturating_sub(waited)
}

fn decide(observed: &Observed, attachment: &Attachment) -> Stage {
    if attachment.dpu_name != observed.dpu_name {
        return Stage::Stuck(Stuck::blocked(
            Blocked::OtherDpu,
            format!(
                "spec.dpuName is '{}', and this agent is that of Dpu '{}': the agent does nothing",
                attachment.dpu_name, observed.dpu_name
            ),
        ));
    }
    if attachment.deleting {
        if attachment.release {
            return take::take(observed, attachment);
        }
        let message = "being deleted without spec.release: it stays as it is until the controller releases it";
        return Stage::Stuck(Stuck::waiting(Waiting::NotReleased, message));
    }
    let function = match &attachment.function {
        Ok(function) => function,
        Err(message) => return Stage::Stuck(Stuck::blocked(Blocked::InvalidSpec, message.clone())),
    };
    if attachment.id().is_some_and(|id| observed.released.contains(&id)) {
        let message = "its release was asked for on this boot, and of that the API server knows nothing any more: it was \
                       restored to an earlier revision, and the volume may be another's by now";
        return Stage::Stuck(Stuck::blocked(Blocked::ReleasedBefore, message));
    }
    let Some(id) = attachment.id() else {
        return Stage::Stuck(Stuck::waiting(Waiting::NotGranted, "the controller has not granted the attachment"));
    };
    if let Some(stuck) = bring::other_epoch(observed, &id) {
        return Stage::Stuck(stuck);
    }
    if let (Function::Import(_), Some(_)) = (function, observed.import_done(attachment)) {
        return Stage::Done;
    }
    if observed.record.get(&id.uid).is_none_or(|entry| entry.id != id) {
        let shown = observed.exposure(&id).is_some();
        return Stage::Act(Step::Claim { key: attachment.key.clone(), id, shown });
    }
    let asked = bring::Asked { size_bytes: attachment.size_bytes, limits: attachment.limits };
    bring::bring(observed, &id, function, asked)
}

/// The earlier of two times to look again.
fn sooner(look_again: &mut Option<Duration>, candidate: Duration) {
    *look_again = Some(look_again.map_or(candidate, |earlier| earlier.min(candidate)));
}
