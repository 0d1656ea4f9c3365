//! The controller: watches what users declare and what agents and BMCs report, and leads the one to the other.
//!
//! Every kind has the same five steps: gather → validate → plan → act → status. Decisions are the planner's; this crate
//! gathers ([`world`], [`bmc`]), carries plans out with one `match` per kind, and writes status. It talks to the API server
//! through one `kube::Client`, so that a test can put another server under it, and to BMCs through [`bmc::BmcFactory`].

mod admissions;
pub mod args;
pub mod bmc;
pub mod cache;
pub mod clock;
mod dpu;
pub mod error;
mod events;
mod fences;
mod hold;
mod holder_pods;
mod http;
mod image;
pub mod leader;
mod liveness;
mod machine;
mod metrics;
mod objects;
mod orphans;
mod patience;
mod queue;
mod run;
mod snapshots;
mod verbs;
mod volumes;
pub mod wire_up;
pub mod world;

pub use fences::Fences;
pub use objects::Objects;
pub use run::{Controller, Settings, run};
