//! The virtual server, run as the program it is.
//!
//! `manners`: Redfish, faults, and slots while the host is off. `boots`: what a guest sees, by real boots.

mod boots;
mod manners;
mod support;
