//! `tinkerbell.org/v1alpha1 WorkflowRuleSet`: which Workflow is made for an agent that has none, by what its server is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

kind!(
    /// Which Workflow is made for an agent that has none, as Tinkerbell describes it.
    WorkflowRuleSet,
    group: "tinkerbell.org",
    plural: "workflowrulesets",
    short: ["wrs"],
    columns: [],
    spec: WorkflowRuleSetSpec,
    status: WorkflowRuleSetStatus,
    moved: false,
);

/// Rules, and the Workflow that is made where one of them matches.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct WorkflowRuleSetSpec {
    /// Patterns of Quamina, each one JSON: a Workflow is made where any of them matches the attributes that the agent reports. Of
    /// several rule sets the one with the most rules that match counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// The Workflow that is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowRuleSetWorkflow>,
}

/// The Workflow that is made.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowRuleSetWorkflow {
    /// True: the Workflow is made, and does not run until somebody makes that false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// The namespace of the Workflow. Metalplane: the namespace of the inventory, or left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// True: the Workflow has the attributes of the agent in its annotation `tinkerbell.org/agent-attributes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_attributes: Option<bool>,
    /// The Template of the Workflow, and what that reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateConfig>,
}

/// The Template of the Workflow, and what that reads.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateConfig {
    /// By which name the Template reads the agent's identifier, for example device_1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_value: Option<String>,
    /// What the Template reads besides, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kvs: BTreeMap<String, String>,
    /// Name of the Template.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// Nothing: what became of a rule set stands in the HardwareReports of the servers that it was tried on.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct WorkflowRuleSetStatus {}
