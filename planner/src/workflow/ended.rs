//! The end of a run that did not succeed: the action, the Workflow, and a condition that says what failed and what therefore never
//! began. All or nothing: the Workflow ends with its first failure, and from then on nothing of it is served.

use super::boot::eject_at_the_end;
use super::is_whole;
use super::message::say;
use super::status::{AGENT_AWAITED, begins, current, set};
use super::turn::has_begun;
use api::tinkerbell::workflow::{Task, WorkflowStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub(super) const FAILED: &str = "WorkflowFailed";

pub(super) struct Why {
    /// FAILED or TIMEOUT.
    pub state: &'static str,
    /// Of the condition.
    pub reason: &'static str,
    pub message: String,
}

/// `places`: the actions that this is the end of.
pub(super) fn end(status: &mut WorkflowStatus, places: &[(usize, usize)], why: &Why, now: Timestamp) {
    for (task, action) in places {
        let action = &mut status.tasks[*task].actions[*action];
        action.state = Some(why.state.to_owned());
        action.execution_stop = Some(Time(now));
        say(action, &why.message);
    }
    tell(status, places.first().copied(), why, now);
}

/// The same where the agent itself said how the action ended.
pub(super) fn tell(status: &mut WorkflowStatus, place: Option<(usize, usize)>, why: &Why, now: Timestamp) {
    status.state = Some(why.state.to_owned());
    begins(status);
    status.conditions.retain(|condition| condition.type_ != AGENT_AWAITED);
    if let Some((task, action)) = place {
        status.current_state = Some(current(&status.tasks[task], action));
    } else if let Some(current) = &mut status.current_state {
        current.state = Some(why.state.to_owned());
    }
    let message = told(status, place, why);
    set(status, FAILED, "True", why.reason, &message, now);
    eject_at_the_end(status);
}

fn told(status: &WorkflowStatus, place: Option<(usize, usize)>, why: &Why) -> String {
    let names = |wanted: &dyn Fn(&Task) -> bool| {
        let names: Vec<_> =
            status.tasks.iter().filter(|task| wanted(task)).map(|task| format!("'{}'", task.name)).collect();
        names.join(", ")
    };
    let what = place.map(|(task, action)| {
        let task = &status.tasks[task];
        let name = task.actions[action].name.as_deref().unwrap_or_default();
        format!("action '{name}' of task '{}' is {}", task.name, why.state)
    });
    let what = match (what, why.message.as_str()) {
        (Some(what), "") => what,
        (Some(what), message) => format!("{what}: {message}"),
        (None, message) => message.to_owned(),
    };
    let failed = place.map(|(task, _)| status.tasks[task].name.as_str());
    // In a sequence the current state alone says that an action was served, until its agent says that it runs.
    let is_last =
        |task: &Task| status.current_state.as_ref().is_some_and(|last| last.task_id.as_ref() == Some(&task.id));
    let began = |task: &Task| has_begun(task) || is_last(task);
    let cut = |task: &Task| began(task) && !is_whole(task) && Some(task.name.as_str()) != failed;
    let lists = [
        ("done", names(&is_whole)),
        ("begun, and not followed any further", names(&cut)),
        ("never began", names(&|task| !began(task))),
    ];
    let lists =
        lists.into_iter().filter(|(_, names)| !names.is_empty()).map(|(what, names)| format!("{what}: {names}"));
    [what].into_iter().chain(lists).collect::<Vec<_>>().join("; ")
}
