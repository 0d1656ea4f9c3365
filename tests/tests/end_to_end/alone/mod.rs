//! What is done to all of the site.

mod controller_killed;
mod lost_dpu;
mod running;
