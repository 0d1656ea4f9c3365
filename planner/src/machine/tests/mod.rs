//! Tests of the planner for machines: a small pure model of everything around it, and what must hold in it.

mod act;
mod examples;
mod outside;
mod properties;
mod world;
