//! What an agent's report changes. A report of an agent that is known is always acknowledged: three of the answers that
//! would refuse it end upstream's agent for good. Late, repeated and foreign ones change nothing.

use super::advance::later;
use super::{boots_are_asked, current, is_terminal, state, state_of};
use api::tinkerbell::workflow::{Workflow, WorkflowStatus};
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
    let (task_at, action_at) = current(before)?;
    let task = &before.tasks[task_at];
    let is_current = task.agent_id == report.agent_id
        && task.actions[action_at].id == report.action_id
        && (report.task_id.is_empty() || task.id == report.task_id)
        // It was served: nobody reports what it was not given.
        && before.current_state.as_ref().is_some_and(|c| c.action_id.as_deref() == Some(&report.action_id));
    if !is_current {
        return None;
    }
    let mut status = before.clone();
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
    action.message = some(cut(&report.message));
    if report.state == Reported::Running {
        action.execution_start = Some(Time(now));
    } else {
        let began = report.start.map(Time).or_else(|| action.execution_start.clone());
        action.execution_start = began.or(Some(Time(now)));
        action.execution_stop = Some(Time(report.stop.unwrap_or(now)));
        action.execution_duration = some(cut(&report.duration));
    }
    if let Some(current) = &mut status.current_state {
        current.state = Some(word.to_owned());
    }
    if status.global_execution_stop.is_none() {
        let seconds = status.global_timeout.filter(|seconds| *seconds > 0);
        status.global_execution_stop = seconds.and_then(|seconds| later(now, seconds)).map(Time);
    }
    status.state = Some(match report.state {
        Reported::Running => state::RUNNING.to_owned(),
        Reported::Success => match current(&status) {
            Some((next, _)) => {
                status.agent_id = Some(status.tasks[next].agent_id.clone());
                state::RUNNING.to_owned()
            }
            None if boots_are_asked(workflow) => state::POST.to_owned(),
            None => state::SUCCESS.to_owned(),
        },
        Reported::Failed | Reported::Timeout => word.to_owned(),
    });
    Some(status)
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}
