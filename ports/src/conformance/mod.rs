//! One suite per port. A suite takes a way to make the port and asserts what the trait's documentation promises.

pub mod bmc;
pub mod emulation;
pub mod switch;
pub mod volume;
