//! One Task of a Job.
//!
//! ```text
//! a reading of this moment -> the start is written -> sent -> a later reading shows it -> Completed
//!                                 |                     |-> not yet: sent again, after a while and a reading
//!                                 |                     |-> refused for good, or ten minutes: Failed
//!                                 `-> so already: Completed, and nothing is sent
//! ```

use super::plan::{Action, Answer, COMPLETED, FAILED, LIMIT, Plan, Sent, is, set};
use super::request::{Request, Wish, change, shows, shows_for_good, wish};
use crate::host::{BmcNeed, BootChange, HostObserved, Medium, MediumChange, PowerAction, PowerState};
use crate::meta::name;
use crate::observed::{BmcProblem, BmcSeen};
use api::tinkerbell::task::{Task, TaskStatus};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A power cycle: that the host was read off.
const POWERED_OFF: &str = "PoweredOff";
/// Of a Task that is completed all the same.
const FOR_GOOD: &str = "the BMC shows the override as continuous: the host boots so until another one is set";
const FIRST: SignedDuration = SignedDuration::from_secs(5);
const LAST: SignedDuration = SignedDuration::from_secs(60);

pub(super) fn step(task: &Task, bmc: &BmcSeen, sent: Option<&Sent>, now: Timestamp) -> Plan {
    let before = task.status.clone().unwrap_or_default();
    let wish = match wish(&task.spec.task) {
        Ok(wish) => wish,
        Err(why) => return end(task, &before, FAILED, Some(why), now),
    };
    if let Some(problem @ BmcProblem::NotSpoken { .. }) = &bmc.problem {
        return end(task, &before, FAILED, Some(problem.message()), now);
    }
    let created = task.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let began = before.start_time.as_ref().map(|time| time.0);
    if let Some(over) = answered(&wish, began, sent) {
        let (type_, message) = over;
        return end(task, &before, type_, message, now);
    }
    let limit = began.unwrap_or(created) + LIMIT;
    if now >= limit {
        return end(task, &before, FAILED, Some(too_late(&wish, bmc, sent)), now);
    }
    let waits = |need| Plan { bmc: need, wake_at: Some(limit), ..Plan::default() };
    let Some(host) = bmc.host.fresh().filter(|_| is_later(bmc, sent)) else {
        return waits(if sent.is_some() { BmcNeed::Awaiting } else { BmcNeed::Now });
    };
    let is_off = is(&before.conditions, POWERED_OFF);
    let wanted = match judge(&wish, host, is_off, sent) {
        Judged::Done(message) => return end(task, &before, COMPLETED, message, now),
        Judged::HalfDone => {
            let mut status = before;
            set(&mut status.conditions, POWERED_OFF, None);
            return Plan {
                task: Some((name(&task.metadata).to_owned(), status)),
                bmc: BmcNeed::Now,
                ..Plan::default()
            };
        }
        Judged::Wants(request) => request,
        Judged::Fails(why) => return end(task, &before, FAILED, Some(why), now),
    };
    if let Some(again) = sent.filter(|sent| sent.request == wanted).map(|sent| sent.at + pause(sent))
        && now < again
    {
        return Plan { wake_at: Some(again.min(limit)), ..waits(BmcNeed::Awaiting) };
    }
    let mut status = before.clone();
    status.start_time = Some(before.start_time.unwrap_or(Time(now)));
    let called = name(&task.metadata).to_owned();
    Plan {
        task: Some((called.clone(), status)),
        action: Some(Action::Send { task: called, request: wanted }),
        ..waits(BmcNeed::Awaiting)
    }
}

fn end(task: &Task, before: &TaskStatus, type_: &'static str, message: Option<String>, now: Timestamp) -> Plan {
    let mut status = before.clone();
    status.start_time = Some(status.start_time.unwrap_or(Time(now)));
    set(&mut status.conditions, type_, message);
    if type_ == COMPLETED {
        status.completion_time = Some(Time(now));
    }
    Plan { task: Some((name(&task.metadata).to_owned(), status)), bmc: BmcNeed::Slow, ..Plan::default() }
}

/// The reading is of after what was sent.
fn is_later(bmc: &BmcSeen, sent: Option<&Sent>) -> bool {
    sent.is_none_or(|sent| bmc.read_at > Some(sent.at))
}

