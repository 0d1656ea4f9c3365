//! `bmc.tinkerbell.org/v1alpha1 Machine`: how to reach one server's BMC, and what it said last.

use super::SecretReference;
use super::provider_options::ProviderOptions;
use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

kind!(
    /// A BMC, as Tinkerbell describes it.
    Machine,
    group: "bmc.tinkerbell.org",
    plural: "machines",
    short: [],
    columns: [],
    spec: MachineSpec,
    status: MachineStatus,
    moved: true,
);

/// Which BMC it is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct MachineSpec {
    /// How the BMC is reached. (An object without a `spec` reads as one with an empty host.)
    pub connection: Connection,
}

/// How a BMC is reached.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// Address or host name of the BMC.
    #[schemars(length(min = 1))]
    pub host: String,
    /// IPMI port of the BMC; Redfish has its own under `providerOptions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int", extend("default" = 623))]
    pub port: Option<i64>,
    /// The Secret with the BMC's account, under the keys `username` and `password`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_secret_ref: Option<SecretReference>,
    /// True: the BMC's certificate is not verified.
    #[serde(rename = "insecureTLS")]
    pub insecure_tls: bool,
    /// Settings of single providers (protocols).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_options: Option<ProviderOptions>,
}

/// What was last seen of the BMC.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Power of the host behind the BMC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_state: Option<PowerState>,
    /// Contactable: whether the BMC answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<MachineCondition>,
}

/// Power of the host, in Tinkerbell's words.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PowerState {
    On,
    Off,
    Unknown,
}

/// Tinkerbell's own form of a condition; it is older than Kubernetes' `metav1.Condition`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineCondition {
    /// Name of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// True or False.
    pub status: String,
    /// When the condition last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// What happened, for a reader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
