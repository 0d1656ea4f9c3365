//! The controller: watches what users declare and what agents and BMCs report, and leads the one to the other.
//!
//! Every kind has the same five steps: gather → validate → plan → act → status. Decisions are the planner's; this crate
//! gathers ([`world`], [`bmc`]), carries plans out with one `match` per kind, and writes status. It talks to the API server
//! through one `kube::Client`, so that a test can put another server under it, and to BMCs through [`bmc::BmcFactory`].

mod admissions;
pub mod args;
pub mod bmc;
pub mod cache;
mod collector;
mod context;
mod dpu;
mod echo;
mod enrol;
pub mod error;
mod events;
mod fences;
mod hold;
mod holder_pods;
mod image;
mod index;
mod job;
mod kinds;
mod liveness;
mod machine;
mod memory;
mod metrics;
mod network;
mod news;
mod objects;
mod orphans;
mod placement;
mod run;
mod verbs;
mod volumes;
mod went_back;
pub mod wire_up;
mod work;
mod workflow;
pub mod world;

pub(crate) use context::Controller;
use executor::snapshots;
pub use fences::Fences;
pub use network::{OpenNorthBound, OpenSouthBound, Ovn};
pub use objects::Objects;
pub use run::{LOOKS, Pages, Settings, run};
use runtime::clock;
