//! `tinkerbell.org/v1alpha1 Workflow`: one run of a Template on one server.

use super::action::BmcAction;
use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

kind!(
    /// One run of a Template, as Tinkerbell describes it.
    Workflow,
    group: "tinkerbell.org",
    plural: "workflows",
    short: ["wf"],
    columns: [
        {"name": "Template", "type": "string", "jsonPath": ".spec.templateRef"},
        {"name": "State", "type": "string", "jsonPath": ".status.state"},
        {"name": "Task", "type": "string", "jsonPath": ".status.currentState.taskName", "priority": 1},
        {"name": "Action", "type": "string", "jsonPath": ".status.currentState.actionName"},
        {"name": "Agent", "type": "string", "jsonPath": ".status.currentState.agentID"},
        {"name": "Hardware", "type": "string", "jsonPath": ".spec.hardwareRef"},
        {"name": "Template-Rendering", "type": "string", "jsonPath": ".status.templateRendering", "priority": 1},
    ],
    spec: WorkflowSpec,
    status: WorkflowStatus,
    moved: false,
);

/// Which Template runs for which server.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowSpec {
    /// True: the Workflow is not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Name of the Template, in this namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_ref: Option<String>,
    /// Name of the Hardware that the Template may read, in this namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_ref: Option<String>,
    /// What the Template reads by name: device_1 and the agent's identifier, and whatever else it asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hardware_map: BTreeMap<String, String>,
    /// How the server is brought to boot the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_options: Option<BootOptions>,
}

/// How the server is brought to boot the agent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BootOptions {
    /// True: `allowPXE` of the Hardware is true while the Workflow runs, and false afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toggle_allow_netboot: Option<bool>,
    /// The ISO image that is booted once; with `bootMode: isoboot`.
    #[serde(rename = "isoURL", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uri"))]
    pub iso_url: Option<String>,
    /// What the server boots by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<BootMode>,
    /// Requests of one's own to the BMC; with `bootMode: customboot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customboot_config: Option<CustombootConfig>,
}

/// What the server boots by.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BootMode {
    Netboot,
    Isoboot,
    Iso,
    Customboot,
}

/// Requests of one's own to the BMC.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CustombootConfig {
    /// Before the first action of the Workflow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preparing_actions: Vec<BmcAction>,
    /// After the last action of a Workflow that succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post_actions: Vec<BmcAction>,
}

/// How far the Workflow is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStatus {
    /// The agent that is served now.
    #[serde(rename = "agentID", skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// PREPARING, PENDING, RUNNING, POST, SUCCESS, FAILED or TIMEOUT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// How far the boot options are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_options: Option<BootOptionsStatus>,
    /// successful or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_rendering: Option<String>,
    /// The Template's `global_timeout` in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_timeout: Option<i64>,
    /// When the Workflow becomes TIMEOUT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_execution_stop: Option<Time>,
    /// The action that was served last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_state: Option<CurrentState>,
    /// The rendered Template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Task>,
    /// What was observed last, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<WorkflowCondition>,
}

/// How far the boot options are.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BootOptionsStatus {
    /// What was done with `allowPXE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_netboot: Option<AllowNetbootStatus>,
    /// Jobs of the BMC, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub jobs: BTreeMap<String, JobStatus>,
}

/// What was done with `allowPXE`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowNetbootStatus {
    /// It was set to true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toggled_true: Option<bool>,
    /// It was set to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toggled_false: Option<bool>,
}

/// A Job of the BMC.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobStatus {
    /// UID of the Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The Job is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// A Job of this name that existed before was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub existing_job_deleted: Option<bool>,
}

/// The action that was served last.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CurrentState {
    /// The agent.
    #[serde(rename = "agentID", skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The task.
    #[serde(rename = "taskID", skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// The action.
    #[serde(rename = "actionID", skip_serializing_if = "Option::is_none")]
    pub action_id: Option<String>,
    /// State of the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Name of the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_name: Option<String>,
    /// Name of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_name: Option<String>,
}

/// What was observed of the Workflow.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct WorkflowCondition {
    /// Name of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// Why, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for a reader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// Actions that one agent runs in their order.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::read_without)]
pub struct Task {
    /// Identifies the task.
    // Not there in what Tinkerbell before v0.18 left, one of which would keep all others from being read.
    #[serde(default)]
    pub id: String,
    /// Name of the task.
    pub name: String,
    /// The agent that runs the actions.
    #[serde(default, rename = "agentID")]
    pub agent_id: String,
    /// The actions, in their order.
    pub actions: Vec<Action>,
    /// Volumes of every action.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Environment of every action.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

/// One action.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::read_without)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// Identifies the action.
    #[serde(default)]
    pub id: String,
    /// Name of the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The container image that the action is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// Arguments of the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Volumes, beside the task's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// PID namespace. Upstream: deprecated, use `namespaces.pid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<String>,
    /// Linux namespaces of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<ActionNamespaces>,
    /// Environment, over the task's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// PENDING, RUNNING, SUCCESS, FAILED or TIMEOUT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// When the action began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_start: Option<Time>,
    /// When the action ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_stop: Option<Time>,
    /// How long the action took, as the agent says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_duration: Option<String>,
    /// What the agent says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Linux namespaces of an action's container.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ActionNamespaces {
    /// Network namespace; `host`: the server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// PID namespace; `host`: the server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<String>,
}
