//! Tests of who has which address: examples, and what holds for every sequence of events in a small model of the API server.

mod examples;
mod properties;
mod world;
