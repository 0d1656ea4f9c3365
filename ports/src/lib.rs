//! The seams to the outside: [`Bmc`], [`Emulation`], [`VolumeConnector`], [`StorageFence`], [`LogicalVolumes`],
//! [`PodDevices`], [`Metadata`], [`Switch`], [`NorthBound`] and [`SouthBound`].
//!
//! Every verb may be called again with the same arguments and ends in the same state (idempotent); long work is
//! started and then observed through the `list`/`observe` verbs. Each port has a conformance suite in
//! [`conformance`] that runs against the simulation's in-process port, against wire-level fakes and against the real
//! part.

pub mod bmc;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod emulation;
mod error;
pub mod fence;
pub mod lvol;
pub mod metadata;
pub mod north_bound;
pub mod nothing;
pub mod pod_devices;
pub mod south_bound;
pub mod split;
pub mod switch;
pub mod volume;

pub use bmc::Bmc;
pub use emulation::Emulation;
pub use error::{ErrorClass, PortError};
pub use fence::StorageFence;
pub use lvol::LogicalVolumes;
pub use metadata::Metadata;
pub use north_bound::NorthBound;
pub use pod_devices::PodDevices;
pub use south_bound::SouthBound;
pub use switch::Switch;
pub use volume::VolumeConnector;
