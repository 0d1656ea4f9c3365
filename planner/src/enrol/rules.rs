//! Which WorkflowRuleSet is for a server: that of which most patterns match what its agent reports. Patterns are Quamina's, as upstream.

use crate::meta::name;
use api::tinkerbell::WorkflowRuleSet;
use api::tinkerbell::attributes::AgentAttributes;
use quamina::Quamina;
use std::sync::Arc;

/// What came of trying all of them.
#[derive(Debug, Default, PartialEq)]
pub struct Tried<'a> {
    /// Of several with as many rules that match the first one by name.
    pub best: Option<&'a WorkflowRuleSet>,
    /// The rules that cannot be read. Their rule sets count for nothing.
    pub unreadable: Vec<String>,
}

pub fn tried<'a>(sets: &'a [Arc<WorkflowRuleSet>], attributes: &AgentAttributes) -> Tried<'a> {
    let mut sets: Vec<&WorkflowRuleSet> = sets.iter().map(AsRef::as_ref).collect();
    sets.sort_by_key(|set| name(&set.metadata));
    // It has no field that cannot be written as JSON.
    let event = serde_json::to_vec(attributes).unwrap_or_default();
    let (mut most, mut tried) = (0, Tried::default());
    for set in sets {
        match matches(set, &event) {
            Ok(count) if count > most => (most, tried.best) = (count, Some(set)),
            Ok(_) => {}
            Err(why) => tried.unreadable.push(why),
        }
    }
    tried
}

fn matches(set: &WorkflowRuleSet, event: &[u8]) -> Result<usize, String> {
    let of = name(&set.metadata);
    let mut patterns = Quamina::<usize>::new();
    for (at, rule) in set.spec.rules.iter().enumerate() {
        let added = patterns.add_pattern(at, rule);
        added.map_err(|error| format!("WorkflowRuleSet '{of}', spec.rules[{at}]: {error}"))?;
    }
    let found = patterns.matches_for_event(event);
    found.map(|found| found.len()).map_err(|error| format!("WorkflowRuleSet '{of}': {error}"))
}
