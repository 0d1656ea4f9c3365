//! A client of the Open vSwitch Database Management Protocol (RFC 7047 and what `ovsdb-server(7)` adds to it), and
//! [`ports::Switch`] on a real Open vSwitch.
//!
//! | layer | file | knows |
//! |---|---|---|
//! | stream | `address.rs`, `tls.rs`, `tls_error.rs`, `wire.rs` | how to connect; whom to believe; where a JSON message ends |
//! | connection | `client.rs` | request ids, time limits, echo both ways |
//! | language | `value.rs`, `schema.rs`, `transact.rs`, `monitor.rs` | RFC 7047 sections 3.2, 5.1, 5.2 and 4.1.5 |
//! | copy | `cache.rs`, `index.rs`, `feed.rs`, `session.rs`, `leader.rs` | merging updates, and whom they are about; reconnecting and resuming; which server will do |
//! | switch | `switch.rs`, `metadata_plugs.rs`, `boot.rs`, `in_force.rs` | the Open_vSwitch database: Bridge, Port, Interface, and what OVN says in it |
//! | north-bound | `north_bound/` | the OVN_Northbound database: our rows of it, as `planner` has them |
//! | south-bound | `chassis.rs` | the OVN_Southbound database: which numbers chassis have reached |
//! | guest | `guest.rs`, `sighting.rs`, `frames.rs`, `packet.rs`, `link.rs` | whether somebody answers behind a port |
//!
//! The layers down to "copy" know no table.

pub mod address;
mod boot;
pub mod cache;
pub mod chassis;
pub mod client;
mod datapath;
mod error;
mod feed;
mod frames;
mod guest;
mod in_force;
pub mod index;
mod leader;
mod link;
mod metadata_plugs;
pub mod monitor;
pub mod north_bound;
mod packet;
pub mod schema;
pub mod session;
mod sighting;
pub mod switch;
pub mod tls;
mod tls_error;
pub mod transact;
pub mod value;
pub mod wire;

pub use address::{Address, Addresses, Remotes};
pub use chassis::OvnSouthBound;
pub use error::Error;
pub use north_bound::OvnNorthBound;
pub use session::{Link, Schedule, Session, SessionConfig};
pub use switch::OpenVSwitch;
pub use tls::{Named, TlsFiles};
pub use transact::Transaction;
