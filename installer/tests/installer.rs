//! The installer against a server of Tinkerbell's protocol that this test is: its agent here, in this process, and all of
//! it as process 1 of a virtual server.

#[path = "installer/agent.rs"]
mod agent;
#[path = "installer/guest.rs"]
mod guest;
#[path = "installer/server.rs"]
mod server;
