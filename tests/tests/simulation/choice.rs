//! Which server a machine gets, and when it is looked for.

use super::{each, seed, simulate};
use tests::sim::Simulation;
use tests::sim::choice::{Lack, cured};
use tests::sim::faults::Plan;

#[test]
fn a_machine_without_a_server_gets_one_as_soon_as_it_will_do() {
    each(Lack::ALL.into_iter(), |lack| {
        simulate(async { cured(&mut Simulation::start(1, seed(), Plan::None), *lack).await })
    });
}
