//! Networks that nobody has thought of: drawn by dice, made in whatever order, and taken down in whatever order.
//!
//! | file | what |
//! |---|---|
//! | `draw.rs` | which objects there are |
//! | `groups.rs` | SecurityGroups and their rules |
//! | `outside.rs` | a way out, a VLAN; a machine, and a pod on it |
//! | `orders.rs` | the steps in which they are made |
//! | `asked.rs` | what is there of what the description asks for |
//! | `rows.rs` | the rows of two runs, as they are compared |

mod asked;
mod draw;
mod groups;
mod orders;
mod outside;
mod rows;

pub use draw::{Description, draw};
pub use orders::{Order, Pace};

use super::life;
use super::random::Random;
use super::simulation::{PATIENCE, Simulation};
use super::{faults, foreign};
use std::time::Duration;
use tokio::time::Instant;

/// Longer than a request is late, and than any pause after which something is tried again.
const CALM: Duration = Duration::from_secs(45);

/// A simulation with this network still to be made, beside what somebody else has in OVN.
pub fn start(description: &Description, seed: u64, plan: faults::Plan) -> Simulation {
    let s = Simulation::start(description.hosts, seed, plan);
    foreign::put(&s.scene);
    s
}

/// Until nobody has anything to do any more.
async fn calm(s: &Simulation) -> Result<(), String> {
    let began = Instant::now();
    let effects = || s.scene.journal().len();
    loop {
        let before = effects();
        tokio::time::sleep(CALM).await;
        if effects() == before {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("somebody always writes something\n{}", s.story()));
        }
    }
}

/// Made in this order. The rows that it ends in.
pub async fn make(s: &Simulation, description: &Description, order: &Order) -> Result<Vec<String>, String> {
    orders::carry_out(s, order).await;
    let made = s.until("the network is as it was described", |s| asked::missing(s, description).is_none()).await;
    made.map_err(|error| format!("{}: {error}", asked::missing(s, description).unwrap_or_default()))?;
    calm(s).await?;
    match asked::missing(s, description) {
        None => Ok(rows::compared(s)),
        Some(missing) => Err(format!("it was there, and is no more: {missing}\n{}", s.story())),
    }
}

/// As [`make`], then deleted in an order of the dice: there is nothing that was not there before.
pub async fn whole(s: &Simulation, description: &Description, order: &Order) -> Result<Vec<String>, String> {
    s.until("the site is there", asked::site_is_there).await?;
    calm(s).await?;
    let before = rows::compared(s);
    let made = make(s, description, order).await?;
    let dice = Random::new(description.seed);
    orders::take_down(s, description, &dice).await;
    let is_gone = |s: &Simulation| asked::left(s, description).is_none() && life::is_clean(s);
    let gone = s.until("nothing is left", is_gone).await;
    gone.map_err(|error| format!("{}: {error}", asked::left(s, description).unwrap_or_default()))?;
    calm(s).await?;
    rows::difference(&before, &rows::compared(s))
        .map_or(Ok(made), |left| Err(format!("left in OVN: {left}\n{}", s.story())))
}

/// What differs between the rows of two runs.
pub fn difference(wanted: &[String], rows: &[String]) -> Option<String> {
    rows::difference(wanted, rows)
}
