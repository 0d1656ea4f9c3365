//! Which Workflow has a server before another one may have its BMC's Jobs run there: they power the server off, whatever its agent is at.
//!
//! Upstream runs them at once, into the middle of the other Workflow's action. Every wait here ends: what runs by its time, what is prepared
//! by its Jobs' limit, and a server that was started for a Workflow is given up after 20 minutes.

use super::boot::{Before, ejects, has_begun};
use super::{boots_are_asked, state, state_of};
use crate::meta::{name, uid};
use api::tinkerbell::Workflow;
use jiff::{SignedDuration, Timestamp};

/// Servers take 15 minutes to come up.
const COMES_UP: SignedDuration = SignedDuration::from_mins(20);

/// Before `workflow`, whose boot options have asked for nothing yet. `all`: the Workflows of its Hardware.
pub fn before<'a>(workflow: &Workflow, all: impl IntoIterator<Item = &'a Workflow>, now: Timestamp) -> Option<Before> {
    if state_of(workflow) != state::PREPARING || has_begun(workflow) {
        return None;
    }
    let has = |other: &&Workflow| uid(&other.metadata) != uid(&workflow.metadata) && goes_on(other);
    let older = |other: &Workflow| age(other) < age(workflow);
    let found = all.into_iter().filter(has).filter_map(|other| {
        let until = comes_up_by(other);
        let goes_before = match state_of(other) {
            state::RUNNING | state::POST => true,
            state::PREPARING => older(other) || has_begun(other),
            state::PENDING => older(other) && until.is_some_and(|until| now < until),
            _ => ejects(other),
        };
        goes_before.then(|| Before { workflow: name(&other.metadata).to_owned(), until })
    });
    found.min_by(|one, other| one.workflow.cmp(&other.workflow))
}

fn goes_on(workflow: &Workflow) -> bool {
    workflow.metadata.deletion_timestamp.is_none() && workflow.spec.disabled != Some(true)
}

fn age(workflow: &Workflow) -> (Option<Timestamp>, &str) {
    (workflow.metadata.creation_timestamp.as_ref().map(|at| at.0), name(&workflow.metadata))
}

/// Of one whose server was started for it, and whose agent has not asked.
fn comes_up_by(workflow: &Workflow) -> Option<Timestamp> {
    let waits = state_of(workflow) == state::PENDING && boots_are_asked(workflow);
    let conditions = workflow.status.iter().filter(|_| waits).flat_map(|status| &status.conditions);
    let since = conditions.filter_map(|condition| condition.time.as_ref()).map(|time| time.0).max()?;
    since.checked_add(COMES_UP).ok()
}
