//! What holds for every sequence of faults that ends.

use super::outside::Fault;
use super::world::World;
use api::labels;
use api::machine::{MachineState, RunStrategy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use planner::host::{PowerAction, PowerState};
use planner::machine::steps::Step;
use planner::machine::{Disruptive, Observed, Plan, plan};
use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
enum Event {
    /// Plans for a machine on what is so now, and carries all of it out.
    Round(usize),
    /// Plans, and crashes after so many requests.
    Crash(usize, usize),
    /// Carries out what was planned earlier: a late leader, a stale cache.
    Late(usize),
    Step,
    Fault(Fault),
    Delete(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => (0..2usize).prop_map(Event::Round),
        3 => (0..2usize, 0..8usize).prop_map(|(machine, after)| Event::Crash(machine, after)),
        3 => (0..2usize).prop_map(Event::Late),
        8 => Just(Event::Step),
        6 => fault().prop_map(Event::Fault),
        1 => (0..2usize).prop_map(Event::Delete),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0..2usize).prop_map(Fault::AgentDies),
        (0..2usize).prop_map(Fault::DpuReboots),
        (0..2usize).prop_map(Fault::BmcGoesAway),
        (0..2usize).prop_map(Fault::GuestPowersOff),
        (0..2usize).prop_map(Fault::PressedOn),
        (0..2usize).prop_map(Fault::BootOrderChanged),
        (0..2usize).prop_map(Fault::AdministratorConfirmsDown),
        (0..2usize).prop_map(Fault::DpuPoweredOff),
        (0..2usize).prop_map(Fault::DpuPoweredOn),
        Just(Fault::ClaimUnbound),
        (0..4usize).prop_map(Fault::HolderPodLost),
    ]
}

/// What must hold in every state.
pub fn check(world: &World) {
    for volume in world.volumes() {
        let by = world.presented_by(&volume);
        assert!(by.len() <= 1, "volume {volume} is presented by {by:?}");
    }
}

/// What must hold of every plan.
fn check_plan(o: &Observed, plan: &Plan) {
    let Some(Disruptive::Power(order)) = &plan.disruptive else { return };
    let running = o.bmc.host.fresh().is_some_and(|host| host.power == PowerState::On);
    match order.action {
        PowerAction::On => {
            assert!(!o.deleting(), "a deleted machine is powered on");
            let shares = o.dpus.iter().any(|dpu| {
                dpu.dpu.spec.power_domain == api::dpu::PowerDomain::Host
                    && dpu.hardware_name() == plan.status.hardware_name.as_deref()
            });
            if !shares {
                assert!(plan.steps.done(Step::DisksAttached), "powered on before all is presented");
                assert!(plan.steps.done(Step::NicsAttached), "powered on before all is presented");
            }
            assert!(plan.steps.done(Step::BootConfigured), "powered on with another boot order");
        }
        PowerAction::WarmReset => assert!(plan.steps.done(Step::DisksAttached) && running),
        PowerAction::SoftOff | PowerAction::ForceOff => {
            // Of another server it says nothing.
            let status = o.machine.status.as_ref().filter(|s| s.hardware_name == plan.status.hardware_name);
            let started = status.and_then(|s| s.power.as_ref()).and_then(|p| p.started_boot_id.as_ref());
            let halted = o.run_strategy() == RunStrategy::Halted;
            let maintained = o.dpus.iter().any(|dpu| dpu.dpu.spec.maintenance != api::dpu::Maintenance::None);
            assert!(
                halted || maintained || o.gives_back() || started.is_none(),
                "the power of a machine that shall run is taken"
            );
        }
    }
}

pub fn round(world: &mut World, machine: &str, limit: usize) -> Option<Plan> {
    let o = world.observe(machine)?;
    let plan = plan(&o, world.now);
    check_plan(&o, &plan);
    world.carry_out(&o, &plan, limit);
    check(world);
    Some(plan)
}

/// Until nothing is left to do for a good while; the last plans.
fn settle(world: &mut World) {
    let names = ["a", "b"];
    let mut quiet = 0;
    for _ in 0..1500 {
        world.step();
        check(world);
        let mut acted = false;
        for machine in names {
            for _ in 0..12 {
                match round(world, machine, usize::MAX) {
                    Some(plan) if plan.is_empty() => break,
                    Some(_) => acted = true,
                    None => break,
                }
            }
        }
        quiet = if acted { 0 } else { quiet + 1 };
        // Longer than any wait of a healthy world.
        if quiet > 330 {
            return;
        }
    }
    panic!("it does not come to rest");
}

