//! Every decision of Metalplane, as pure functions `(desired, observed, now) -> Plan`.
//!
//! No async, no I/O, no clock, no randomness: the shells (controller, agent) gather what is observed, call a function
//! of this crate, act on the plan with one `match` and write status. See `docs/design/architecture.md`, rules 1 to 6.

pub mod about;
pub mod admission;
pub mod agent;
pub mod boot_option;
pub mod connector;
pub mod dpu;
pub mod enrol;
pub mod erase;
pub mod event;
pub mod explain;
pub mod exposure;
pub mod host;
pub mod identity;
pub mod image;
pub mod install;
pub mod job;
pub mod late;
mod mac;
pub mod machine;
pub mod meta;
pub mod metadata;
pub mod netboot;
pub mod network;
pub mod observed;
mod orphan;
pub mod own_bmc;
pub mod protocol;
pub mod reason;
pub mod seen;
pub mod selector;
pub mod target;
pub mod verbs;
pub mod vnic;
pub mod workflow;
pub mod writer;
