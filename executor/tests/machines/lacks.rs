//! What a BMC does not offer is not asked for, and is said.

use super::growth::{round, running};
use super::world::World;
use api::conditions;
use api::labels;
use api::machine::RunStrategy;
use planner::host::{Lack, PowerAction, PowerState};
use planner::machine::{Disruptive, Plan, plan};

fn lacking(mut world: World, lacks: &[Lack]) -> World {
    world.server("dpu-1").lacks = lacks.iter().copied().collect();
    world
}

fn planned(world: &World) -> Plan {
    plan(&world.observe("a").expect("there"), world.now)
}

fn action(plan: &Plan) -> Option<PowerAction> {
    match &plan.disruptive {
        Some(Disruptive::Power(order)) => Some(order.action),
        Some(Disruptive::ConfigureBoot(_) | Disruptive::ChangeMedium(_)) | None => None,
    }
}

fn said(plan: &Plan, type_: &str) -> String {
    conditions::get(&plan.status.conditions, type_).map(|c| format!("{}: {}", c.reason, c.message)).unwrap_or_default()
}

fn stopped(mut world: World) -> World {
    world.machines.get_mut("a").expect("there").spec.run_strategy = RunStrategy::Halted;
    world
}

#[test]
fn a_guest_is_not_asked_where_the_bmc_has_no_graceful_shutdown() {
    let world = stopped(running());
    assert_eq!(action(&planned(&world)), Some(PowerAction::SoftOff));
    let world = lacking(world, &[Lack::Power(PowerAction::SoftOff)]);
    assert_eq!(action(&planned(&world)), Some(PowerAction::ForceOff));
}

#[test]
fn a_power_action_that_the_bmc_has_not_is_a_reason() {
    let soft_and_forced = [PowerAction::SoftOff, PowerAction::ForceOff].map(Lack::Power);
    let plan = planned(&lacking(stopped(running()), &soft_and_forced));
    assert_eq!(action(&plan), None);
    let told = said(&plan, conditions::POWERED_ON);
    assert!(told.starts_with("PowerActionUnsupported") && told.contains("no forced power-off"), "{told}");
}

#[test]
fn a_restart_that_the_bmc_has_not_is_told_of_a_machine_that_runs_on() {
    let mut world = running();
    let later = (world.now + jiff::SignedDuration::from_secs(60)).to_string();
    let meta = &mut world.machines.get_mut("a").expect("there").metadata;
    meta.annotations = Some([(labels::RESTART_REQUESTED_AT.to_owned(), later)].into());
    assert_eq!(action(&planned(&world)), Some(PowerAction::WarmReset));
    let plan = planned(&lacking(world, &[Lack::Power(PowerAction::WarmReset)]));
    assert_eq!(action(&plan), None);
    let told = said(&plan, conditions::RESTART_REQUIRED);
    assert!(told.starts_with("PowerActionUnsupported") && told.contains("no warm reset"), "{told}");
    assert!(said(&plan, conditions::READY).starts_with("Running"), "{}", said(&plan, conditions::READY));
}

#[test]
fn without_a_boot_order_no_option_is_made_first() {
    let mut world = World::new();
    world.machine("a", false);
    world.hardware.remove("hw-2");
    let mut world = lacking(world, &[Lack::BootOptions, Lack::BootOrder]);
    for _ in 0..40 {
        world.step();
        world.bind_claims();
        round(&mut world);
    }
    let plan = planned(&world);
    assert!(plan.disruptive.is_none(), "{:?}", plan.disruptive);
    let told = said(&plan, conditions::BOOT_CONFIGURED);
    let lacks = "no list of boot options and no persistent boot order";
    assert!(told.starts_with("BootOrderUnsupported") && told.contains(lacks), "{told}");
    assert_eq!(world.servers["dpu-1"].power, PowerState::Off);
}