pub fn state(world: &World, machine: &str) -> Option<MachineState> {
    world.machines.get(machine)?.status.as_ref()?.state
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_ends_well(events in proptest::collection::vec(event(), 0..60)) {
        let mut world = World::new();
        world.machine("a", true);
        world.machine("b", true);
        let names = ["a", "b"];
        let mut late: [Option<(model::Objects, Observed, Plan)>; 2] = [None, None];
        for event in events {
            match event {
                Event::Round(n) => {
                    late[n] = world.observe(names[n]).map(|o| { let p = plan(&o, world.now); (world.objects.clone(), o, p) });
                    round(&mut world, names[n], usize::MAX);
                }
                Event::Crash(n, after) => { round(&mut world, names[n], after); }
                Event::Late(n) => {
                    if let Some((known, o, plan)) = late[n].take() {
                        world.carry_out_knowing(known, &o, &plan, usize::MAX);
                        check(&world);
                    }
                }
                Event::Step => { world.step(); world.bind_claims(); check(&world); }
                Event::Fault(fault) => { world.suffer(fault); check(&world); }
                Event::Delete(n) => {
                    let now = world.now;
                    if let Some(machine) = world.machines.get_mut(names[n]) {
                        match machine.metadata.finalizers {
                            Some(_) => { machine.metadata.deletion_timestamp.get_or_insert(Time(now)); }
                            None => drop(world.machines.remove(names[n])),
                        }
                    }
                }
            }
        }
        world.heal();
        for _ in 0..3 { world.bind_claims(); world.step(); }
        settle_with_claims(&mut world);
        let deleted: Vec<bool> = names.iter().map(|name| !world.machines.contains(*name)).collect();
        for (n, name) in names.iter().enumerate() {
            if deleted[n] {
                continue;
            }
            let machine = &world.machines[*name];
            prop_assert!(machine.metadata.deletion_timestamp.is_none(), "{name} is not gone: {:?}", ready(&world, name));
            // The shared claim can be on one of them only.
            let other_runs = !deleted[1 - n] && state(&world, names[1 - n]) == Some(MachineState::Running);
            let runs = state(&world, name) == Some(MachineState::Running);
            prop_assert!(runs || other_runs, "{name} does not run: {:?}", ready(&world, name));
        }
        if deleted == [true, true] {
            nothing_is_left(&world);
        }
    }
}

pub fn settle_with_claims(world: &mut World) {
    world.bind_claims();
    for _ in 0..4 {
        settle_a_little(world);
        world.bind_claims();
    }
    settle(world);
}

fn settle_a_little(world: &mut World) {
    for _ in 0..40 {
        world.step();
        world.bind_claims();
        for machine in ["a", "b"] {
            for _ in 0..12 {
                if round(world, machine, usize::MAX).is_none_or(|plan| plan.is_empty()) {
                    break;
                }
            }
        }
    }
}

pub fn ready(world: &World, machine: &str) -> Option<String> {
    let status = world.machines.get(machine)?.status.as_ref()?;
    let ready = api::conditions::get(&status.conditions, api::conditions::READY)?;
    Some(format!("{:?} {}: {}", status.state, ready.reason, ready.message))
}

pub fn nothing_is_left(world: &World) {
    assert!(world.disks.is_empty() && world.nics.is_empty() && world.vnics.is_empty());
    assert!(world.volume_attachments.is_empty() && world.pods.is_empty());
    assert!(world.holds.values().all(|hold| hold.spec.holder.is_none()));
    assert_eq!(world.claims.names(), [super::world::SHARED], "only the user's own claim stays");
    assert!(world.claims[super::world::SHARED].metadata.finalizers.is_none());
    for hardware in world.hardware.values() {
        // Where the firmware finds the DPU's disk is of the server, not of the machine.
        let left = hardware.metadata.annotations.iter().flatten().filter(|(key, _)| *key != labels::BOOT_PATH);
        assert_eq!(left.count(), 0, "{:?}", hardware.metadata.annotations);
    }
    for server in world.servers.values() {
        assert!(server.exposed.is_empty());
    }
}

#[test]
fn a_machine_starts_with_one_power_on_and_leaves_nothing() {
    let mut world = World::new();
    world.machine("a", true);
    settle_with_claims(&mut world);
    assert_eq!(state(&world, "a"), Some(MachineState::Running), "{:?}", ready(&world, "a"));
    let ons: u32 = world.servers.values().map(|server| server.power_ons).sum();
    assert_eq!(ons, 1);
    let resets: Vec<u32> = world.servers.values().map(|server| server.resets).collect();
    let on_shared = world.servers["dpu-2"].power_ons;
    assert_eq!(resets, [0, on_shared], "a DPU that shares its host's power needs one warm reset");
    let now = world.now;
    world.machines.get_mut("a").expect("there").metadata.deletion_timestamp = Some(Time(now));
    settle(&mut world);
    assert!(world.machines.is_empty(), "{:?}", ready(&world, "a"));
    nothing_is_left(&world);
}
