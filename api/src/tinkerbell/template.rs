//! `tinkerbell.org/v1alpha1 Template`: what a Workflow does, as text that is rendered for one server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

kind!(
    /// What a Workflow does, as Tinkerbell describes it.
    Template,
    group: "tinkerbell.org",
    plural: "templates",
    short: ["tpl"],
    columns: [{"name": "State", "type": "string", "jsonPath": ".status.state"}],
    spec: TemplateSpec,
    status: TemplateStatus,
    moved: false,
);

/// The text.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TemplateSpec {
    /// A template of Go's text/template that renders to YAML: tasks and their actions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

/// State of the Template.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TemplateStatus {
    /// Error or Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}
