//! How an action of a plan is carried out: which requests are sent, one after the other, and what each of them rests on
//! (docs/design/fencing.md).
//!
//! The sequences know the API server as [`Verbs`] of each kind that they touch, and all else that they rest on as a [`Shell`]: a
//! storage system that can be told whom to refuse, and who is silent. The controller implements both with a client of the cluster
//! and the drivers; `executor/tests/schedules` with a model in which any request may be the last one, come late, or lose its answer.
//! So what a million schedules prove is what ships.

pub mod act;
pub mod claims;
mod confirmed;
pub mod disks;
mod error;
pub mod fences;
pub mod holder_pods;
pub mod hosts;
pub mod install;
pub mod nics;
mod shell;
pub mod snapshots;
mod verbs;
pub mod volumes;
pub mod writes;

pub use confirmed::Confirmed;
pub use error::{Error, found};
pub use shell::{Shell, Storage};
pub use verbs::{Object, Part, Verbs, forget, get, known, list, put, seen, what};
