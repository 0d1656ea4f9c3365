//! When each step of the last start began and ended: one entry per step.
//!
//! A start ends when the host is on as asked; what changes later (a disk is plugged, a claim grows) is no step of it. The next
//! start begins when the host is off again and shall not be, or when it is reset.
//!
//! An installation has its actions besides. One ends here when the next one is served, or when the Workflow has ended: then the conditions
//! change too, and nothing is written for the timeline alone.

use crate::host::PowerAction;
use crate::machine::draft::Draft;
use crate::machine::install;
use crate::machine::plan::Disruptive;
use crate::machine::situation::{Situation, Want};
use crate::machine::steps::{Outcome, Step};
use crate::workflow::{has_succeeded, is_terminal, state};
use api::conditions;
use api::machine::{TimelineAction, TimelineEntry};
use api::tinkerbell::Workflow;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

const POWER_ON_SENT: &str = "PowerOnSent";
const FIRST_PACKET: &str = "FirstPacket";

/// In the order in which they happen.
const ORDER: [&str; 10] = [
    conditions::HARDWARE_CLAIMED,
    conditions::VOLUMES_READY,
    conditions::DISKS_ATTACHED,
    conditions::NICS_ATTACHED,
    conditions::BOOT_CONFIGURED,
    POWER_ON_SENT,
    conditions::INSTALLED,
    conditions::POWERED_ON,
    FIRST_PACKET,
    conditions::GUEST_REACHABLE,
];

pub(super) fn advance(o: &Situation<'_>, draft: &Draft, entries: &mut Vec<TimelineEntry>, now: Timestamp) {
    let mut over = entries.iter().any(|e| e.step == conditions::POWERED_ON && e.finished_at.is_some());
    if o.want == Want::Off || matches!(draft.steps.get(Step::PoweredOn), Outcome::Off) {
        if !over {
            // A start that was given up.
            entries.clear();
        }
        return;
    }
    let starts = match &draft.disruptive {
        Some(Disruptive::Power(order)) => matches!(order.action, PowerAction::On | PowerAction::WarmReset),
        _ => false,
    };
    if over && (starts || o.owned.was_off()) {
        entries.clear();
        over = false;
    }
    if starts {
        entries.retain(|e| ![POWER_ON_SENT, FIRST_PACKET, conditions::GUEST_REACHABLE].contains(&e.step.as_str()));
        entries.push(entry(POWER_ON_SENT, Some(now), Some(now)));
    }
    let was_open = entries.iter().any(|entry| entry.step == conditions::INSTALLED && entry.finished_at.is_none());
    // The guest comes after the power.
    let concerns = |step: &Step| *step != Step::Installed || o.installs();
    for step in Step::ALL.into_iter().filter(concerns).filter(|step| !over || *step == Step::GuestReachable) {
        step_of(entries, step, draft.steps.get(step), over, now);
    }
    let installed = entries.iter_mut().find(|entry| entry.step == conditions::INSTALLED);
    if let Some(entry) = installed.filter(|entry| was_open || entry.finished_at.is_none())
        && let Some(run) = install::run(o)
    {
        entry.actions = actions(run, &entry.actions, now);
    }
    if let Some(at) = first_packet(o).filter(|_| !starts) {
        let sent = entries.iter().find(|e| e.step == POWER_ON_SENT).and_then(|e| e.finished_at.clone());
        if !entries.iter().any(|e| e.step == FIRST_PACKET) {
            entries.push(entry(FIRST_PACKET, sent.map(|sent| sent.0), Some(at)));
        }
    }
    entries.sort_by_key(|entry| ORDER.iter().position(|step| *step == entry.step));
}

fn step_of(entries: &mut Vec<TimelineEntry>, step: Step, outcome: &Outcome, over: bool, now: Timestamp) {
    let at = entries.iter().position(|entry| entry.step == step.condition());
    match (outcome, at) {
        (Outcome::Done, Some(at)) => {
            entries[at].finished_at.get_or_insert(MicroTime(now));
        }
        (Outcome::Done, None) => entries.push(entry(step.condition(), Some(now), Some(now))),
        // What cannot be seen for a moment has not begun anew.
        (Outcome::Not(_), Some(at)) if entries[at].finished_at.is_some() && !over => {
            entries[at] = entry(step.condition(), Some(now), None);
        }
        (Outcome::Not(_), None) => entries.push(entry(step.condition(), Some(now), None)),
        (Outcome::Not(_) | Outcome::Unseen(_) | Outcome::Off | Outcome::Later, _) => {}
    }
}

/// Those that have begun; `before`: as they were told of last.
fn actions(run: &Workflow, before: &[TimelineAction], now: Timestamp) -> Vec<TimelineAction> {
    let Some(status) = &run.status else { return Vec::new() };
    let current = status.current_state.as_ref().and_then(|current| current.action_id.as_ref());
    let is_over = is_terminal(run) || has_succeeded(run);
    let mut all = Vec::new();
    for action in install::actions(status) {
        let is_current = current == Some(&action.id);
        let said = action.state.as_deref().unwrap_or_default();
        let has_ended = matches!(said, state::SUCCESS | state::FAILED | state::TIMEOUT) && (is_over || !is_current);
        if !has_ended && !is_current {
            continue;
        }
        let name = action.name.clone().unwrap_or_default();
        let told: Option<&TimelineAction> = before.get(all.len()).filter(|told| told.name == name);
        let seconds = action.execution_start.as_ref().zip(action.execution_stop.as_ref());
        all.push(TimelineAction {
            name,
            state: if has_ended { said } else { state::RUNNING }.to_owned(),
            started_at: told.map_or(Some(MicroTime(now)), |told| told.started_at.clone()),
            seconds: seconds.filter(|_| has_ended).map(|(start, stop)| stop.0.duration_since(start.0).as_secs().max(0)),
        });
    }
    all
}

fn first_packet(o: &Situation<'_>) -> Option<Timestamp> {
    let started = o.owned.record.at?;
    let packets = o.nic_attachments.iter().filter_map(|a| a.status.as_ref()?.guest.as_ref()?.first_packet_at.as_ref());
    packets.map(|at| at.0).filter(|at| *at > started).min()
}

fn entry(step: &str, started: Option<Timestamp>, finished: Option<Timestamp>) -> TimelineEntry {
    let (started_at, finished_at) = (started.map(MicroTime), finished.map(MicroTime));
    TimelineEntry { step: step.to_owned(), started_at, finished_at, actions: Vec::new() }
}
