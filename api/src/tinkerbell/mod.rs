//! Tinkerbell's kinds that Metalplane works with: [`hardware::Hardware`], [`template::Template`], [`workflow::Workflow`],
//! [`ruleset::WorkflowRuleSet`], and of BMCs [`machine::Machine`], [`job::Job`] and [`task::Task`].
//!
//! Group, version, names and schema are Tinkerbell's, so manifests made for Tinkerbell apply unchanged and lose no
//! field. The schema that goes to the API server is derived from the types below, as Go's tooling would write it
//! ([`schema`]); `tests/tinkerbell_schema.rs` compares it with the one that controller-gen makes from upstream's types.
//!
//! Almost everything is optional upstream, `spec` included. One odd object must not make a whole list unreadable, so
//! these roots tolerate what `kube_derive::CustomResource` would refuse (a missing `spec`); hence [`kind`].

#[macro_use]
mod kind;

pub mod action;
pub mod attributes;
pub mod hardware;
pub mod job;
pub mod machine;
pub mod metadata;
pub mod provider_options;
pub mod ruleset;
mod schema;
pub mod task;
pub mod template;
pub mod workflow;

pub use hardware::Hardware;
pub use job::Job;
pub use machine::Machine;
pub use ruleset::WorkflowRuleSet;
pub use task::Task;
pub use template::Template;
pub use workflow::Workflow;

use serde::{Deserialize, Serialize};

/// A Secret, by name and namespace.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, schemars::JsonSchema, Serialize)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[serde(rename_all = "camelCase")]
pub struct SecretReference {
    /// Name of the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

#[cfg(test)]
mod tests;
