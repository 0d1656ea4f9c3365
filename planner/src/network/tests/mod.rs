//! Tests of who has which address: examples, and what holds for every sequence of events in a small model of the API server. And
//! of a VNic's port (`port.rs`).

mod barrier;
mod examples;
mod port;
mod properties;
mod trace;
mod world;
