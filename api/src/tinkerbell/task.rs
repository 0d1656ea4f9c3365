//! `bmc.tinkerbell.org/v1alpha1 Task`: one request of a Job.

use super::action::BmcAction;
use super::job::RunCondition;
use super::machine::Connection;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

kind!(
    /// One request to a BMC, as Tinkerbell describes it.
    Task,
    group: "bmc.tinkerbell.org",
    plural: "tasks",
    short: ["t"],
    columns: [],
    spec: TaskSpec,
    status: TaskStatus,
    moved: false,
);

/// What is asked of which BMC.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TaskSpec {
    /// The request.
    pub task: BmcAction,
    /// How the BMC is reached: the connection of its Machine when the Task was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
}

/// How far the Task is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatus {
    /// Completed and Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<RunCondition>,
    /// When the Task began; written before the first request to the BMC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the Task succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}
