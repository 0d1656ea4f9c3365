//! The client, the switch and the guest watch against a real Open vSwitch.

mod lab;
mod proxy;
mod session;
mod switch;
