//! A restore put another claim behind a disk.

use super::properties::{ready, settle_with_claims, state};
use super::world::World;
use api::labels;
use api::machine::{MachineState, RunStrategy};
use planner::host::PowerState;
use planner::machine::plan;

/// The volume of the boot disk that is presented.
fn presented(world: &World) -> Vec<String> {
    world.volumes().into_iter().collect()
}

fn exchange(world: &mut World) {
    world.new_claim("a-root-2");
    let own = world.machines["a"].metadata.uid.clone().expect("a UID");
    let claim = world.claims.get_mut("a-root-2").expect("made");
    claim.metadata.labels = Some([(labels::MACHINE_UID.to_owned(), own)].into());
    let annotations = world.machines.get_mut("a").expect("there").metadata.annotations.get_or_insert_default();
    annotations.insert(format!("{}root", labels::CLAIM), "a-root-2".into());
    world.bind_claims();
}

fn runs(world: &mut World, strategy: RunStrategy) {
    let machine = world.machines.get_mut("a").expect("there");
    machine.spec.run_strategy = strategy;
    settle_with_claims(world);
}

#[test]
fn a_stopped_machine_gets_the_other_disk_and_starts_from_it() {
    for only in ["hw-1", "hw-2"] {
        let mut world = World::new();
        world.hardware.retain(|hardware| hardware.metadata.name.as_deref() == Some(only));
        world.machine("a", false);
        runs(&mut world, RunStrategy::Always);
        assert_eq!(presented(&world), ["pv-a-root"]);
        runs(&mut world, RunStrategy::Halted);
        assert_eq!(state(&world, "a"), Some(MachineState::Stopped), "{:?}", ready(&world, "a"));
        exchange(&mut world);
        settle_with_claims(&mut world);
        assert!(!presented(&world).contains(&"pv-a-root".to_owned()));
        assert!(world.claims["a-root"].metadata.finalizers.is_none(), "the old claim is let go");
        runs(&mut world, RunStrategy::Always);
        assert_eq!(state(&world, "a"), Some(MachineState::Running), "{only}: {:?}", ready(&world, "a"));
        assert_eq!(presented(&world), ["pv-a-root-2"]);
    }
}

#[test]
fn a_disk_is_not_exchanged_under_a_host_that_is_on() {
    let mut world = World::new();
    world.hardware.remove("hw-2");
    world.machine("a", false);
    runs(&mut world, RunStrategy::Always);
    exchange(&mut world);
    settle_with_claims(&mut world);
    assert_eq!((presented(&world), world.server("dpu-1").power), (vec!["pv-a-root".to_owned()], PowerState::On));
}

#[test]
fn a_machine_that_an_operation_has_is_not_started() {
    let mut world = World::new();
    world.hardware.remove("hw-2");
    world.machine("a", false);
    runs(&mut world, RunStrategy::Halted);
    let machine = world.machines.get_mut("a").expect("there");
    machine.spec.run_strategy = RunStrategy::Always;
    let lock = [(labels::OPERATION.to_owned(), "MachineRestore/r1/u-1".to_owned())];
    machine.metadata.annotations.get_or_insert_default().extend(lock);
    settle_with_claims(&mut world);
    assert!(ready(&world, "a").is_some_and(|said| said.contains("MachineRestore 'r1'")), "{:?}", ready(&world, "a"));
    assert!(world.servers.values().all(|server| server.power_ons == 0));
    let mut o = world.observe("a").expect("there");
    o.lock_is_void = true;
    assert!(plan(&o, world.now).actions.contains(&planner::machine::Action::ClearLock));
}
