//! A DPU is taken out of service and comes back.

use super::properties::{ready, settle_with_claims, state};
use super::world::World;
use api::dpu::Maintenance;
use api::machine::{MachineState, MaintenancePolicy};
use planner::host::PowerState;

fn running(policy: MaintenancePolicy) -> World {
    let mut world = World::new();
    world.hardware.remove("hw-2");
    world.machine("a", false);
    world.machines.get_mut("a").expect("there").spec.maintenance_policy = policy;
    settle_with_claims(&mut world);
    assert_eq!(state(&world, "a"), Some(MachineState::Running), "{:?}", ready(&world, "a"));
    world
}

fn maintain(world: &mut World, maintenance: Maintenance) {
    world.dpus.get_mut("dpu-1").expect("racked").spec.maintenance = maintenance;
    settle_with_claims(world);
}

fn is_stopped_for_it(world: &World) {
    assert_eq!(world.servers["dpu-1"].power, PowerState::Off, "{:?}", ready(world, "a"));
    let said = ready(world, "a").unwrap_or_default();
    assert!(said.contains("HostInMaintenance") && said.contains("dpu-1"), "{said}");
    assert_eq!(state(world, "a"), Some(MachineState::Waiting));
}

fn runs_again(mut world: World) {
    let ons = world.servers["dpu-1"].power_ons;
    maintain(&mut world, Maintenance::None);
    assert_eq!(state(&world, "a"), Some(MachineState::Running), "{:?}", ready(&world, "a"));
    assert_eq!(world.servers["dpu-1"].power_ons, ons + 1);
}

#[test]
fn a_drained_dpu_stops_the_machines_that_say_so() {
    let mut world = running(MaintenancePolicy::Stop);
    maintain(&mut world, Maintenance::Drain);
    is_stopped_for_it(&world);
    assert!(!world.disks.is_empty(), "its disks stay where they are");
    runs_again(world);
}

#[test]
fn a_machine_that_waits_runs_on_and_is_not_started_again() {
    let mut world = running(MaintenancePolicy::Wait);
    maintain(&mut world, Maintenance::Drain);
    assert_eq!(state(&world, "a"), Some(MachineState::Running), "{:?}", ready(&world, "a"));
    assert_eq!(world.servers["dpu-1"].power, PowerState::On);
    world.powered("dpu-1", PowerState::Off);
    settle_with_claims(&mut world);
    is_stopped_for_it(&world);
    runs_again(world);
}

#[test]
fn out_of_service_stops_every_machine() {
    let mut world = running(MaintenancePolicy::Wait);
    maintain(&mut world, Maintenance::OutOfService);
    is_stopped_for_it(&world);
    runs_again(world);
}

#[test]
fn nothing_new_is_put_on_a_dpu_in_maintenance() {
    for maintenance in [Maintenance::Drain, Maintenance::OutOfService] {
        let mut world = World::new();
        world.hardware.remove("hw-2");
        world.machine("a", false);
        maintain(&mut world, maintenance);
        let said = ready(&world, "a").unwrap_or_default();
        assert!(said.contains("NoHardwareFits") && said.contains("DpuInMaintenance"), "{said}");
        runs_again(world);
    }
}

/// A machine whose owner stopped it is stopped, and stays so.
#[test]
fn a_halted_machine_is_not_touched() {
    let mut world = running(MaintenancePolicy::Stop);
    world.machines.get_mut("a").expect("there").spec.run_strategy = api::machine::RunStrategy::Halted;
    settle_with_claims(&mut world);
    assert_eq!(state(&world, "a"), Some(MachineState::Stopped), "{:?}", ready(&world, "a"));
    maintain(&mut world, Maintenance::OutOfService);
    assert_eq!(state(&world, "a"), Some(MachineState::Stopped), "{:?}", ready(&world, "a"));
    maintain(&mut world, Maintenance::None);
    assert_eq!(world.servers["dpu-1"].power, PowerState::Off);
}
