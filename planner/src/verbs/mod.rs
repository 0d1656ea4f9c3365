//! What is done to a whole machine: snapshot, restore, migration. One object is one operation.
//!
//! | file | what |
//! |---|---|
//! | `operation.rs` | what they have in common: finalizer, the lock on the machine, phases, the condition |
//! | `snapshot.rs` | the disks of a machine at one moment |
//! | `restore.rs` | the disks of a machine back to a snapshot |
//! | `migration.rs` | a machine to another server |

pub mod migration;
pub mod operation;
pub mod restore;
pub mod snapshot;

pub use operation::{Action, Lock, Plan, Verb, forbids_start, is_off, lock};
