//! Vpcs, Subnets and SecurityGroups, made and deleted in the worst order, and a north-bound database that is away or changed by
//! hand.

use super::{cases, each, sample, seed, simulate, wide};
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;
use tests::sim::faults::{Fault, Plan, Who};
use tests::sim::{Simulation, counted, emptied, lagging, network as scene, says_why, shared, token, vlan, way_out};

#[test]
fn two_vpcs_have_the_same_addresses() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Refuse, Fault::Late], 200, wide(41));
    let wanted = two_vpcs_rows();
    each(cases, |plan| {
        simulate(async {
            let rows = scene::two_vpcs(&Simulation::start(2, seed(), plan.clone())).await?;
            same(wanted, &rows)
        })
    });
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
fn nothing_is_in_force_on_a_chassis_that_has_stopped() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer], 180, wide(59));
    each(cases, |plan| simulate(async { lagging::under_a_machine(&Simulation::start(1, seed(), plan.clone())).await }));
}

#[test]
fn a_controller_that_starts_where_all_is_right_writes_its_token() {
    // A database at once, and one that is larger than what is waited for of one that fails.
    each([0, 5].map(Duration::from_secs).into_iter(), |copying| {
        simulate(async { scene::idle_restart(&mut Simulation::start(1, seed(), Plan::None), *copying).await })
    });
}

#[test]
fn the_free_addresses_of_a_subnet_are_told() {
    simulate(async { counted::free_addresses(&Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn etcd_is_restored_to_a_time_before_the_last_leaders_while_no_controller_runs() {
    simulate(async { token::after_a_restore(&mut Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn rows_are_changed_and_deleted_by_hand() {
    simulate(async { scene::by_hand(&Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn an_empty_north_bound_database_is_filled_with_what_was_there() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Refuse], 180, wide(59));
    each(cases, |plan| simulate(async { emptied::under_a_machine(&Simulation::start(1, seed(), plan.clone())).await }));
}

/// The rows without faults, by the names of their objects. Asked for outside of any other run.
fn two_vpcs_rows() -> &'static Vec<String> {
    static ROWS: OnceLock<Vec<String>> = OnceLock::new();
    ROWS.get_or_init(|| {
        simulate(async {
            let s = Simulation::start(2, seed(), Plan::None);
            scene::two_vpcs(&s).await.unwrap_or_else(|e| panic!("SIM_SEED={}: {e}", seed()))
        })
    })
}

/// The same of the way out.
fn way_out_rows() -> &'static Vec<String> {
    static ROWS: OnceLock<Vec<String>> = OnceLock::new();
    ROWS.get_or_init(|| {
        simulate(async {
            let s = Simulation::start(1, seed(), Plan::None);
            way_out::open(&s, &way_out::ORDERS[0]).await.unwrap_or_else(|e| panic!("SIM_SEED={}: {e}", seed()))
        })
    })
}

fn same(wanted: &[String], rows: &[String]) -> Result<(), String> {
    let missing: Vec<_> = wanted.iter().filter(|row| !rows.contains(row)).collect();
    let more: Vec<_> = rows.iter().filter(|row| !wanted.contains(row)).collect();
    let same = missing.is_empty() && more.is_empty();
    if same { Ok(()) } else { Err(format!("other rows than without faults: missing {missing:#?}, more {more:#?}")) }
}

#[test]
fn a_vpc_is_let_out_in_whatever_order_its_objects_are_made() {
    let wanted = way_out_rows();
    each(way_out::ORDERS.iter(), |order| {
        simulate(async { same(wanted, &way_out::whole(&Simulation::start(1, seed(), Plan::None), order).await?) })
    });
}

#[test]
fn a_vpc_is_let_out_and_closed_whatever_goes_wrong() {
    let wanted = way_out_rows();
    let cases = cases(&[Fault::Crash, Fault::CrashBefore, Fault::LoseAnswer, Fault::Refuse, Fault::Late], 180, 43);
    each(cases.zip(0usize..), |(plan, count)| {
        let order = &way_out::ORDERS[count % way_out::ORDERS.len()];
        simulate(async { same(wanted, &way_out::whole(&Simulation::start(1, seed(), plan.clone()), order).await?) })
    });
}

#[test]
fn every_write_of_the_way_out_meets_a_conflict_first() {
    let wanted = way_out_rows();
    simulate(async {
        let s = Simulation::start(1, seed(), Plan::RefuseFirst(Default::default()));
        same(wanted, &way_out::whole(&s, &way_out::ORDERS[1]).await?)
    })
    .unwrap_or_else(|error| panic!("SIM_SEED={}: {error}", seed()));
}

#[test]
fn two_controllers_let_a_vpc_out_at_once() {
    let wanted = way_out_rows();
    each(0..2u64, |more| {
        simulate(async {
            let mut s = Simulation::start(1, seed() + more, Plan::None);
            s.start_controller("controller-2", "default");
            same(wanted, &way_out::whole(&s, &way_out::ORDERS[2]).await?)
        })
    });
}

#[test]
fn a_machine_that_takes_the_vnic_of_a_virtual_ip_has_the_address_alone() {
    let cases = cases(&[Fault::Crash, Fault::LoseAnswer, Fault::Refuse, Fault::Late], 120, wide(31));
    each(cases, |plan| simulate(async { shared::taken(&Simulation::start(1, seed(), plan.clone())).await }));
}

#[test]
fn of_two_provider_networks_made_within_a_second_one_gives_an_address() {
    let reversed = Cell::new(0);
    let names = [["one", "two"], ["two", "one"], ["left", "right"], ["right", "left"]];
    each(names.into_iter(), |names| {
        simulate(async {
            let s = Simulation::start(1, seed(), Plan::None);
            reversed.set(reversed.get() + usize::from(vlan::within_a_second(&s, *names).await?));
            Ok(())
        })
    });
    assert_eq!(reversed.get(), 2, "of two names either is the younger one's once");
}

#[test]
fn an_address_of_a_vlan_is_given_once_at_an_upgrade_too() {
    let reversed = Cell::new(0);
    each([["one", "two"], ["two", "one"]].into_iter(), |names| {
        simulate(async {
            let mut s = Simulation::start(1, seed(), Plan::None);
            reversed.set(reversed.get() + usize::from(vlan::upgraded(&mut s, *names).await?));
            Ok(())
        })
    });
    assert_eq!(reversed.get(), 1, "of two names either is the younger one's once");
}

#[test]
fn the_way_out_is_deleted_at_every_stage() {
    each(sample(110, 22), |at| {
        let plan = Plan::At { who: Who::Controller, at: *at, fault: Fault::Mark };
        let order = &way_out::ORDERS[at % way_out::ORDERS.len()];
        simulate(async { way_out::cut_short(&Simulation::start(1, seed(), plan), order).await })
    });
}

#[test]
fn what_is_missing_is_said_at_once_and_what_was_missing_heals_at_once() {
    each(says_why::cases(), |case| {
        simulate(async { says_why::one(&mut Simulation::start(1, seed(), Plan::None), case).await })
    });
}

#[test]
fn each_reason_of_the_network_has_a_case_or_is_named_as_one_without() {
    let (all, told) = (says_why::of_network(), says_why::told());
    let without = says_why::WITHOUT_CASE;
    let forgotten = all.iter().filter(|name| !told.contains(name.as_str()) && !without.contains(&name.as_str()));
    assert_eq!(forgotten.collect::<Vec<_>>(), Vec::<&String>::new(), "neither has it a case nor is it named");
    for name in without {
        assert!(all.contains(name) && !told.contains(name), "{name} has a case, or is no reason of the network");
    }
}
