//! `bmc.tinkerbell.org/v1alpha1 Job`: requests to one BMC, one after the other.

use super::action::BmcAction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

kind!(
    /// Requests to one BMC, as Tinkerbell describes them.
    Job,
    group: "bmc.tinkerbell.org",
    plural: "jobs",
    short: ["j"],
    columns: [],
    spec: JobSpec,
    status: JobStatus,
    moved: false,
);

/// Which BMC is asked for what.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// The BMC. (An object without a `spec` reads as one with empty names.)
    pub machine_ref: MachineReference,
    /// The requests, in their order. The next one begins when the one before has succeeded.
    #[schemars(length(min = 1))]
    pub tasks: Vec<BmcAction>,
}

/// A bmc.tinkerbell.org Machine.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct MachineReference {
    /// Name of the Machine.
    pub name: String,
    /// Namespace of the Machine.
    pub namespace: String,
}

/// How far the Job is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobStatus {
    /// Running, Completed and Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<RunCondition>,
    /// When the Job began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the Job succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}

/// What was observed of a Job or a Task.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct RunCondition {
    /// Name of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// True or False.
    pub status: String,
    /// What happened, for a reader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
