//! What time and other objects change of a Workflow, whatever its agent does.

use super::{boots_are_asked, is_terminal, render, state, state_of, timeout_of};
use api::tinkerbell::workflow::{Workflow, WorkflowCondition, WorkflowStatus};
use api::tinkerbell::{Hardware, Template};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// An agent that reports in time may be heard of so much later.
const GRACE: SignedDuration = SignedDuration::from_secs(60);

const RENDERED: &str = "TemplateRenderedSuccess";

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
    if workflow.metadata.deletion_timestamp.is_some() || workflow.spec.disabled == Some(true) || is_terminal(workflow) {
        return Advance::default();
    }
    let before = workflow.status.clone().unwrap_or_default();
    match state_of(workflow) {
        "" => begin(workflow, template, hardware, before, now),
        state::PENDING | state::RUNNING => end(before, now),
        // PREPARING and POST: `boot.rs`.
        _ => Advance::default(),
    }
}

fn begin(
    workflow: &Workflow,
    template: Option<&Template>,
    hardware: Option<&Hardware>,
    before: WorkflowStatus,
    now: Timestamp,
) -> Advance {
    let mut status = before.clone();
    let failed = |status: &mut WorkflowStatus, message: String| {
        status.template_rendering = Some("failed".to_owned());
        set(status, RENDERED, "False", "Error", &message, now);
    };
    let name = workflow.spec.template_ref.as_deref().unwrap_or_default();
    let text = template.and_then(|template| template.spec.data.as_deref());
    let hardware_ref = workflow.spec.hardware_ref.as_deref().filter(|name| !name.is_empty());
    match (text, hardware_ref.filter(|_| hardware.is_none())) {
        (_, Some(name)) => failed(&mut status, format!("Hardware '{name}' does not exist")),
        (None, _) if template.is_none() => failed(&mut status, format!("Template '{name}' does not exist")),
        (None, _) => failed(&mut status, format!("Template '{name}': spec.data is empty")),
        (Some(text), None) => match render(text, workflow, hardware) {
            Err(error) => failed(&mut status, format!("Template '{name}': {error}")),
            Ok(rendered) => {
                let first = if boots_are_asked(workflow) { state::PREPARING } else { state::PENDING };
                status.state = Some(first.to_owned());
                status.template_rendering = Some("successful".to_owned());
                status.agent_id = rendered.tasks.first().map(|task| task.agent_id.clone());
                status.global_timeout = (rendered.global_timeout > 0).then_some(rendered.global_timeout);
                status.tasks = rendered.tasks;
                set(&mut status, RENDERED, "True", "Complete", "template rendered successfully", now);
            }
        },
    }
    Advance { status: (status != before).then_some(status), wake_at: None }
}

/// The time of the action that runs, or of the whole Workflow, is over.
fn end(mut status: WorkflowStatus, now: Timestamp) -> Advance {
    let running = super::current(&status).map(|(task, action)| (task, action, &status.tasks[task].actions[action]));
    let running = running.filter(|(_, _, action)| action.state.as_deref() == Some(state::RUNNING));
    let action_ends = running.and_then(|(_, _, action)| {
        let began = action.execution_start.as_ref()?.0;
        later(began, timeout_of(action)).and_then(|end| end.checked_add(GRACE).ok())
    });
    let all_ends = status.global_execution_stop.as_ref().map(|time| time.0);
    let place = running.map(|(task, action, _)| (task, action));
    let over = |end: Option<Timestamp>| end.is_some_and(|end| end <= now);
    if !over(action_ends) && !over(all_ends) {
        return Advance { status: None, wake_at: action_ends.into_iter().chain(all_ends).min() };
    }
    let why = if over(all_ends) {
        "the global_timeout of the template has passed"
    } else {
        "the agent has not reported by the end of the action's timeout"
    };
    if let Some((task, action)) = place {
        let action = &mut status.tasks[task].actions[action];
        action.state = Some(state::TIMEOUT.to_owned());
        action.execution_stop = Some(Time(now));
        action.message = Some(why.to_owned());
    }
    status.state = Some(state::TIMEOUT.to_owned());
    if let Some(current) = &mut status.current_state {
        current.state = Some(state::TIMEOUT.to_owned());
    }
    Advance { status: Some(status), wake_at: None }
}

pub(super) fn later(from: Timestamp, seconds: i64) -> Option<Timestamp> {
    from.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// The time of a condition that says the same as before stays.
pub(super) fn set(status: &mut WorkflowStatus, type_: &str, value: &str, reason: &str, message: &str, now: Timestamp) {
    let new = WorkflowCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        time: Some(Time(now)),
    };
    match status.conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(old) if old.status == new.status && old.reason == new.reason && old.message == new.message => {}
        Some(old) => *old = new,
        None => status.conditions.push(new),
    }
}
