//! No address is served twice, whatever goes wrong; and a Subnet stays under what runs in it.

use super::{cases, each, seed, simulate, wide};
use std::time::Duration;
use tests::sim::api::watch::Manners;
use tests::sim::faults::{Fault, Plan, Who};
use tests::sim::{Simulation, addresses as scene, dismissed, unresponsive};

#[test]
fn two_machines_ask_for_one_address_at_once() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Late, Fault::Refuse], 150, wide(23));
    each(cases, |plan| simulate(async { scene::two_machines(&Simulation::start(2, seed(), plan.clone())).await }));
}

/// Each has a Lease of its own, so both lead: what remains is the hold's name.
#[test]
fn two_machines_ask_two_controllers_for_one_address() {
    each(0..4u64, |more| {
        simulate(async {
            let mut s = Simulation::start(2, seed() + more, Plan::None);
            s.start_controller("controller-2", "default");
            if more % 2 == 1 {
                s.scene.watches(Who::Controller, Manners::Late(Duration::from_secs(2)));
            }
            scene::two_machines(&s).await
        })
    });
}

#[test]
fn vnics_have_their_addresses_without_a_machine() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Late, Fault::Refuse], 40, 7);
    each(cases, |plan| simulate(async { scene::own_vnics(&Simulation::start(1, seed(), plan.clone())).await }));
}

#[test]
fn addresses_are_chosen() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Late, Fault::Refuse], 60, wide(7));
    each(cases, |plan| simulate(async { scene::chosen(&Simulation::start(1, seed(), plan.clone())).await }));
}

/// Both lead, and one of them, or both, hear late of what the other does.
#[test]
fn two_controllers_choose_at_once() {
    each(0..4u64, |more| {
        simulate(async {
            let mut s = Simulation::start(1, seed() + more, Plan::None);
            s.start_controller("controller-2", "default");
            if more % 2 == 1 {
                s.scene.watches(Who::Controller, Manners::Late(Duration::from_secs(2)));
            }
            scene::chosen(&s).await
        })
    });
}

#[test]
fn a_hold_that_was_created_too_late_is_collected() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Late], 16, 3);
    each(cases, |plan| simulate(async { scene::held_too_late(&Simulation::start(1, seed(), plan.clone())).await }));
}

#[test]
fn a_vnic_is_taken_away_by_force_under_a_running_machine() {
    simulate(async { scene::vnic_taken_by_force(&Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_subnet_is_deleted_under_a_running_machine() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Late], 80, wide(13));
    each(cases, |plan| simulate(async { scene::subnet_deleted(&Simulation::start(2, seed(), plan.clone())).await }));
}

#[test]
fn a_subnet_is_taken_away_by_force_under_a_running_machine() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Late], 90, wide(29));
    each(cases, |plan| {
        simulate(async { dismissed::under_a_machine(&mut Simulation::start(1, seed(), plan.clone())).await })
    });
}

#[test]
fn the_subnet_on_a_vlan_is_taken_away_by_force() {
    each([false, true].into_iter(), |unseen| {
        simulate(async { dismissed::on_a_vlan(&mut Simulation::start(1, seed(), Plan::None), *unseen).await })
    });
}

#[test]
fn events_tell_which_address_was_chosen_and_which_nic_was_plugged() {
    simulate(async { tests::sim::events::of_nics(&mut Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_address_of_an_unresponsive_dpus_nic_stays_taken_until_the_dpu_is_off() {
    each([true, false].into_iter(), |deleted| {
        simulate(async { unresponsive::keeps_its_address(&Simulation::start(1, seed(), Plan::None), *deleted).await })
    });
}

#[test]
fn an_orphaned_nic_keeps_its_address() {
    simulate(async { scene::orphan_keeps_its_address(&mut Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn two_machines_run_with_one_address_at_the_upgrade() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Refuse], 150, wide(21));
    each(cases, |plan| simulate(async { scene::upgraded(&mut Simulation::start(2, seed(), plan.clone())).await }));
}

#[test]
fn the_oldest_vnic_has_the_address_at_the_upgrade() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Refuse], 8, 2);
    each(cases, |plan| simulate(async { scene::upgraded_idle(&mut Simulation::start(1, seed(), plan.clone())).await }));
}