/// What the answer alone decides.
fn answered(wish: &Wish, began: Option<Timestamp>, sent: Option<&Sent>) -> Option<(&'static str, Option<String>)> {
    if let Some(Sent { answer: Answer::Refused(why), .. }) = sent {
        return Some((FAILED, Some(why.clone())));
    }
    if *wish != Wish::Reset {
        return None;
    }
    match (sent.map(|sent| &sent.answer), began) {
        (Some(Answer::Accepted), _) => Some((COMPLETED, None)),
        (Some(Answer::Unknown(why)), _) => Some((FAILED, Some(format!("not known whether it was done: {why}")))),
        // Begun by a process that is gone: it is not sent again.
        (None, Some(_)) => {
            let why = "not known whether it was done: its start is on record, and no answer to it is known".to_owned();
            Some((FAILED, Some(why)))
        }
        _ => None,
    }
}

enum Judged {
    Done(Option<String>),
    /// Of a power cycle.
    HalfDone,
    Wants(Request),
    Fails(String),
}

fn judge(wish: &Wish, host: &HostObserved, is_off: bool, sent: Option<&Sent>) -> Judged {
    let power = |action| Judged::Wants(Request::Power(action));
    let is = host.power;
    match wish {
        Wish::Status => Judged::Done(Some(format!("power: {}", word(is)))),
        Wish::On if is == PowerState::On => Judged::Done(None),
        Wish::On => power(PowerAction::On),
        Wish::Off | Wish::SoftOff if is == PowerState::Off => Judged::Done(None),
        Wish::Off => power(PowerAction::ForceOff),
        Wish::SoftOff => power(PowerAction::SoftOff),
        Wish::Cycle if is_off && is == PowerState::On => Judged::Done(None),
        Wish::Cycle if is_off => power(PowerAction::On),
        Wish::Cycle if is == PowerState::Off => Judged::HalfDone,
        Wish::Cycle => power(PowerAction::ForceOff),
        Wish::Reset if is == PowerState::Off => Judged::Fails("the host is off: there is nothing to reset".to_owned()),
        Wish::Reset => power(PowerAction::WarmReset),
        Wish::Boot { .. } => match change(wish, &host.boot) {
            Some(change) if shows(host, &change) => Judged::Done(None),
            Some(change) if is_for_good(&change, host, sent) => Judged::Done(Some(FOR_GOOD.to_owned())),
            Some(change) => Judged::Wants(Request::Boot(change)),
            None => Judged::Done(None),
        },
        Wish::Medium(change) if change.is_shown(&host.medium) || is_untold(change, host, sent) => Judged::Done(None),
        Wish::Medium(change) => Judged::Wants(Request::Medium(change.clone())),
    }
}

/// It accepted the override once, and shows it as one that stays: asking again would change nothing.
fn is_for_good(change: &BootChange, host: &HostObserved, sent: Option<&Sent>) -> bool {
    let accepted = |sent: &Sent| sent.answer == Answer::Accepted && sent.request == Request::Boot(change.clone());
    shows_for_good(host, change) && sent.is_some_and(accepted)
}

/// Some BMCs show that a medium is inserted, and not which: what they accepted last is what is there.
fn is_untold(change: &MediumChange, host: &HostObserved, sent: Option<&Sent>) -> bool {
    let accepted = |sent: &Sent| sent.answer == Answer::Accepted && sent.request == Request::Medium(change.clone());
    matches!(change, MediumChange::Insert(_)) && host.medium == Medium::Inserted(None) && sent.is_some_and(accepted)
}

fn word(power: PowerState) -> &'static str {
    match power {
        PowerState::On => "on",
        PowerState::Off => "off",
        PowerState::PoweringOn => "powering on",
        PowerState::PoweringOff => "powering off",
    }
}

/// A guest that was asked needs its time; all else is asked again soon, and then ever later.
fn pause(sent: &Sent) -> SignedDuration {
    match (&sent.request, &sent.answer) {
        (Request::Power(PowerAction::SoftOff), Answer::Accepted) => LAST,
        _ => (FIRST * (1 << (sent.count.clamp(1, 6) - 1))).min(LAST),
    }
}

fn too_late(wish: &Wish, bmc: &BmcSeen, sent: Option<&Sent>) -> String {
    let minutes = LIMIT.as_mins();
    if let Some(problem) = &bmc.problem {
        return format!("the BMC could not be read for {minutes} minutes: {}", problem.message());
    }
    let shown = bmc.host.last().map(|host| match wish {
        Wish::Boot { .. } => format!("next {:?}, always {:?}", host.boot.next, host.boot.always),
        Wish::Medium(_) => host.medium.to_string(),
        _ => format!("power {}", word(host.power)),
    });
    let said = match sent.map(|sent| &sent.answer) {
        Some(Answer::Accepted) => "it accepted the request".to_owned(),
        Some(Answer::NotNow(why) | Answer::Unknown(why) | Answer::Refused(why)) => why.clone(),
        None => "nothing was sent".to_owned(),
    };
    format!("after {minutes} minutes the BMC shows {}: {said}", shown.unwrap_or_else(|| "nothing".to_owned()))
}
