//! The words a user can write: every custom resource of Metalplane, conditions, names and labels.
//!
//! The shapes and who may read what: `docs/design/api.md`. This crate reaches no client, no runtime and no clock.

pub mod attachment;
pub mod conditions;
pub mod crds;
pub mod dpu;
pub mod hold;
pub mod image;
pub mod labels;
pub mod limits;
pub mod machine;
pub mod names;
pub mod network;
pub mod quantity;
pub mod report;
pub mod tinkerbell;
pub mod verbs;

pub use attachment::{DiskAttachment, NicAttachment};
pub use dpu::{Dpu, HardwarePolicy};
pub use hold::VolumeHold;
pub use image::{ClusterMachineImage, MachineImage};
pub use limits::Limits;
pub use machine::BareMetalMachine;
pub use network::{AddressHold, FloatingIP, NatGateway, ProviderNetwork, SecurityGroup, Subnet, VNic, Vpc};
pub use report::HardwareReport;
pub use verbs::{MachineMigration, MachineRestore, MachineSnapshot};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A reference to an object in the same namespace.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
pub struct Named {
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}
