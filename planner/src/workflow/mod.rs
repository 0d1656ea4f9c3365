//! Tinkerbell's Workflows: what their status becomes, and what an agent is answered.
//!
//! | file | what |
//! |---|---|
//! | `render.rs`, `functions/`, `data.rs`, `metadata.rs`, `references.rs`, `sound.rs`, `values.rs` | the text of a Template, with Go's text/template and sprig's hermetic functions, for one server |
//! | `yaml.rs`, `document.rs` | the YAML that the text renders to: tasks and actions, scalars as they were written |
//! | `extras.rs` | the keys of that YAML that are ours |
//! | `order.rs`, `turn.rs` | orders of tasks; whose turn it is |
//! | `advance.rs` | what time and other objects change: a Workflow is rendered, and ends when its time is over |
//! | `boot.rs` | what the boot options ask for, before the first action and after the last one |
//! | `before.rs` | which other Workflow has the server first |
//! | `serve.rs` | which action an agent gets |
//! | `built_in.rs` | what the installer can do |
//! | `report.rs` | what an agent's report changes |
//! | `again.rs` | what is served again, and how often |
//! | `ended.rs` | the end of a run that did not succeed |
//! | `agents.rs` | an agent that is at another Workflow, or no longer heard |
//! | `unserved.rs` | a server that DHCP does not serve, so that its agent does not come |
//! | `status.rs` | what a status tells beside its tasks |
//! | `story.rs` | its Events |
//! | `older.rs` | the same for workers of the older generation, by names |
//!
//! ```text
//! none --rendered--> PENDING --RUNNING--> RUNNING --last SUCCESS--> SUCCESS
//!   |  |              ^                     |  `--with boot options--> POST --Jobs done--> SUCCESS
//!   |  `-with boot options-> PREPARING      |--FAILED--> FAILED
//!   not rendered: stays, and is rendered    `--TIMEOUT, or its time is over--> TIMEOUT
//!   again when an object changes
//! ```
//!
//! A terminal state stays for ever. Each function takes a Workflow as it was read and gives the status that it becomes,
//! which the shell writes with the resourceVersion that was read; so two who decide at once cannot both win. Names and
//! states are upstream's. The clock is the server's: an agent's times are kept for people.

mod advance;
mod again;
mod agents;
mod before;
mod boot;
mod built_in;
mod data;
mod document;
mod ended;
mod extras;
mod functions;
mod message;
mod metadata;
pub mod older;
mod order;
pub mod references;
mod render;
mod report;
mod serve;
mod sound;
mod status;
mod story;
#[cfg(test)]
mod tests;
mod turn;
mod unserved;
mod values;
mod yaml;

pub use advance::{Advance, advance, advance_with};
pub use agents::{Ahead, Heard, agents, ahead, at_work, is_lost, may_restart, told};
pub use before::before;
pub use boot::{Before, Preparation, Prepare, is_prepared, job_name, prepare};
pub use built_in::{BUILT_IN, lacking, refused, word};
pub use functions::names as functions;
pub use render::{plain, render};
pub use report::{Report, Reported, report};
pub use serve::{Answer, Served, candidates, next, serve};
pub use story::{story, tells};
pub use unserved::{comes, unserved};

use api::tinkerbell::workflow::{Action, Task, Workflow};
use jiff::{SignedDuration, Timestamp};

/// A longer text is refused, as upstream refuses it.
pub const MAX_RENDERED: usize = 256 << 10;

/// Of loops, and items of a list: far more than a text of that length can take.
const MAX_ITERATIONS: u64 = 100_000;

/// An agent takes 0 for a time that has passed; upstream's older one took it for an hour.
pub const DEFAULT_TIMEOUT: i64 = 3600;

/// An action is served so often in all.
const MOST_SERVED: usize = 5;

/// States of Workflows and of actions.
pub mod state {
    pub const PREPARING: &str = "PREPARING";
    pub const PENDING: &str = "PENDING";
    pub const RUNNING: &str = "RUNNING";
    pub const POST: &str = "POST";
    pub const SUCCESS: &str = "SUCCESS";
    pub const FAILED: &str = "FAILED";
    pub const TIMEOUT: &str = "TIMEOUT";
}

/// Nothing changes the Workflow any more.
pub fn is_terminal(workflow: &Workflow) -> bool {
    matches!(state_of(workflow), state::SUCCESS | state::FAILED | state::TIMEOUT)
}

/// An agent has asked for it, or it has ended.
pub fn has_run(workflow: &Workflow) -> bool {
    let status = workflow.status.as_ref();
    status.is_some_and(|status| status.current_state.is_some() || status.global_execution_stop.is_some())
        || is_terminal(workflow)
}

/// Every action of it has succeeded, whatever its boot options still ask of the BMC.
pub fn has_succeeded(workflow: &Workflow) -> bool {
    matches!(state_of(workflow), state::POST | state::SUCCESS)
}

/// Tinkerbell before v0.18 wrote `STATE_` before each.
fn state_of(workflow: &Workflow) -> &str {
    let state = workflow.status.as_ref().and_then(|status| status.state.as_deref()).unwrap_or_default();
    state.strip_prefix("STATE_").unwrap_or(state)
}

fn is_done(action: &Action) -> bool {
    action.state.as_deref() == Some(state::SUCCESS)
}

fn is_whole(task: &Task) -> bool {
    task.actions.iter().all(is_done)
}

fn later(from: Timestamp, seconds: i64) -> Option<Timestamp> {
    from.checked_add(SignedDuration::from_secs(seconds)).ok()
}

fn timeout_of(action: &Action) -> i64 {
    action.timeout.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_TIMEOUT)
}

/// `KEY=value`, ordered by key; the action's over the task's.
fn environment(task: &Task, action: &Action) -> Vec<String> {
    let mut merged = task.environment.clone();
    merged.extend(action.environment.clone());
    merged.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

/// Something is to be done before the first action, or after the last one.
fn boots_are_asked(workflow: &Workflow) -> bool {
    let options = workflow.spec.boot_options.as_ref();
    options.is_some_and(|options| options.boot_mode.is_some() || options.toggle_allow_netboot == Some(true))
}
