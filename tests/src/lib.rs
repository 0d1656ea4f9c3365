//! A whole Metalplane site in a sandbox, for the demo and the end-to-end tests.
//!
//! | module | what it is |
//! |---|---|
//! | [`site`] | a sandbox with Metalplane installed by helm, its inventory and golden images |
//! | [`guest`] | a guest seen from its serial console |
//! | [`shares`] | how much of a start's time is ours |
//! | [`sim`] | the controller and the agent in simulated time, without a sandbox |
//! | [`chart`] | every value of the chart, and another one than its default |
//! | [`demo`] | `make demo`: one machine from `kubectl apply` to deletion, live |

pub mod chart;
pub mod demo;
pub mod guest;
pub mod shares;
pub mod sim;
pub mod site;
