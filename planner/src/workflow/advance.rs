//! What time and other objects change of a Workflow, whatever its agent does.

use super::document::Rendered;
use super::ended::{self, Why};
use super::extras::{EXTRAS, Extras};
use super::references::References;
use super::status::{AGENT_AWAITED, NOT_SERVED, QUEUED, set};
use super::turn::{first_agent, open};
use super::{boots_are_asked, is_terminal, later, render, state, state_of, timeout_of};
use api::tinkerbell::workflow::{Workflow, WorkflowCondition, WorkflowStatus};
use api::tinkerbell::{Hardware, Template};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// An agent that reports in time may be heard of so much later.
const GRACE: SignedDuration = SignedDuration::from_secs(60);

/// What references lead to is not watched.
const READ_AGAIN: SignedDuration = SignedDuration::from_secs(10);

const RENDERED: &str = "TemplateRenderedSuccess";
/// As upstream: the message says which.
const ERROR: &str = "Error";

/// A run of a template with keys of ours waits no longer for agents that never ask, if the template sets no `global_timeout`.
const LONGEST_RUN: i64 = 24 * 3600;

/// A run that has begun waits no longer for the agent to ask for its next action: the server would be nobody else's for good.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(LONGEST_RUN);

/// That nobody asks is told then. Servers take so long to come up.
const QUIET: SignedDuration = SignedDuration::from_mins(10);

/// What becomes of a Workflow now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Advance {
    /// To be written; `None`: the status stands.
    pub status: Option<WorkflowStatus>,
    /// When to look again although nothing changed.
    pub wake_at: Option<Timestamp>,
}

/// `template`, `hardware`: those that the Workflow names, if they exist.
pub fn advance(
    workflow: &Workflow,
    template: Option<&Template>,
    hardware: Option<&Hardware>,
    now: Timestamp,
) -> Advance {
    advance_with(workflow, template, hardware, &References::default(), now)
}

/// The same of a Workflow whose template reads references.
pub fn advance_with(
    workflow: &Workflow,
    template: Option<&Template>,
    hardware: Option<&Hardware>,
    references: &References<Value>,
    now: Timestamp,
) -> Advance {
    if workflow.metadata.deletion_timestamp.is_some() || workflow.spec.disabled == Some(true) || is_terminal(workflow) {
        return Advance::default();
    }
    let before = workflow.status.clone().unwrap_or_default();
    match state_of(workflow) {
        "" => {
            let status = begin(workflow, template, hardware, references, before, now);
            let waits = status.as_ref().is_none_or(|status| status.state.is_none());
            let wake_at = (waits && !references.is_empty()).then(|| now.checked_add(READ_AGAIN).ok()).flatten();
            Advance { status, wake_at }
        }
        state::PENDING | state::RUNNING => end(before, now),
        // PREPARING and POST: `boot.rs`.
        _ => Advance::default(),
    }
}

fn begin(
    workflow: &Workflow,
    template: Option<&Template>,
    hardware: Option<&Hardware>,
    references: &References<Value>,
    before: WorkflowStatus,
    now: Timestamp,
) -> Option<WorkflowStatus> {
    let mut status = before.clone();
    let not_for = |status: &mut WorkflowStatus, reason: &str, message: &str| {
        status.template_rendering = Some("failed".to_owned());
        set(status, RENDERED, "False", reason, message, now);
    };
    let failed = |status: &mut WorkflowStatus, message: String| not_for(status, ERROR, &message);
    let name = workflow.spec.template_ref.as_deref().unwrap_or_default();
    let text = template.and_then(|template| template.spec.data.as_deref());
    let hardware_ref = workflow.spec.hardware_ref.as_deref().filter(|name| !name.is_empty());
    match (text, hardware_ref.filter(|_| hardware.is_none())) {
        (_, Some(name)) => failed(&mut status, format!("Hardware '{name}' does not exist")),
        (None, _) if template.is_none() => failed(&mut status, format!("Template '{name}' does not exist")),
        (None, _) => failed(&mut status, format!("Template '{name}': spec.data is empty")),
        (Some(text), None) => match made(text, workflow, hardware, references) {
            Err((reason, error)) => not_for(&mut status, reason, &format!("Template '{name}': {error}")),
            Ok(rendered) => {
                let first = if boots_are_asked(workflow) { state::PREPARING } else { state::PENDING };
                status.state = Some(first.to_owned());
                status.template_rendering = Some("successful".to_owned());
                let text = rendered.extras.text();
                status.global_timeout = Some(rendered.global_timeout)
                    .filter(|seconds| *seconds > 0)
                    .or_else(|| text.is_some().then_some(LONGEST_RUN));
                status.tasks = rendered.tasks;
                status.agent_id = first_agent(&status, &rendered.extras);
                set(&mut status, RENDERED, "True", "Complete", "template rendered successfully", now);
                if let Some(text) = text {
                    set(&mut status, EXTRAS, "True", "Rendered", &text, now);
                }
            }
        },
    }
    (status != before).then_some(status)
}

