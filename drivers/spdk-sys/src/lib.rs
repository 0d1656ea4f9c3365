//! SPDK's C libraries, made safe to call.
//!
//! With the feature `native` the build finds SPDK (`SPDK_DIR`, a source folder with its build or where it was installed to;
//! else pkg-config alone), makes bindings to the functions of an allow-list, and links SPDK's archives. Without the feature,
//! or where there is no SPDK, this crate is [`MISSING`] and nothing else.
//!
//! SPDK is one per process. [`run`] starts it and keeps the calling thread until it ends. All else happens on SPDK's *app
//! thread*, which is that same thread of the system: what can be called there only asks for an [`App`], which exists there
//! only, and is not `Send`. Other threads reach it by [`send`].
//!
//! | module | what it is |
//! |---|---|
//! | `app` | start, end, the app thread |
//! | `bdev` | a bdev, opened |
//! | `io` | reads and writes of a bdev |
//! | `poller` | what is done again and again |
//! | `statistics` | what all bdevs did, without RPC |
//!
//! A callback that panics ends the process: unwinding does not pass through C.

#[cfg(spdk)]
mod app;
#[cfg(spdk)]
mod bdev;
#[cfg(spdk)]
#[allow(non_camel_case_types, non_snake_case, non_upper_case_globals, dead_code, reason = "bindgen made it of C")]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks, reason = "bindgen made it of C")]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
#[cfg(spdk)]
mod error;
#[cfg(spdk)]
mod io;
#[cfg(spdk)]
mod poller;
#[cfg(spdk)]
mod statistics;

#[cfg(spdk)]
pub use {
    app::{App, Memory, Options, run, send},
    bdev::{Access, Bdev},
    error::Error,
    io::{Buffer, Direction, Done, Io},
    statistics::{Statistics, Traffic},
};

/// Why SPDK cannot be used here.
#[cfg(not(spdk))]
pub const MISSING: &str = env!("SPDK_MISSING");
