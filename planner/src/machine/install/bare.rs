//! A machine on a server without a DPU: installed by a workflow, then started from the server's own disk.
//!
//! What is on while the installer runs is not yet the machine: until it is installed, PoweredOn says what the installation waits
//! for, and so neither `state` nor `Ready` runs ahead. How a BMC is asked for the boot from the network is [`netboot`]'s.

use super::Stage;
use crate::host::{BmcNeed, PowerAction, PowerState};
use crate::install::Record;
use crate::machine::draft::Draft;
use crate::machine::plan::PowerOrder;
use crate::machine::power::{self, For};
use crate::machine::situation::{Owned, Power, Reading, Situation, Want, unread};
use crate::machine::steps::{Outcome, Step};
use crate::machine::{boot, guest, netboot};
use crate::meta::{name, uid};
use crate::netboot::report::{netboot_since, told_since};
use crate::netboot::session::SILENT;
use crate::netboot::{Why, other_server, reason_since};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use crate::verbs::forbids_start;
use crate::workflow;
use api::conditions::{self, INSTALLED};
use api::report::NetbootStage;
use api::tinkerbell::{Hardware, Workflow};
use jiff::{SignedDuration, Timestamp};

/// From power-on to the agent's first call, and from one action's end to the next one's beginning: servers take 15 minutes to come up.
const LIMIT: SignedDuration = SignedDuration::from_mins(20);
/// An agent that is no longer heard may come back by itself for so long: a switch that restarts takes a few minutes.
const COMES_BACK: SignedDuration = SignedDuration::from_mins(5);
/// After that its host is powered off and on, so often for one Workflow.
const RESETS: u32 = 2;
/// The last action of an installation restarts the server: no installer is heard so long after the machine has said that it is installed.
const RESTARTS_WITHIN: SignedDuration = SignedDuration::from_secs(60);
/// Of a machine that no longer exists nothing is looked at when another Hardware changes.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(1);
/// A server that lost its power in an installation is powered on again so often.
pub(in crate::machine) const POWER_ONS: u32 = 3;

pub(in crate::machine) fn bring(o: &Situation<'_>, hardware: &Hardware, now: Timestamp, draft: &mut Draft) {
    for step in [Step::VolumesReady, Step::DisksAttached, Step::NicsAttached] {
        draft.set(step, Outcome::Done);
    }
    match super::stage(o, hardware, draft) {
        Stage::Installed => installed(o, hardware, now, draft),
        Stage::Not(reason) => not_installed(o, hardware, reason, now, draft),
        Stage::Runs(workflow) => {
            let reason = reason(run(&o.owned, hardware, workflow, now, draft), hardware, workflow);
            draft.set(Step::Installed, Outcome::Not(reason.clone()));
            draft.set(Step::PoweredOn, Outcome::Not(reason));
        }
    }
    let reachable = guest::plan(o, now, draft);
    draft.set(Step::GuestReachable, reachable);
}

fn installed(o: &Situation<'_>, hardware: &Hardware, now: Timestamp, draft: &mut Draft) {
    draft.set(Step::Installed, Outcome::Done);
    let boot = match o.want {
        Want::Off => None,
        _ => netboot::undo(&o.owned, hardware, now, draft).or_else(|| {
            let before = o.machine.status.as_ref().and_then(|status| status.install.as_ref());
            let disk = Record::of(&hardware.metadata).and_then(|record| super::disk::of(o, &record, before));
            boot::local(o, hardware, disk.as_ref(), now, draft)
        }),
    };
    draft.set(Step::BootConfigured, boot.clone().map_or(Outcome::Done, Outcome::Not));
    if let Some(reason) = in_installer(o, hardware, now, draft) {
        return draft.set(Step::PoweredOn, Outcome::Not(reason));
    }
    let held = forbids_start(&o.machine.metadata);
    let gates = power::Gates { start: boot.clone().or(held), reset: boot, setup: None };
    power::plan(o, Power::bare(hardware), &gates, now, draft);
}

