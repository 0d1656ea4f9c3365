//! Tests of the planner for machines: a small pure model of everything around it, and what must hold in it.

mod act;
mod bare;
mod boot;
mod deleted;
mod examples;
mod exchange;
mod growth;
mod inventory;
mod lacks;
mod limits;
mod lost;
mod maintenance;
pub(crate) mod outside;
mod pods;
mod post;
pub(crate) mod properties;
mod timeline;
mod verify;
pub(crate) mod world;
