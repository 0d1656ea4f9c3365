//! An action that is served again: to an agent that was restarted while it ran, or after a failure, if the template asks for that.
//!
//! Each serving has an identifier of its own, that of the first one with `-2` to `-5` behind it. So it says how often the action was
//! served, and a report of an earlier serving (late, or of an earlier boot of the agent) names an action that there is not.

use super::extras::Extras;
use super::message::say;
use super::status::{current, set};
use super::{MOST_SERVED, later, state};
use api::tinkerbell::workflow::{Action, WorkflowStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The condition tells of the action that is served again, or was last; while no such one is open it is not there.
pub(super) const RETRIED: &str = "ActionRetried";
const WORDS: [&str; MOST_SERVED - 1] = ["ServedTwice", "ServedThreeTimes", "ServedFourTimes", "ServedFiveTimes"];

/// Which serving of the action the next or current one is, from 1.
pub(super) fn serving(action: &Action) -> usize {
    action.id.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(1)
}

/// Nothing is known of its having been served.
pub(super) fn is_fresh(action: &Action) -> bool {
    matches!(action.state.as_deref(), None | Some("" | state::PENDING))
        && action.message.is_none()
        && serving(action) == 1
}

/// It waits for its next serving until then.
pub(super) fn not_before(
    status: &WorkflowStatus,
    extras: &Extras,
    (task, action): (usize, usize),
) -> Option<Timestamp> {
    let task = &status.tasks[task];
    let action = &task.actions[action];
    let waits = serving(action) > 1 && action.state.as_deref() == Some(state::PENDING);
    let failed = action.execution_stop.as_ref().filter(|_| waits)?.0;
    later(failed, extras.retry_seconds(task))
}

/// The agent reported that the action has ended as `word`. `false`: it is not served again.
pub(super) fn after_failure(
    status: &mut WorkflowStatus,
    extras: &Extras,
    (task, at): (usize, usize),
    (word, said): (&str, &str),
    now: Timestamp,
) -> bool {
    let of = &status.tasks[task];
    let name = of.actions[at].name.clone().unwrap_or_default();
    let (number, retries) = (serving(&of.actions[at]), extras.retries(of, &name));
    if number > retries {
        return false;
    }
    let again = later(now, extras.retry_seconds(of)).unwrap_or(now);
    let message = format!(
        "action '{name}' of task '{}' is {word}{}; it is served again at {again}, for the {} of {} times",
        of.name,
        if said.is_empty() { String::new() } else { format!(": {said}") },
        ordinal(number + 1),
        retries + 1,
    );
    renumber(status, (task, at));
    let of = &mut status.tasks[task];
    let action = &mut of.actions[at];
    *action = Action {
        state: Some(state::PENDING.to_owned()),
        execution_start: None,
        // By our clock, whatever the agent says: the wait is counted from here.
        execution_stop: Some(Time(now)),
        execution_duration: None,
        ..action.clone()
    };
    say(action, &message);
    status.current_state = Some(current(of, at));
    set(status, RETRIED, "True", "BackOff", &message, now);
    true
}

/// The agent asks while the action runs. `Err`: why it is not served again.
pub(super) fn after_restart(
    status: &mut WorkflowStatus,
    extras: &Extras,
    (task, action): (usize, usize),
    now: Timestamp,
) -> Result<(), (&'static str, String)> {
    let of = &status.tasks[task];
    let (agent, name) = (of.agent_id.clone(), of.actions[action].name.clone().unwrap_or_default());
    if !extras.is_idempotent(of, &name) {
        let message = format!(
            "agent '{agent}' asked again while action '{name}' ran, which is marked idempotent: false: how far it came is not known"
        );
        return Err(("NotIdempotent", message));
    }
    if serving(&of.actions[action]) >= MOST_SERVED {
        let message = format!(
            "agent '{agent}' was served this action five times and asked again without a result: the server restarts while the \
             action runs"
        );
        return Err(("ServedTooOften", message));
    }
    let message = format!(
        "agent '{agent}' asked again while action '{name}' ran: its server was restarted, or an answer was lost; the action is \
         served again"
    );
    renumber(status, (task, action));
    tell(status, (task, action), &message, now);
    Ok(())
}

/// An action that does not run is served now.
pub(super) fn tell_served(status: &mut WorkflowStatus, (task, action): (usize, usize), now: Timestamp) {
    let of = &status.tasks[task].actions[action];
    if serving(of) > 1 {
        let message = of.message.clone().unwrap_or_default();
        return tell(status, (task, action), &message, now);
    }
    let mut all = status.tasks.iter().flat_map(|task| &task.actions);
    if !all.any(|action| serving(action) > 1 && action.state.as_deref() != Some(state::SUCCESS)) {
        status.conditions.retain(|condition| condition.type_ != RETRIED);
    }
}

fn tell(status: &mut WorkflowStatus, (task, action): (usize, usize), message: &str, now: Timestamp) {
    let number = serving(&status.tasks[task].actions[action]);
    let word = WORDS.get(number.saturating_sub(2)).copied().unwrap_or_default();
    set(status, RETRIED, "True", word, message, now);
}

fn renumber(status: &mut WorkflowStatus, (task, action): (usize, usize)) {
    let action = &mut status.tasks[task].actions[action];
    let number = serving(action);
    let first = action.id.strip_suffix(&format!("-{number}")).unwrap_or(&action.id);
    action.id = format!("{first}-{}", number + 1);
}

fn ordinal(number: usize) -> String {
    match number {
        2 => "2nd".to_owned(),
        3 => "3rd".to_owned(),
        _ => format!("{number}th"),
    }
}
