//! The client, the switch and the guest watch against a real Open vSwitch.

mod lab;
mod north_bound;
mod proxy;
mod session;
mod switch;