/// The installer runs on a host that is installed: a boot service that had not heard yet of the end of the installation has started the installer once
/// more, or the restart at that end has failed. A session is the installer's own word that it runs, and no other agent's. The host is reset, a few
/// times, if it was heard a moment ago: by then it may have restarted by itself.
fn in_installer(o: &Situation<'_>, hardware: &Hardware, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let heard_at = stays(o)?;
    let is_other = matches!(o.owned.reading, Reading::Rising(_))
        || matches!(o.owned.reading, Reading::Fresh(state) if state != PowerState::On);
    if o.want == Want::Off || now >= heard_at + SILENT || is_other {
        return None;
    }
    draft.wake(heard_at + SILENT);
    let hardware = name(&hardware.metadata).to_owned();
    if o.owned.record.agent_resets >= RESETS {
        return Some(Failed::InstallerStays { hardware, resets: RESETS }.into());
    }
    if matches!(o.owned.reading, Reading::Old(_) | Reading::None) {
        draft.need_bmc(BmcNeed::Now);
        return Some(unread(o, hardware));
    }
    let order =
        PowerOrder { for_agent: true, attempts: o.owned.record.attempts, ..PowerOrder::plain(PowerAction::WarmReset) };
    Some(power::send(&o.owned, &hardware, order, draft).unwrap_or_else(|| Waiting::Resetting { hardware }.into()))
}

/// When the installer was last heard, if that was well after the end of the installation, and since the last power action. No clock of an agent counts.
fn stays(o: &Situation<'_>) -> Option<Timestamp> {
    let session = o.owned.seen()?.session.as_ref().filter(|session| session.ended_at.is_none())?;
    let conditions = &o.machine.status.as_ref()?.conditions;
    let installed = conditions::get(conditions, INSTALLED).filter(|said| said.status == "True")?;
    let heard_at = session.heard_at.0;
    let is_after = heard_at > installed.last_transition_time.0 + RESTARTS_WITHIN;
    (is_after && o.owned.record.at.is_none_or(|at| heard_at > at)).then_some(heard_at)
}

/// Nothing runs for the machine: its host is off where it shall be, and is left alone otherwise.
fn not_installed(o: &Situation<'_>, hardware: &Hardware, reason: Reason, now: Timestamp, draft: &mut Draft) {
    draft.set(Step::Installed, Outcome::Not(reason.clone()));
    if o.want == Want::Off {
        let gates = power::Gates { start: None, reset: None, setup: None };
        return power::plan(o, Power::bare(hardware), &gates, now, draft);
    }
    let keeps_off = o.want == Want::Keep
        && matches!(o.owned.reading, Reading::Fresh(PowerState::Off) | Reading::Old(PowerState::Off));
    draft.set(Step::PoweredOn, if keeps_off { Outcome::Off } else { Outcome::Not(reason) });
}

/// How far a server is on the way through its Workflow.
pub(in crate::machine) enum Run {
    /// To its start.
    Comes(Reason),
    /// With what was seen of it.
    NetbootAwaited(String),
    At {
        action: String,
        at: usize,
        of: usize,
    },
    /// The limits, after which nothing goes on by itself. `cause`: why DHCP does not serve the server, if that is it.
    NetbootNotTaken {
        seen: String,
        cause: Option<Reason>,
    },
    InstallerLost {
        action: String,
    },
    PowerLost,
    /// What is told of that, and what comes of it.
    AgentLost(String),
    /// Who asked the network is another server.
    WrongServer {
        told: String,
        expected: String,
    },
}

