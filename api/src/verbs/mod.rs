//! What is done to a whole machine: `MachineSnapshot`, `MachineRestore`, `MachineMigration`.
//!
//! An object of these kinds is one operation. It is asked for once and never changed; it holds the machine (annotation
//! `metalplane.io/operation`) for as long as no other operation may go on beside it.

pub mod migration;
pub mod restore;
pub mod snapshot;

pub use migration::MachineMigration;
pub use restore::MachineRestore;
pub use snapshot::MachineSnapshot;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::object::HasStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far an operation is. Succeeded and Failed are the end.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, Hash, JsonSchema)]
pub enum OperationPhase {
    /// It waits for what the condition says; nothing was changed.
    #[default]
    Pending,
    Running,
    Succeeded,
    /// It is over and did not work; the condition says why. Delete the operation, and create another one of its kind.
    Failed,
}

impl OperationPhase {
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// What every operation says of itself.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Pending, Running, Succeeded or Failed.
    #[serde(default)]
    pub phase: OperationPhase,
    /// Ready (of a MachineSnapshot) or Complete, true at the end; until then its reason is what is waited for, or why it failed.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// An object that is an operation. One of which nothing is said yet is pending.
pub trait HasPhase {
    fn phase(&self) -> OperationPhase;
    fn conditions(&self) -> &[Condition];
}

impl<K: HasStatus<Status: AsRef<OperationStatus>>> HasPhase for K {
    fn phase(&self) -> OperationPhase {
        self.status().map(|status| status.as_ref().phase).unwrap_or_default()
    }

    fn conditions(&self) -> &[Condition] {
        self.status().map(|status| status.as_ref().conditions.as_slice()).unwrap_or_default()
    }
}
