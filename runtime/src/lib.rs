//! What every program of Metalplane stands on, whatever it is for. It knows no kind and no driver.
//!
//! | file | what |
//! |---|---|
//! | `clock.rs` | the one clock of a process; a simulation sets it |
//! | `process.rs` | the log, TLS, and the signals that end a process |
//! | `cluster.rs` | the API server: where it is, and how a client talks to it |
//! | `change.rs` | a change of an object that was read: a patch that names what it was read as |
//! | `patience.rs` | how long a watch waits that failed |
//! | `unreadable.rs` | which objects a watch cannot read |
//! | `leader.rs` | one process acts at a time |
//! | `queue.rs` | which objects are to be looked at, each once at a time |
//! | `http.rs` | /healthz, /readyz, /metrics |
//! | [`version`] | what a program says it is: a crate of its own, for programs that are too small for this one |

pub mod change;
pub mod clock;
pub mod cluster;
pub mod http;
pub mod leader;
pub mod patience;
pub mod process;
pub mod queue;
pub mod unreadable;

pub use version;
