//! A claim that is deleted under a machine: what the machine's user is told, and that it is so.

use super::growth::{round, running};
use super::world::{SHARED, World};
use api::conditions::{self, READY};
use api::machine::{AttachPhase, MachineState, RunStrategy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use planner::machine::Plan;

fn delete(world: &mut World, claim: &str) {
    let now = world.now;
    world.claims.get_mut(claim).expect("made").metadata.deletion_timestamp = Some(Time(now));
}

fn rounds(world: &mut World) -> Plan {
    for _ in 0..60 {
        world.step();
        round(world);
    }
    round(world)
}

fn is_protected(world: &World, claim: &str) -> bool {
    let meta = &world.claims[claim].metadata;
    meta.finalizers.as_ref().is_some_and(|all| all.iter().any(|one| one == api::labels::FINALIZER_IN_USE))
}

#[test]
fn it_is_said_that_the_data_will_be_destroyed_and_how_to_keep_them() {
    for (claim, disk) in [("a-root", "root"), (SHARED, "data")] {
        let mut world = running();
        delete(&mut world, claim);
        let plan = rounds(&mut world);
        let ready = conditions::get(&plan.status.conditions, READY).expect("told");
        assert_eq!(ready.reason, "ClaimDeletedInUse");
        for part in
            [claim, disk, "will be destroyed when the disk is taken out of spec.disks or the machine is deleted"]
        {
            assert!(ready.message.contains(part), "{part}: {}", ready.message);
        }
        let volume = world.claims[claim].spec.as_ref().and_then(|spec| spec.volume_name.clone()).expect("bound");
        let (_, next) = ready.message.split_once(". Next: ").expect("a command");
        assert!(next.contains(&format!("kubectl patch pv {volume} ")) && next.contains("Retain"), "{next}");
        // The host keeps the disk.
        assert_eq!(plan.status.state, Some(MachineState::Running));
        assert!(plan.status.disks.iter().all(|disk| disk.phase == AttachPhase::Attached), "{:?}", plan.status.disks);
    }
}

#[test]
fn the_volume_outlives_a_stop_and_goes_with_the_disk() {
    let mut world = running();
    delete(&mut world, SHARED);
    for strategy in [RunStrategy::Halted, RunStrategy::Always] {
        world.machines.get_mut("a").expect("there").spec.run_strategy = strategy;
        rounds(&mut world);
        assert!(is_protected(&world, SHARED), "{strategy:?}");
    }
    world.machines.get_mut("a").expect("there").spec.disks.retain(|disk| disk.name != "data");
    rounds(&mut world);
    assert!(!world.claims.contains(SHARED), "nothing keeps the claim any more");
}
