//! The timeline is of the last start, whatever changes later.

use super::growth::{round, running};
use super::world::World;
use api::conditions;
use api::machine::{Disk, DiskSource, RunStrategy, TimelineEntry};
use api::quantity::quantity;
use jiff::Timestamp;

fn rounds(world: &mut World) -> Vec<TimelineEntry> {
    for _ in 0..60 {
        world.step();
        world.bind_claims();
        round(world);
    }
    world.machines["a"].status.clone().expect("told").timeline
}

fn steps(timeline: &[TimelineEntry]) -> Vec<&str> {
    timeline.iter().map(|entry| entry.step.as_str()).collect()
}

fn times(timeline: &[TimelineEntry]) -> Vec<Timestamp> {
    timeline.iter().map(|entry| entry.finished_at.as_ref().expect("all is done").0).collect()
}

const ALL: [&str; 9] = [
    conditions::HARDWARE_CLAIMED,
    conditions::VOLUMES_READY,
    conditions::DISKS_ATTACHED,
    conditions::NICS_ATTACHED,
    conditions::BOOT_CONFIGURED,
    "PowerOnSent",
    conditions::POWERED_ON,
    "FirstPacket",
    conditions::GUEST_REACHABLE,
];

#[test]
fn a_disk_that_is_plugged_later_changes_no_time() {
    let mut world = running();
    let start = rounds(&mut world);
    assert_eq!(steps(&start), ALL);
    let source = DiskSource { blank: Some(Default::default()), ..DiskSource::default() };
    let disk = Disk { name: "more".into(), size: Some(quantity(1 << 30)), source, ..Disk::default() };
    world.machines.get_mut("a").expect("there").spec.disks.push(disk);
    let told = round(&mut world).status;
    assert!(!conditions::is_true(&told.conditions, conditions::VOLUMES_READY), "the disk is there at once");
    assert_eq!(rounds(&mut world), start);
    assert!(world.disks.values().any(|disk| disk.spec.disk_name == "more" && disk.spec.grant.is_some()));
}

#[test]
fn a_stop_leaves_the_times_of_the_last_start_and_the_next_start_has_its_own() {
    let mut world = running();
    let first = rounds(&mut world);
    world.machines.get_mut("a").expect("there").spec.run_strategy = RunStrategy::Halted;
    assert_eq!(rounds(&mut world), first);
    let again = world.now;
    world.machines.get_mut("a").expect("there").spec.run_strategy = RunStrategy::Always;
    let second = rounds(&mut world);
    assert_eq!(steps(&second), ALL);
    assert!(times(&second).iter().all(|at| *at >= again), "{again}: {second:?}");
}

#[test]
fn a_start_that_is_given_up_is_not_the_last_start() {
    let mut world = World::new();
    world.machine("a", true);
    for _ in 0..3 {
        round(&mut world);
    }
    assert_eq!(world.machines["a"].status.clone().expect("told").timeline[0].step, conditions::HARDWARE_CLAIMED);
    world.machines.get_mut("a").expect("there").spec.run_strategy = RunStrategy::Halted;
    assert_eq!(rounds(&mut world), []);
    let again = world.now;
    world.machines.get_mut("a").expect("there").spec.run_strategy = RunStrategy::Always;
    assert!(times(&rounds(&mut world)).iter().all(|at| *at >= again));
}
