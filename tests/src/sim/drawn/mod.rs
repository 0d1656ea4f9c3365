//! Networks that nobody has thought of: drawn by dice, made in whatever order, and taken down in whatever order.
//!
//! | file | what |
//! |---|---|
//! | `draw.rs` | which objects there are |
//! | `groups.rs` | SecurityGroups and their rules |
//! | `outside.rs` | a way out, a VLAN; a machine, and a pod on it |
//! | `orders.rs` | the steps in which they are made |
//! | `asked.rs` | what is there of what the description asks for |
//! | `rivals.rs` | somebody asks for what others have |
//! | `rows.rs` | the rows of two runs, as they are compared |

mod asked;
mod draw;
mod groups;
mod orders;
mod outside;
mod rivals;
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

/// Until nobody has anything to do any more, and nothing is wrong. Looked at only then: what is right for a moment may change.
async fn settles(s: &Simulation, wrong: impl Fn(&Simulation) -> Option<String>) -> Result<(), String> {
    let began = Instant::now();
    let effects = || s.scene.journal().len();
    loop {
        let before = effects();
        tokio::time::sleep(CALM).await;
        let violations = s.scene.violations();
        if !violations.is_empty() {
            return Err(format!("{}\n{}", violations.join("; "), s.story()));
        }
        let busy = (effects() != before).then(|| "somebody always writes something".to_owned());
        match busy.or_else(|| wrong(s)) {
            None => return Ok(()),
            Some(wrong) if began.elapsed() > PATIENCE => return Err(format!("{wrong}\n{}", s.story())),
            Some(_) => {}
        }
    }
}

/// Made in this order, then deleted in one of the dice: there is nothing that was not there before. The rows in between.
pub async fn whole(s: &Simulation, description: &Description, order: &Order) -> Result<Vec<String>, String> {
    s.until("the site is there", asked::site_is_there).await?;
    settles(s, |_| None).await?;
    let before = rows::compared(s);
    orders::carry_out(s, order).await;
    settles(s, |s| asked::missing(s, description)).await?;
    let made = rows::compared(s);
    rivals::ask(s, description).await?;
    if let Some(other) = rows::difference(&made, &rows::compared(s)) {
        return Err(format!("whoever asked for what others have has changed rows: {other}\n{}", s.story()));
    }
    ends(s, description, &before).await?;
    Ok(made)
}

/// All that there is of it is deleted, in an order of the dice.
async fn ends(s: &Simulation, description: &Description, before: &[String]) -> Result<(), String> {
    orders::take_down(s, description, &Random::new(description.seed)).await;
    let unclean = |s: &Simulation| (!life::is_clean(s)).then(|| "something of a machine or a VNic is left".to_owned());
    settles(s, |s| {
        let rows = || rows::difference(before, &rows::compared(s)).map(|left| format!("left in OVN: {left}"));
        asked::left(s, description).or_else(|| unclean(s)).or_else(rows)
    })
    .await
}

/// The same, deleted at that moment of its making at which the plan of faults has its mark.
pub async fn cut_short(s: &Simulation, description: &Description, order: &Order) -> Result<(), String> {
    s.until("the site is there", asked::site_is_there).await?;
    settles(s, |_| None).await?;
    let before = rows::compared(s);
    let mut reached = s.scene.faults.reached.subscribe();
    let made = async {
        orders::carry_out(s, order).await;
        settles(s, |s| asked::missing(s, description)).await
    };
    tokio::select! {
        biased;
        _ = reached.wait_for(|reached| *reached) => {}
        made = made => made?,
    }
    ends(s, description, &before).await
}

/// What differs between the rows of two runs.
pub fn difference(wanted: &[String], rows: &[String]) -> Option<String> {
    rows::difference(wanted, rows)
}
