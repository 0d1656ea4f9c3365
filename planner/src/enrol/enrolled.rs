//! The Workflow of an agent that has none.
//!
//! | the agent | a Workflow is made |
//! |---|---|
//! | of no Hardware | where a rule set matches |
//! | of a Hardware that was discovered and is not approved | where a rule set matches, once |
//! | of another Hardware | where a rule set matches, if `spec.auto.enrollmentEnabled` is true and no machine has the Hardware |

use super::rules::tried;
use super::{Act, Observed, Told, is_unapproved, text, valid_name};
use crate::meta::{annotation, name};
use crate::reason::{Blocked, Waiting};
use api::conditions::ENROLLED;
use api::labels;
use api::tinkerbell::attributes::AgentAttributes;
use api::tinkerbell::workflow::WorkflowSpec;
use api::tinkerbell::{Hardware, Workflow, WorkflowRuleSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;

/// The name of the Workflow that is made for this agent.
pub fn workflow_name(agent: &str) -> String {
    valid_name("enrollment-", agent)
}

pub(super) fn enrol(
    o: &Observed,
    hardware: Option<&Hardware>,
    agent: &str,
    attributes: &AgentAttributes,
    told: &mut Told,
) -> Option<Act> {
    let own = workflow_name(agent);
    let there = o.workflows.iter().map(|workflow| name(&workflow.metadata));
    if let Some(enrolled) = there.clone().find(|there| *there == own) {
        told.is(ENROLLED, "Enrolled", &format!("Workflow '{enrolled}'"));
        return None;
    }
    if o.rule_sets.is_empty() || !hardware.is_none_or(|hardware| may(hardware, told)) {
        return None;
    }
    if let Some(workflow) = there.min() {
        let (agent, workflow) = (agent.to_owned(), workflow.to_owned());
        told.not(ENROLLED, Waiting::AgentHasWorkflow { agent, workflow }.into());
        return None;
    }
    let tried = tried(&o.rule_sets, attributes);
    let Some(set) = tried.best else {
        let unreadable = tried.unreadable.iter().map(|why| format!("; {why}")).collect();
        told.not(ENROLLED, Blocked::NoRuleMatches { sets: o.rule_sets.len(), unreadable }.into());
        return None;
    };
    match workflow(set, o, hardware, agent, attributes) {
        Ok(workflow) => Some(Act::CreateWorkflow(Box::new(workflow))),
        Err(message) => {
            let set = name(&set.metadata).to_owned();
            told.not(ENROLLED, Blocked::RuleSetIncomplete { set, message }.into());
            None
        }
    }
}

fn may(hardware: &Hardware, told: &Told) -> bool {
    let meta = &hardware.metadata;
    let is_free = annotation(meta, labels::CLAIMED_BY).is_none()
        && annotation(meta, labels::JOB).is_none()
        && meta.deletion_timestamp.is_none();
    let wants = hardware.spec.auto.as_ref().and_then(|auto| auto.enrollment_enabled) == Some(true);
    is_free && (wants || (is_unapproved(hardware) && !told.has_enrolled()))
}

/// As upstream's. The error says which field of the rule set is wrong, and what to write.
fn workflow(
    set: &WorkflowRuleSet,
    o: &Observed,
    hardware: Option<&Hardware>,
    agent: &str,
    attributes: &AgentAttributes,
) -> Result<Workflow, String> {
    let wanted = set.spec.workflow.clone().unwrap_or_default();
    let template = wanted.template.unwrap_or_default();
    let set_to = |text: Option<String>| text.filter(|text| !text.is_empty());
    let reference = set_to(template.reference);
    let reference = reference.ok_or("spec.workflow.template.ref is missing: write the name of a Template")?;
    if let Some(other) = set_to(wanted.namespace).filter(|namespace| *namespace != o.namespace) {
        return Err(format!("spec.workflow.namespace is '{other}': write {}, or leave it out", o.namespace));
    }
    let mut hardware_map = BTreeMap::new();
    hardware_map.extend(set_to(template.agent_value).map(|value| (value, agent.to_owned())));
    hardware_map.extend(template.kvs);
    let annotations = if wanted.add_attributes == Some(true) { text(attributes) } else { None };
    let owner = OwnerReference {
        api_version: "tinkerbell.org/v1alpha1".to_owned(),
        kind: "WorkflowRuleSet".to_owned(),
        name: name(&set.metadata).to_owned(),
        uid: set.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let metadata = ObjectMeta {
        name: Some(workflow_name(agent)),
        namespace: Some(o.namespace.clone()),
        labels: Some([(labels::AUTO_ENROLLMENT.to_owned(), "true".to_owned())].into()),
        annotations: annotations.map(|text| [(labels::AGENT_ATTRIBUTES.to_owned(), text)].into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    let spec = WorkflowSpec {
        disabled: wanted.disabled,
        template_ref: Some(reference),
        hardware_ref: hardware.map(|hardware| name(&hardware.metadata).to_owned()),
        hardware_map,
        ..WorkflowSpec::default()
    };
    Ok(Workflow { metadata, spec, status: None })
}
