//! The client, the switch and the guest watch against a real Open vSwitch, the network's databases against a real OVN.

mod another;
mod beside;
mod chassis;
mod cluster;
mod conditions;
mod crowd;
mod lab;
mod lost;
mod north_bound;
mod northd;
mod pki;
mod proxy;
mod roles;
mod rows;
mod session;
mod switch;
mod tls;
mod way_out;
