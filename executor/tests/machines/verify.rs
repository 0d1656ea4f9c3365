//! Another server than the DPU sits in: nothing is claimed, granted or powered.

use super::world::World;
use api::conditions::{self, ConditionStatus, HOST_VERIFIED};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use planner::host::PowerState;
use planner::machine::{Action, BmcNeed, Plan, plan};

/// One server; its BMC reports this serial number, and `SN-1` is expected of it.
fn world(reported: Option<&str>) -> World {
    let mut world = World::new();
    world.machine("a", false);
    world.hardware.remove("hw-2");
    world.server("dpu-1").serial_number = reported.map(str::to_owned);
    let dpu = world.dpus.get_mut("dpu-1").expect("racked");
    dpu.spec.hardware_ref.as_mut().expect("racked").serial_number = Some("SN-1".into());
    world
}

fn found(world: &mut World, status: ConditionStatus, generation: Option<i64>) {
    let now = world.now;
    let said = world.dpus.get_mut("dpu-1").expect("racked").status.get_or_insert_default();
    conditions::set(&mut said.conditions, HOST_VERIFIED, status, "Model", "as the model says", generation, now);
}

fn planned(world: &World) -> Plan {
    plan(&world.observe("a").expect("there"), world.now)
}

fn round(world: &mut World) -> Plan {
    let o = world.observe("a").expect("there");
    let plan = plan(&o, world.now);
    world.carry_out(&o, &plan, usize::MAX);
    plan
}

fn word(plan: &Plan, type_: &str) -> String {
    conditions::get(&plan.status.conditions, type_).map(|c| format!("{} {}", c.status, c.reason)).unwrap_or_default()
}

fn run(world: &mut World, steps: usize) {
    for _ in 0..steps {
        world.bind_claims();
        world.step();
        while world.machines.contains("a") && !round(world).is_empty() {}
    }
}

#[test]
fn it_is_not_claimed_before_its_serial_number_was_compared() {
    let mut world = world(Some("SN-1"));
    round(&mut world);
    assert_eq!(word(&planned(&world), conditions::READY), "False NoFreeHardware");
    found(&mut world, ConditionStatus::False, Some(1));
    assert_eq!(word(&planned(&world), conditions::READY), "False NoHardwareFits");
    found(&mut world, ConditionStatus::True, Some(7));
    assert_eq!(word(&planned(&world), conditions::READY), "False NoFreeHardware", "that was of another spec");
    found(&mut world, ConditionStatus::True, Some(1));
    let plan = planned(&world);
    assert!(plan.actions.iter().any(|a| matches!(a, Action::ClaimHardware { .. })), "{:?}", plan.actions);
}

#[test]
fn an_agent_that_reports_another_server_forbids_the_claim_without_a_bmc() {
    let mut world = world(None);
    found(&mut world, ConditionStatus::True, Some(1));
    round(&mut world);
    world.dpus.get_mut("dpu-1").expect("racked").status.get_or_insert_default().host_serial_number =
        Some("SN-9".into());
    world.machines.get_mut("a").expect("there").spec.hardware =
        Some(api::machine::HardwareChoice { name: Some("hw-1".into()), selector: None });
    let plan = planned(&world);
    assert!(plan.is_empty());
    let ready = conditions::get(&plan.status.conditions, conditions::READY).expect("said");
    assert_eq!(ready.reason, "HardwareMismatch");
    assert!(ready.message.contains("'SN-1' is expected, its agent reports 'SN-9'"), "{}", ready.message);
}

#[test]
fn a_claimed_server_that_turns_out_to_be_another_gets_no_grant_and_no_power() {
    let mut world = world(Some("SN-9"));
    found(&mut world, ConditionStatus::True, Some(1));
    run(&mut world, 20);
    let plan = planned(&world);
    assert!(plan.is_empty(), "{:?}", plan.actions);
    assert_eq!(word(&plan, conditions::POWERED_ON), "Unknown HardwareMismatch");
    assert_eq!(word(&plan, conditions::BOOT_CONFIGURED), "False HardwareMismatch");
    assert_eq!(plan.bmc, BmcNeed::Slow, "the BMC is not asked again and again");
    assert!(
        world.disks.values().all(|a| a.spec.grant.is_none()) && world.nics.values().all(|a| a.spec.grant.is_none())
    );
    assert_eq!(world.servers["dpu-1"].power_ons, 0);
    // Mended, it goes on by itself.
    world.server("dpu-1").serial_number = Some("SN-1".into());
    run(&mut world, 40);
    assert_eq!(word(&planned(&world), conditions::READY), "True Running");
}

#[test]
fn the_power_of_another_server_is_no_proof_and_is_not_touched() {
    let mut world = world(Some("SN-1"));
    found(&mut world, ConditionStatus::True, Some(1));
    run(&mut world, 40);
    assert_eq!(word(&planned(&world), conditions::READY), "True Running");
    let (disks, now) = (world.disks.len(), world.now);
    world.machines.get_mut("a").expect("there").metadata.deletion_timestamp = Some(Time(now));
    // Somebody gave this BMC's address to another server, which is off.
    world.server("dpu-1").serial_number = Some("SN-9".into());
    world.server("dpu-1").power = PowerState::Off;
    run(&mut world, 40);
    let plan = planned(&world);
    assert!(plan.is_empty(), "{:?} {:?}", plan.actions, plan.disruptive);
    assert_eq!(word(&plan, conditions::READY), "False HardwareMismatch");
    assert_eq!(world.disks.len(), disks, "what off would have released is still there");
    world.server("dpu-1").serial_number = Some("SN-1".into());
    run(&mut world, 60);
    assert!(world.machines.is_empty() && world.disks.is_empty());
}
