//! Tests of who has which address: examples, and what holds for every sequence of events in a small model of the API server. And
//! of a VNic's port (`port.rs`), and of what an example means (`applied.rs`).

mod applied;
mod barrier;
mod bound;
mod examples;
mod port;
mod properties;
mod routes;
mod trace;
mod vlan;
mod world;
