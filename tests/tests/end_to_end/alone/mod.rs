//! What is done to all of the site.

mod controller_killed;
mod controller_stopped;
mod running;
mod silent_dpu;
mod stranger;