fn reason(run: Run, hardware: &Hardware, workflow: &Workflow) -> Reason {
    let (hardware, workflow) = (name(&hardware.metadata).to_owned(), name(&workflow.metadata).to_owned());
    match run {
        Run::Comes(reason) => reason,
        Run::NetbootAwaited(seen) => Waiting::NetbootAwaited { hardware, seen }.into(),
        Run::At { action, at, of } => Waiting::Installing { workflow, action, at, of }.into(),
        Run::NetbootNotTaken { cause: Some(cause), .. } => cause,
        Run::NetbootNotTaken { seen, cause: None } => Failed::NetbootNotTaken { hardware, seen }.into(),
        Run::InstallerLost { action } => Failed::InstallerLost { workflow, action }.into(),
        Run::WrongServer { told, expected } => Blocked::WrongServerBooted { hardware, told, expected }.into(),
        Run::AgentLost(message) => Waiting::AgentLost { workflow, message }.into(),
        Run::PowerLost => Failed::InstallFailed { workflow, message: power_lost() }.into(),
    }
}

pub(in crate::machine) fn power_lost() -> String {
    format!("the server was found powered off {POWER_ONS} times")
}

/// Brings the server to its Workflow: off by a fresh reading, the next boot from the network, on.
pub(in crate::machine) fn run(
    o: &Owned<'_>,
    hardware: &Hardware,
    workflow: &Workflow,
    now: Timestamp,
    draft: &mut Draft,
) -> Run {
    let server = Power::bare(hardware);
    let record = &o.record;
    let run = uid(&workflow.metadata);
    let started = record.asked_on() && record.started_for == Some(run);
    // An agent that reports has been started, whatever became of the record.
    let runs = started || super::is_running(workflow);
    match o.reading {
        Reading::Fresh(PowerState::On | PowerState::PoweringOn) | Reading::Old(PowerState::On) if runs => {
            follow(o, hardware, workflow, now, draft)
        }
        Reading::Fresh(PowerState::Off) if started && record.attempts + 1 >= POWER_ONS && record.went_off() => {
            Run::PowerLost
        }
        Reading::Fresh(PowerState::Off) => {
            // In vain it is not powered on.
            if let Some(reason) = same_mac(o, hardware, now, draft) {
                return Run::Comes(reason);
            }
            let (by, not) = match netboot::ask(o, hardware, run, now, draft) {
                Ok(by) => (Some(by), None),
                Err(reason) => (None, Some(reason)),
            };
            Run::Comes(power::start_for(o, server, not, For { run, into_setup: false, netboot_by: by }, now, draft))
        }
        // Whatever runs there was not started for this.
        _ => Run::Comes(match power::off(o, server.name, now, draft) {
            Some(reason) => reason,
            None => {
                draft.need_bmc(BmcNeed::Now);
                unread(o, server.name.to_owned())
            }
        }),
    }
}

fn same_mac(o: &Owned<'_>, hardware: &Hardware, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let reason = o.same_mac.get(name(&hardware.metadata))?;
    if o.owner.is_gone() {
        draft.wake(now + LOOK_AGAIN);
    }
    Some(reason.clone())
}

/// Why DHCP does not serve a server that was started at `since`.
fn unserved(
    o: &Owned<'_>,
    hardware: &Hardware,
    since: Option<Timestamp>,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    same_mac(o, hardware, now, draft).or_else(|| reason_since(hardware, o.seen(), since))
}

/// An agent of this run that is no longer heard: since when, and what its Workflow tells of that. What the agent says itself counts more.
fn lost<'a>(o: &Owned<'_>, workflow: &'a Workflow) -> Option<(Timestamp, &'a str)> {
    let (told_at, message) = workflow::is_lost(workflow)?;
    let session = o.seen()?.session.as_ref()?;
    let heard_at = session.heard_at.0;
    (session.ended_at.is_none() && heard_at < told_at).then_some((heard_at, message))
}

