//! What is done to a whole machine: snapshot, restore, migration. One object is one operation.
//!
//! | file | what |
//! |---|---|
//! | `operation.rs` | what they have in common: finalizer, the lock on the machine, phases, the condition |
//! | `observed.rs` | what a snapshot rests on |
//! | `snapshot.rs` | the disks of a machine at one moment |
//! | `group.rs` | the same while the machine runs: a VolumeGroupSnapshot |
//! | `restore.rs` | the disks of a machine back to a snapshot |
//! | `migration.rs` | a machine to another server |

pub mod group;
pub mod migration;
pub mod observed;
pub mod operation;
pub mod restore;
pub mod snapshot;

pub use operation::{Action, Lock, Plan, Verb, forbids_start, is_off, lock};
