//! The installer against a server of Tinkerbell's protocol that this test is: its agent here, in this process, and all of
//! it as process 1 of a virtual server.

mod agent;
mod grub;
mod guest;
mod machine;
mod mtu;
mod registry;
mod rootio;
mod server;
mod system;
mod vlan;
