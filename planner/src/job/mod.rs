//! Tinkerbell's Jobs: requests to one BMC, one after the other, each a Task.
//!
//! | file | what |
//! |---|---|
//! | `plan.rs` | what a plan rests on, and what it is |
//! | `next.rs` | what becomes of a Job, and which Task is next |
//! | `request.rs` | what an action of Tinkerbell's asks of a BMC, in the words of the port; what is not served, by name |
//! | `step.rs` | one Task: what is sent, when it is sent again, and when it is done |
//! | `contact.rs` | what a bmc.tinkerbell.org Machine says of its BMC |
//!
//! A Job has its server for as long as it runs (`metalplane.io/job` on the Hardware, by compare-and-swap, as a claim is), and a server
//! that a machine has claimed is touched by none. A Task's start is written before anything is sent. What is sent again is only what
//! does no harm twice, and only after a reading of this moment; a reset whose answer was lost is `Failed`, for nobody knows.

mod contact;
mod next;
mod plan;
mod request;
mod step;
#[cfg(test)]
mod tests;

pub use contact::contact;
pub use next::plan;
pub use plan::{
    Action, Answer, COMPLETED, FAILED, LIMIT, Observed, Plan, RUNNING, Sent, Server, is, is_over, message, task_name,
};
pub use request::Request;
