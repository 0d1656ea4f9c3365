//! What an agent's report changes. A report of an agent that is known is always acknowledged: three of the answers that
//! would refuse it end upstream's agent for good. Late, repeated and foreign ones change nothing.

use super::ended::{self, Why};
use super::extras::Extras;
use super::message::say;
use super::status::{begins, current, heard_of};
use super::turn::{first_agent, place_of};
use super::{again, boots_are_asked, is_terminal, later, state, state_of};
use api::tinkerbell::workflow::{Action, Workflow, WorkflowStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The longest message that is kept of an agent: what it tells of 80 disks, and its last lines.
const LONGEST: usize = 16384;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    Running,
    Success,
    Failed,
    Timeout,
}

/// What an agent says of one action. Its times are `None` where Go's zero time was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub agent_id: String,
    pub task_id: String,
    pub action_id: String,
    pub state: Reported,
    pub start: Option<Timestamp>,
    pub stop: Option<Timestamp>,
    pub duration: String,
    pub message: String,
}

/// The status that the Workflow becomes; `None`: it stands.
pub fn report(workflow: &Workflow, report: &Report, now: Timestamp) -> Option<WorkflowStatus> {
    if is_terminal(workflow) || !matches!(state_of(workflow), state::PENDING | state::RUNNING) {
        return None;
    }
    let before = workflow.status.as_ref()?;
    let extras = Extras::of(before)?;
    let (task_at, action_at) = place_of(before, &extras, &report.agent_id, |task, action| {
        let action = &task.actions[action];
        action.id == report.action_id
            && (report.task_id.is_empty() || task.id == report.task_id)
            && was_served(before, action)
    })?;
    let mut status = before.clone();
    begins(&mut status);
    heard_of(&mut status, now);
    let action = &mut status.tasks[task_at].actions[action_at];
    if report.state == Reported::Running && action.state.as_deref() == Some(state::RUNNING) {
        return None;
    }
    let word = match report.state {
        Reported::Running => state::RUNNING,
        Reported::Success => state::SUCCESS,
        Reported::Failed => state::FAILED,
        Reported::Timeout => state::TIMEOUT,
    };
    action.state = Some(word.to_owned());
    say(action, cut(&report.message));
    if report.state == Reported::Running {
        action.execution_start = Some(Time(now));
        (action.execution_stop, action.execution_duration) = (None, None);
    } else {
        let began = report.start.map(Time).or_else(|| action.execution_start.clone());
        action.execution_start = began.or(Some(Time(now)));
        action.execution_stop = Some(Time(report.stop.unwrap_or(now)));
        action.execution_duration = some(cut(&report.duration));
    }
    status.current_state = Some(current(&status.tasks[task_at], action_at));
    if status.global_execution_stop.is_none() {
        let seconds = status.global_timeout.filter(|seconds| *seconds > 0);
        status.global_execution_stop = seconds.and_then(|seconds| later(now, seconds)).map(Time);
    }
    status.state = Some(state::RUNNING.to_owned());
    match report.state {
        Reported::Running => {}
        Reported::Success => match first_agent(&status, &extras) {
            Some(agent) => status.agent_id = Some(agent),
            None if boots_are_asked(workflow) => status.state = Some(state::POST.to_owned()),
            None => status.state = Some(state::SUCCESS.to_owned()),
        },
        Reported::Failed | Reported::Timeout => {
            let (place, said) = ((task_at, action_at), cut(&report.message));
            if !again::after_failure(&mut status, &extras, place, (word, said), now) {
                let reason = if word == state::FAILED { "ActionFailed" } else { "ActionTimedOut" };
                ended::tell(&mut status, Some(place), &Why { state: word, reason, message: said.to_owned() }, now);
            }
        }
    }
    Some(status)
}

/// Nobody reports what it was not given.
fn was_served(status: &WorkflowStatus, action: &Action) -> bool {
    let is_last = status.current_state.as_ref().is_some_and(|current| current.action_id.as_ref() == Some(&action.id));
    is_last || !again::is_fresh(action)
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}
