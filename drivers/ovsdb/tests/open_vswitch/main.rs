//! The client, the switch and the guest watch against a real Open vSwitch, the network's databases against a real OVN.

mod beside;
mod chassis;
mod cluster;
mod lab;
mod north_bound;
mod northd;
mod pki;
mod proxy;
mod rows;
mod session;
mod switch;
mod tls;
mod way_out;
