//! The agent's plan, by example ([`examples`]) and over any mix of what can happen ([`properties`]).

mod examples;
mod limits;
mod nics;
mod orphans;
mod properties;
mod recovery;
mod world;
