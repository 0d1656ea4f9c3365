//! A Dpu that is assigned to a server which a machine has claimed to be installed there: the plans are those without it, at every stage of
//! the machine's life, whatever the Dpu is, until the server is released. What is to be erased is not then (`EraseNotServed`, `erase.rs`): what
//! the DPU presents would look like a disk of the server.

use super::{Round, Subject, World};
use api::dpu::{DpuCapacity, DpuSpec, DpuStatus, HardwareReference, Maintenance, PowerDomain};
use api::machine::RunStrategy;
use api::{Dpu, labels};
use planner::install;
use planner::machine::observed::{Belongings, DpuSeen, Leftovers};
use planner::machine::{leftovers, plan};
use std::sync::Arc;

fn dpu(change: impl FnOnce(&mut Dpu), silent: bool) -> DpuSeen {
    let hardware_ref = Some(HardwareReference { name: "hw".into(), serial_number: None });
    let mut dpu = Dpu::new("dpu", DpuSpec { hardware_ref, approved: true, ..DpuSpec::default() });
    dpu.metadata.uid = Some("dpu-1".to_owned());
    dpu.status = Some(DpuStatus {
        boot_id: Some("b1".to_owned()),
        namespace: Some("metalplane-dpu-dpu".to_owned()),
        capacity: Some(DpuCapacity::default()),
        ..DpuStatus::default()
    });
    change(&mut dpu);
    DpuSeen { dpu: Arc::new(dpu), silent, ..DpuSeen::default() }
}

fn kinds_of_dpu() -> Vec<DpuSeen> {
    vec![
        dpu(|_| (), false),
        dpu(|_| (), true),
        dpu(|dpu| dpu.spec.approved = false, false),
        dpu(|dpu| dpu.spec.power_domain = PowerDomain::Host, false),
        dpu(|dpu| dpu.spec.maintenance = Maintenance::Drain, false),
        dpu(|dpu| dpu.status = None, true),
    ]
}

/// Plans may be told apart by all that is in them: actions, what interrupts the host, status and Events.
fn changes_nothing(world: &World) {
    let is_installed_here = |own: &Belongings| {
        own.hardware
            .iter()
            .any(|hw| install::strategy(&hw.metadata).is_some_and(|how| install::word(how) == "Workflow"))
    };
    for subject in world.subjects() {
        match subject {
            Subject::Machine(machine) => {
                let mut o = world.observed(&machine);
                if !is_installed_here(&o.own) {
                    continue;
                }
                let without = format!("{:?}", plan(&o, world.now));
                for dpu in kinds_of_dpu() {
                    o.own.dpus = vec![dpu.clone()];
                    assert_eq!(format!("{:?}", plan(&o, world.now)), without, "with {dpu:?}");
                }
            }
            Subject::Gone(of) => {
                let mut left = Leftovers { own: world.belongings(&of.uid), of };
                if !is_installed_here(&left.own) {
                    continue;
                }
                let without = format!("{:?}", leftovers::plan(&left, world.now));
                for dpu in kinds_of_dpu() {
                    left.own.dpus = vec![dpu.clone()];
                    assert_eq!(format!("{:?}", leftovers::plan(&left, world.now)), without, "with {dpu:?}");
                }
            }
        }
    }
}

/// As [`World::until`], with a look at every round.
fn until(world: &mut World, what: &str, is_so: impl Fn(&World) -> bool) {
    for _ in 0..400 {
        if is_so(world) {
            return;
        }
        world.step();
        for _ in 0..16 {
            changes_nothing(world);
            if world.round(usize::MAX).iter().all(Round::is_empty) {
                break;
            }
        }
    }
    panic!("{what}: {:?}", world.machine().and_then(|machine| machine.status.clone()));
}

fn is_free(world: &World) -> bool {
    !world.hardware["hw"].metadata.annotations.iter().flatten().any(|(key, _)| key == labels::CLAIMED_BY)
}

#[test]
fn a_dpu_that_is_assigned_to_the_server_changes_nothing_before_the_release() {
    let mut world = World::new();
    until(&mut world, "it runs", World::is_running);
    world.change(|m| m.spec.run_strategy = RunStrategy::Halted);
    until(&mut world, "it is off", |world| world.power == planner::host::PowerState::Off);
    world.change(|m| m.spec.run_strategy = RunStrategy::Always);
    until(&mut world, "it runs again", World::is_running);
    world.ask();
    until(&mut world, "it is installed once more", |world| world.installations() == 2 && world.is_running());
    world.delete();
    until(&mut world, "it is released", |world| world.machine().is_none());
    assert!(is_free(&world));
}

#[test]
fn nor_does_it_where_the_machine_no_longer_exists() {
    let mut world = World::new();
    until(&mut world, "it installs", |world| world.in_installer);
    world.forced();
    // Nobody powers it off: what runs there may be anybody's by now.
    for _ in 0..5 {
        world.step();
        changes_nothing(&world);
        world.round(usize::MAX);
    }
    assert!(!is_free(&world));
    world.goes_off();
    until(&mut world, "the server is released", is_free);
}
