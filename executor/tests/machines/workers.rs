//! Pods that run on a machine have NICs at its server: those go before it does.

use super::properties::{nothing_is_left, ready, round, settle_with_claims};
use super::requests::send;
use super::world::World;
use api::attachment::Grant;
use api::labels;
use api::machine::HardwareChoice;
use executor::{hosts, nics};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use planner::meta::{annotation, target};
use planner::network::pods::Worker;

/// Keeps the attachment, as an agent does whose host does not let go of a function.
const HELD: &str = "test/held";
const NIC: &str = "pod-nic";

/// A machine that runs, and a pod's NIC at its DPU. `granted`: it is there already.
fn world(granted: bool) -> World {
    let mut world = World::new();
    world.machine("a", true);
    let choice = HardwareChoice { name: Some("hw-1".to_owned()), selector: None };
    world.machines.get_mut("a").expect("there").spec.hardware = Some(choice);
    settle_with_claims(&mut world);
    let mut nic = (**world.nics.all().next().expect("the machine's own")).clone();
    nic.metadata.name = Some(NIC.to_owned());
    nic.metadata.uid = Some(NIC.to_owned());
    let uid = world.machines["a"].metadata.uid.clone().expect("made");
    nic.metadata.labels = Some([(labels::WORKER_UID.to_owned(), uid)].into());
    nic.metadata.finalizers = Some(vec![HELD.to_owned()]);
    (nic.spec.owner.kind, nic.spec.owner.name, nic.spec.owner.uid) = ("Pod".into(), "web".into(), "pod-1".into());
    nic.spec.grant = granted.then_some(Grant { epoch: 1 });
    world.create(nic);
    world
}

fn claimed(world: &World) -> Option<String> {
    let uid = world.machines["a"].metadata.uid.clone();
    let has = |hardware: &&std::sync::Arc<api::tinkerbell::Hardware>| {
        annotation(&hardware.metadata, labels::CLAIMED_BY).map(str::to_owned) == uid
    };
    world.hardware.all().find(has).and_then(|hardware| hardware.metadata.name.clone())
}

fn rounds(world: &mut World) {
    for _ in 0..80 {
        world.step();
        for _ in 0..12 {
            if round(world, "a", usize::MAX).is_none_or(|plan| plan.is_empty()) {
                break;
            }
        }
    }
}

fn delete(world: &mut World) {
    let now = world.now;
    world.machines.get_mut("a").expect("there").metadata.deletion_timestamp = Some(Time(now));
}

#[test]
fn a_server_is_given_back_once_no_pod_has_a_nic_there() {
    let mut world = world(true);
    delete(&mut world);
    rounds(&mut world);
    let said = ready(&world, "a").expect("told");
    assert!(said.contains("PodNicsLeaving") && said.contains("/web'"), "{said}");
    assert!(claimed(&world).is_some() && world.nics.values().count() == 1, "its own are gone");
    let nic = world.nics.all().next().expect("there");
    assert!(nic.spec.release && nic.metadata.deletion_timestamp.is_some(), "the agent may take it");
    world.nics.clear();
    rounds(&mut world);
    nothing_is_left(&world);
}

#[test]
fn a_release_that_has_not_heard_of_a_pods_nic_looks_for_one() {
    let mut world = world(true);
    let (uid, hardware) = (world.machines["a"].metadata.uid.clone().expect("made"), claimed(&world).expect("claimed"));
    send(&mut world, async |c| hosts::unclaim(c, &uid, &hardware).await);
    assert_eq!(claimed(&world).as_ref(), Some(&hardware));
    world.nics.clear();
    send(&mut world, async |c| hosts::unclaim(c, &uid, &hardware).await);
    assert_eq!(claimed(&world), None);
}

#[test]
fn nothing_is_granted_at_a_machine_that_goes_or_has_another_server() {
    type Change = fn(&mut World);
    let changes: [(Change, bool); 4] = [
        (|_| {}, true),
        (delete, false),
        (
            |world| {
                let lock = (labels::OPERATION.to_owned(), "MachineMigration/m1/uid".to_owned());
                let machine = world.machines.get_mut("a").expect("there");
                machine.metadata.annotations.get_or_insert_default().extend([lock]);
            },
            false,
        ),
        (
            |world| {
                for hardware in world.hardware.values_mut() {
                    hardware.metadata.annotations = None;
                }
            },
            false,
        ),
    ];
    for (change, granted) in changes {
        let mut world = world(false);
        let hardware = claimed(&world).expect("claimed");
        let machine = world.machines["a"].metadata.clone();
        change(&mut world);
        let nic =
            target(&world.nics.all().find(|nic| nic.metadata.name.as_deref() == Some(NIC)).expect("there").metadata);
        let worker = Worker {
            namespace: machine.namespace.expect("its own"),
            name: "a".to_owned(),
            uid: machine.uid.expect("made"),
            hardware,
        };
        send(&mut world, async |c| nics::grant_worker(c, &nic, 7, &worker).await);
        let there = world.nics.all().find(|there| there.metadata.name.as_deref() == Some(NIC)).expect("there");
        assert_eq!(there.spec.grant.is_some(), granted);
    }
}
