//! What rests on a Hardware and on a HardwarePolicy, and what becomes of it when they are deleted under a machine.

use super::growth::round;
use super::properties::{ready, settle_with_claims, state};
use super::world::{World, server_of};
use api::machine::{MachineState, RunStrategy};
use api::{conditions, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use planner::machine::Action;
use planner::machine::observed::{BmcProblem, annotation};

/// A machine that runs, the name of its Hardware, and another server that is free.
fn running() -> (World, String) {
    let mut world = World::new();
    world.machine("a", false);
    settle_with_claims(&mut world);
    assert_eq!(state(&world, "a"), Some(MachineState::Running), "{:?}", ready(&world, "a"));
    let own = world.machines["a"].status.as_ref().and_then(|status| status.hardware_name.clone()).expect("claimed");
    (world, own)
}

fn rounds(world: &mut World) {
    for _ in 0..60 {
        world.step();
        round(world);
    }
}

#[test]
fn a_machine_whose_hardware_is_deleted_takes_no_other_server() {
    let (mut world, own) = running();
    let mut hardware = world.hardware.remove(&own).expect("there");
    let (server, disks) = (world.servers[&server_of(&own)].clone(), world.disks.clone());
    rounds(&mut world);
    let claimed = |world: &World| {
        let of = world.hardware.values().filter(|hw| annotation(&hw.metadata, labels::CLAIMED_BY).is_some());
        of.filter_map(|hardware| hardware.metadata.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(claimed(&world), Vec::<String>::new(), "another server is claimed");
    let said = world.machines["a"].status.clone().unwrap_or_default();
    let said = conditions::get(&said.conditions, conditions::READY).expect("told");
    assert_eq!((said.reason.as_str(), said.message.contains(&own)), ("HardwareMissing", true), "{}", said.message);
    assert_eq!(world.disks.len(), disks.len());
    assert_eq!(world.servers[&server_of(&own)].exposed, server.exposed);
    // It comes back, and nobody is interrupted.
    hardware.metadata.annotations = None;
    world.create(hardware);
    rounds(&mut world);
    assert_eq!(claimed(&world), std::slice::from_ref(&own));
    assert_eq!(state(&world, "a"), Some(MachineState::Running), "{:?}", ready(&world, "a"));
    let after = &world.servers[&server_of(&own)];
    assert_eq!((after.power, after.power_ons, after.resets), (server.power, server.power_ons, server.resets));
    assert_eq!(after.guest_since, server.guest_since, "the guest was interrupted");
}

/// A machine is deleted while its Hardware is not there: its host is switched off, and all is given back, once that is there again.
#[test]
fn a_machine_that_is_deleted_without_its_hardware_waits_for_that() {
    let (mut world, own) = running();
    let mut hardware = world.hardware.remove(&own).expect("there");
    let now = world.now;
    world.machines.get_mut("a").expect("there").metadata.deletion_timestamp = Some(Time(now));
    rounds(&mut world);
    let said = world.machines["a"].status.clone().unwrap_or_default();
    let said = conditions::get(&said.conditions, conditions::READY).expect("told");
    assert_eq!(said.reason, "HardwareMissing", "{}", said.message);
    hardware.metadata.annotations = None;
    world.create(hardware);
    for _ in 0..60 {
        world.step();
        if world.machines.contains("a") {
            round(&mut world);
        }
    }
    assert!(!world.machines.contains("a"), "{:?}", ready(&world, "a"));
}

/// The Hardware is applied again without the claim, and another machine is quicker.
#[test]
fn a_server_that_a_machine_runs_on_is_no_other_machines() {
    let (mut world, own) = running();
    for hardware in world.hardware.values_mut().filter(|hardware| hardware.metadata.name.as_ref() == Some(&own)) {
        hardware.metadata.annotations = None;
    }
    world.hardware.retain(|hardware| hardware.metadata.name.as_ref() == Some(&own));
    world.machine("b", false);
    world.machines.get_mut("b").expect("there").metadata.finalizers = Some(vec![labels::FINALIZER_MACHINE.to_owned()]);
    let plan = planner::machine::plan(&world.observe("b").expect("there"), world.now);
    let claims = |action: &Action| matches!(action, Action::ClaimHardware { .. });
    assert!(!plan.actions.iter().any(claims), "{:?}", plan.actions);
    let said = conditions::get(&plan.status.conditions, conditions::READY).expect("told");
    assert!(said.message.contains("HardwareTaken"), "{}", said.message);
}

/// A second DPU is in the server, and its Dpu, which comes first by its name, is assigned and approved while a machine runs by the other one.
#[test]
fn a_second_dpu_in_a_server_changes_nothing_under_a_machine() {
    for other in ["hw-1", "hw-2"] {
        let mut world = World::new();
        world.machine("a", false);
        world.hardware.remove(other);
        settle_with_claims(&mut world);
        let mut o = world.observe("a").expect("there");
        let own = o.machine.status.as_ref().and_then(|status| status.hardware_name.clone()).expect("claimed");
        let mut second = o.dpus.iter().find(|dpu| dpu.name() == server_of(&own)).expect("there").clone();
        let mut dpu = api::Dpu::clone(&second.dpu);
        dpu.metadata.name = Some("a-second".to_owned());
        dpu.metadata.uid = Some("second".to_owned());
        dpu.status.as_mut().expect("told").boot_id = Some("another boot".to_owned());
        second.dpu = std::sync::Arc::new(dpu);
        o.own.dpus.insert(0, second);
        let plan = planner::machine::plan(&o, world.now);
        assert!(plan.is_empty(), "{own}: {:?} {:?}", plan.actions, plan.disruptive);
        let restart = conditions::get(&plan.status.conditions, conditions::RESTART_REQUIRED).expect("told");
        assert_eq!((restart.reason.as_str(), plan.status.state), ("NotRequired", Some(MachineState::Running)), "{own}");
    }
}

/// Its bmc.tinkerbell.org Machine is deleted: nothing is known of the host, so nothing is done to it.
#[test]
fn a_machine_whose_bmc_is_deleted_is_left_as_it_is() {
    let (world, own) = running();
    for strategy in [RunStrategy::Always, RunStrategy::Halted] {
        let mut o = world.observe("a").expect("there");
        let mut machine = api::BareMetalMachine::clone(&o.machine);
        machine.spec.run_strategy = strategy;
        o.machine = std::sync::Arc::new(machine);
        o.bmc.host = planner::seen::Seen::Unknown;
        o.bmc.problem = Some(BmcProblem::Missing("there is no Machine".to_owned()));
        let plan = planner::machine::plan(&o, world.now);
        assert!(plan.is_empty(), "{strategy:?}: {:?} {:?}", plan.actions, plan.disruptive);
        assert_eq!(plan.status.hardware_name.as_ref(), Some(&own));
        let told = plan.status.conditions.iter().any(|said| said.reason == "BmcMissing");
        assert!(told, "{:?}", plan.status.conditions);
    }
}

/// Only who chooses a server asks a policy.
#[test]
fn a_machine_runs_on_without_the_policy_by_which_its_server_was_claimed() {
    let (world, _) = running();
    let mut o = world.observe("a").expect("there");
    o.policies.clear();
    let plan = planner::machine::plan(&o, world.now);
    assert!(plan.is_empty(), "{:?}", plan.actions);
    assert_eq!(plan.status.state, Some(MachineState::Running));
}