/// The host is on, and nobody is heard on it. It is powered off and on, a few times, if the agent of the next start is served again what
/// this one was at; the time of its action goes on.
fn after_loss(
    o: &Owned<'_>,
    hardware: &Hardware,
    workflow: &Workflow,
    (since, message): (Timestamp, &str),
    now: Timestamp,
    draft: &mut Draft,
) -> Run {
    let record = &o.record;
    let sent = record.at.filter(|at| *at > since);
    if matches!((record.action, sent), (Some(PowerAction::ForceOff | PowerAction::SoftOff), Some(_)))
        && let Some(reason) = power::off(o, name(&hardware.metadata), now, draft)
    {
        return Run::Comes(reason);
    }
    let started = sent.filter(|_| record.asked_on());
    let due = started.map_or(since + COMES_BACK, |started| started + LIMIT);
    if started.is_some() && now < due {
        draft.wake(due);
        return match unserved(o, hardware, started, now, draft) {
            Some(cause) => Run::Comes(cause),
            None => Run::NetbootAwaited(told_since(o.seen(), started)),
        };
    }
    let resets = match record.started_for == Some(uid(&workflow.metadata)) {
        true => record.agent_resets,
        false => 0,
    };
    let then = if !workflow::may_restart(workflow) {
        "the controller leaves the server as it is, for what the agent was at is not to run once more".to_owned()
    } else if resets >= RESETS {
        format!("the controller has powered the server off and on {RESETS} times, and leaves the server as it is")
    } else if now < due {
        draft.wake(due);
        format!("the controller powers the server off and on at {}", due.strftime("%H:%M:%SZ"))
    } else if o.reading == Reading::Fresh(PowerState::On) {
        return Run::Comes(power::off_for_lost_agent(o, name(&hardware.metadata), draft));
    } else {
        draft.need_bmc(BmcNeed::Now);
        "the controller reads the power of the server, to power it off and on".to_owned()
    };
    Run::AgentLost(format!("{message}; {then}"))
}

fn follow(o: &Owned<'_>, hardware: &Hardware, workflow: &Workflow, now: Timestamp, draft: &mut Draft) -> Run {
    if let Some(lost) = lost(o, workflow) {
        return after_loss(o, hardware, workflow, lost, now, draft);
    }
    let at = super::at(workflow);
    let made = workflow.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let began = o.record.at.max(made);
    let seen = netboot_since(o.seen(), began);
    let identity = o.seen().and_then(|status| status.identity.as_ref()).filter(|_| seen.is_some());
    let uuid = identity.and_then(|identity| identity.uuid.as_deref());
    if let Some(Why::OtherServer { told, expected, .. }) = other_server(hardware, uuid)
        && !super::is_running(workflow)
    {
        return Run::WrongServer { told, expected };
    }
    // One that comes nearer is waited for.
    let came = seen.filter(|seen| seen.stage <= NetbootStage::Agent).map(|seen| seen.at.0);
    let since = began.max(super::last_report(workflow)).max(came);
    if super::is_running(workflow) {
        netboot::worked(o, hardware, uid(&workflow.metadata), draft);
    }
    let over = since.map(|since| since + LIMIT).filter(|_| !super::is_running(workflow));
    let cause = match (&at, over) {
        (None, Some(_)) => unserved(o, hardware, began, now, draft),
        _ => None,
    };
    // An agent that was served something came, whatever became of the report; a server that DHCP does not serve has asked the network.
    if let (Some(over), Some(began), None, None, None) = (over, began, seen.as_ref(), at.as_ref(), cause.as_ref()) {
        let run = (uid(&workflow.metadata), began);
        if let Some(reason) = netboot::next(o, hardware, run, over <= now, now, draft) {
            return Run::Comes(reason);
        }
    }
    if let Some(over) = over {
        if over <= now {
            return match at {
                Some((action, ..)) => Run::InstallerLost { action },
                None => {
                    let tried = netboot::tried(o, hardware, uid(&workflow.metadata));
                    let told = told_since(o.seen(), began);
                    let seen = tried.map_or(told.clone(), |tried| format!("{told}; {tried}"));
                    Run::NetbootNotTaken { seen, cause }
                }
            };
        }
        draft.wake(over);
    }
    match (at, cause) {
        (Some((action, at, of)), _) => Run::At { action, at, of },
        (None, Some(cause)) => Run::Comes(cause),
        (None, None) => Run::NetbootAwaited(told_since(o.seen(), began)),
    }
}