/// `Err`: the condition's reason and message.
fn made(
    text: &str,
    workflow: &Workflow,
    hardware: Option<&Hardware>,
    references: &References<Value>,
) -> Result<Rendered, (&'static str, String)> {
    if let Some((why, cause)) = references.missed(text, None) {
        return Err((why.reason(), cause));
    }
    render::with(text, workflow, hardware, references).map_err(|error| match references.missed(text, Some(&error)) {
        Some((why, cause)) => (why.reason(), format!("{error}; {cause}")),
        None => (ERROR, error),
    })
}

/// The time of an action that runs, or of the whole Workflow, is over.
fn end(mut status: WorkflowStatus, now: Timestamp) -> Advance {
    let Some(extras) = Extras::of(&status) else {
        let message =
            format!("the condition {EXTRAS} is not as it was written: which task waits for which is not known");
        ended::end(&mut status, &[], &Why { state: state::FAILED, reason: "ExtrasUnreadable", message }, now);
        return Advance { status: Some(status), wake_at: None };
    };
    let running: Vec<_> = open(&status, &extras)
        .into_iter()
        .filter(|(task, action)| status.tasks[*task].actions[*action].state.as_deref() == Some(state::RUNNING))
        .collect();
    let ends = |(task, action): &(usize, usize)| {
        let action = &status.tasks[*task].actions[*action];
        let began = action.execution_start.as_ref()?.0;
        later(began, timeout_of(action)).and_then(|end| end.checked_add(GRACE).ok())
    };
    let over = |end: Option<Timestamp>| end.is_some_and(|end| end <= now);
    let all_ends = status.global_execution_stop.as_ref().map(|time| time.0);
    let late: Vec<_> = running.iter().copied().filter(|place| over(ends(place))).collect();
    let quiet_since = if running.is_empty() { last_heard(&status) } else { None };
    let gives_up = quiet_since.filter(|_| status.state.as_deref() == Some(state::RUNNING));
    let gives_up = gives_up.and_then(|since| since.checked_add(LONGEST_PAUSE).ok());
    let (places, reason, message) = match (over(all_ends), late.is_empty(), over(gives_up)) {
        (true, ..) => (running, "GlobalTimeout", "the global_timeout of the template has passed"),
        (false, false, _) => (late, "NoReport", "the agent has not reported by the end of the action's timeout"),
        (false, true, true) => (running, "NotPickedUp", "the agent has not asked for its next action for a day"),
        (false, true, false) => {
            // Its agent may be at another one first.
            let is_queued = status.conditions.iter().any(|condition| condition.type_ == QUEUED);
            let quiet_since = quiet_since.filter(|_| !is_queued);
            let told = quiet_since.and_then(|since| since.checked_add(QUIET).ok());
            let wake_at = running.iter().filter_map(ends).chain(all_ends).chain(gives_up);
            let wake_at = wake_at.chain(told.filter(|told| *told > now)).min();
            let is_new = tell_quiet(&mut status, &extras, quiet_since.filter(|_| over(told)), now);
            return Advance { status: is_new.then_some(status), wake_at };
        }
    };
    ended::end(&mut status, &places, &Why { state: state::TIMEOUT, reason, message: message.to_owned() }, now);
    Advance { status: Some(status), wake_at: None }
}

/// When an action last began or ended; of a run that has not begun, when it could.
fn last_heard(status: &WorkflowStatus) -> Option<Timestamp> {
    let actions = status.tasks.iter().flat_map(|task| &task.actions);
    let times = actions.flat_map(|action| [&action.execution_start, &action.execution_stop]);
    let is_of_agents = |condition: &&WorkflowCondition| [AGENT_AWAITED, NOT_SERVED].contains(&condition.type_.as_str());
    let conditions = status.conditions.iter().filter(|condition| !is_of_agents(condition));
    let begins = || conditions.filter_map(|condition| condition.time.as_ref()).map(|time| time.0).max();
    times.flatten().map(|time| time.0).max().or_else(begins)
}

/// `since`: nobody has asked for so long. Whether that is new.
fn tell_quiet(status: &mut WorkflowStatus, extras: &Extras, since: Option<Timestamp>, now: Timestamp) -> bool {
    let before = status.conditions.clone();
    match (since, open(status, extras).first()) {
        (Some(since), Some((task, _))) => {
            let agent = &status.tasks[*task].agent_id;
            let why = format!(
                "agent '{agent}' has asked for no action since {since:.0}. Next: look whether its server is on and boots the \
                 installer (kubectl get hwr), and whether '{agent}' is what it calls itself"
            );
            set(status, AGENT_AWAITED, "True", "NotPickedUp", &why, now);
        }
        _ => status.conditions.retain(|condition| condition.type_ != AGENT_AWAITED),
    }
    status.conditions != before
}
