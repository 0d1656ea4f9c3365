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
    /// It is over and did not work; the condition says why. Delete it and make another one.
    Failed,
}

impl OperationPhase {
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}
