//! What is done to all of the site.

mod controller_killed;
mod running;
mod silent_dpu;
