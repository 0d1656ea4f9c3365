//! Tests of the planner for one machine.
