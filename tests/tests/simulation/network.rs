//! Vpcs, Subnets and SecurityGroups, made and deleted in the worst order, and a north-bound database that is away or changed by
//! hand.

use super::{cases, each, seed, simulate};
use tests::sim::faults::{Fault, Plan};
use tests::sim::{Simulation, network as scene};

#[test]
fn two_vpcs_have_the_same_addresses() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Refuse, Fault::Late], 200, 41);
    each(cases, |plan| simulate(async { scene::two_vpcs(&Simulation::start(2, seed(), plan.clone())).await }));
}

#[test]
fn the_north_bound_database_is_away() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer], 90, 31);
    each(cases, |plan| simulate(async { scene::away(&Simulation::start(1, seed(), plan.clone())).await }));
}

#[test]
fn a_chassis_is_dead_while_a_group_changes_and_the_database_is_put_back() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Refuse, Fault::Late], 140, 35);
    each(cases, |plan| simulate(async { scene::chassis_dead(&Simulation::start(2, seed(), plan.clone())).await }));
}

#[test]
fn a_controller_that_starts_where_all_is_right_writes_its_token() {
    simulate(async { scene::idle_restart(&mut Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn rows_are_changed_and_deleted_by_hand() {
    simulate(async { scene::by_hand(&Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}
