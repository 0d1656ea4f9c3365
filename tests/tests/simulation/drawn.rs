//! Networks drawn at random: the same objects end in the same rows in whatever order they come, whatever goes wrong meanwhile, and leave nothing.
//! `SIM_SEED` draws others.

use super::{each, sample, seed, simulate, wide};
use tests::sim::api::watch::Manners;
use tests::sim::drawn::{self, Description, Order, Pace, draw};
use tests::sim::faults::{Fault, Plan, Who};
use tests::sim::random::Random;

const FAULTS: [Fault; 5] = [Fault::Crash, Fault::CrashBefore, Fault::LoseAnswer, Fault::Refuse, Fault::Late];

/// More of what is drawn, where there is time.
fn many(few: u64) -> std::ops::Range<u64> {
    0..if std::env::var_os("LONG_TESTS").is_some() { few * 3 } else { few }
}

/// What it ends in where nothing goes wrong, and how many effects of the controller and of the agents that takes.
struct Wanted {
    rows: Vec<String>,
    effects: [(Who, usize); 2],
}

fn wanted(description: &Description) -> Result<Wanted, String> {
    simulate(async {
        let s = drawn::start(description, seed(), Plan::None);
        let rows = drawn::whole(&s, description, &Order::plain(description)).await?;
        let effects = [Who::Controller, Who::Agent].map(|who| (who, s.scene.faults.count(who)));
        Ok(Wanted { rows, effects })
    })
}

/// A life of it is to end in these rows, and to leave nothing.
async fn same(s: &tests::sim::Simulation, of: &Description, order: &Order, wanted: &Wanted) -> Result<(), String> {
    let rows = drawn::whole(s, of, order).await?;
    let other = drawn::difference(&wanted.rows, &rows);
    other.map_or(Ok(()), |other| Err(format!("other rows than without faults: {other}\n{order:?}")))
}

fn order(of: &Description, number: u64) -> Order {
    let pace = if number.is_multiple_of(2) { Pace::AtOnce } else { Pace::OneByOne };
    Order::shuffled(of, &Random::new(of.seed ^ ((number + 1) << 32)), pace)
}

#[test]
fn the_same_objects_in_any_order_end_in_the_same_rows() {
    each(many(4), |number| {
        let of = draw(seed() + number, false);
        let wanted = wanted(&of)?;
        (0..2).try_for_each(|turn| {
            simulate(async {
                let s = drawn::start(&of, seed(), Plan::None);
                same(&s, &of, &order(&of, turn), &wanted).await.map_err(|error| format!("order {turn}: {error}"))
            })
        })
    });
}

/// With a machine, and pods on it.
#[test]
fn networks_end_in_the_same_rows_whatever_goes_wrong() {
    each(many(2), |number| {
        let of = draw(seed() + 100 + number, true);
        let wanted = wanted(&of)?;
        let at = |(who, effects): (Who, usize)| {
            let plans = |fault| sample(effects, wide(effects.div_ceil(4))).map(move |at| Plan::At { who, at, fault });
            FAULTS.into_iter().flat_map(plans).collect::<Vec<_>>()
        };
        let mut plans = wanted.effects.into_iter().flat_map(at).chain([Plan::RefuseFirst(Default::default())]);
        plans.try_for_each(|plan| {
            // Of the effect, so that `SIM_AT` has the same one.
            let order = order(&of, if let Plan::At { at, .. } = &plan { *at as u64 } else { 0 });
            simulate(async {
                let s = drawn::start(&of, seed(), plan.clone());
                same(&s, &of, &order, &wanted).await.map_err(|error| format!("{plan:?}: {error}"))
            })
        })
    });
}

#[test]
fn networks_end_in_the_same_rows_after_a_storm() {
    each(many(2), |number| {
        let of = draw(seed() + 200 + number, true);
        let wanted = wanted(&of)?;
        simulate(async {
            let until = runtime::clock::now() + jiff::SignedDuration::from_secs(150);
            let plan = Plan::Storm { per_mille: 60, faults: FAULTS.to_vec(), until };
            same(&drawn::start(&of, seed(), plan), &of, &order(&of, *number), &wanted).await
        })
    });
}

/// Both lead, and hear late of what the other does.
#[test]
fn two_controllers_make_one_network() {
    each(many(2), |number| {
        let of = draw(seed() + 300 + number, false);
        let wanted = wanted(&of)?;
        simulate(async {
            let mut s = drawn::start(&of, seed(), Plan::None);
            s.start_controller("controller-2", "default");
            s.scene.watches(Who::Controller, Manners::Late(std::time::Duration::from_secs(2)));
            same(&s, &of, &order(&of, *number), &wanted).await
        })
    });
}

/// In the middle of whatever the controller does of it; what has no object by then is never made.
#[test]
fn networks_that_are_deleted_while_they_are_made_leave_nothing() {
    each(many(2), |number| {
        let of = draw(seed() + 400 + number, true);
        let made = wanted(&of)?.effects[0].1;
        // Of the making, not of the deletion, nor of what is there before.
        [2, 4, 5].into_iter().try_for_each(|tenth| {
            let plan = Plan::At { who: Who::Controller, at: made * tenth / 10, fault: Fault::Mark };
            simulate(async {
                let s = drawn::start(&of, seed(), plan.clone());
                let ended = drawn::cut_short(&s, &of, &order(&of, tenth as u64)).await;
                ended.map_err(|error| format!("{plan:?}: {error}"))
            })
        })
    });
}
