//! What presents disks is started anew under its host.

use super::examples::{granted, only, reason, steps};
use super::world::{World, function, id};
use crate::agent::*;
use jiff::SignedDuration;

/// A disk and a seed that the host had, and nothing that presents them.
fn restarted() -> World {
    let mut world = granted(0);
    world.add("seed", function(2)).epoch = Some(1);
    world.sync();
    steps(&mut world);
    world.exposures.clear();
    world.recovery = Some(Recovery { since: world.now, error: None });
    world
}

fn due(world: &World) -> Option<Vec<String>> {
    let recover = plan(&world.observed(false)).recover?;
    Some(recover.disks.into_iter().map(|shown| shown.id.uid).collect())
}

#[test]
fn nothing_is_presented_by_itself_and_all_of_it_at_once() {
    let mut world = restarted();
    assert_eq!(due(&world), Some(vec!["a".to_owned(), "seed".to_owned()]));
    assert_eq!(steps(&mut world), [], "one by one the host would see one and miss the other");
    world.connections.clear();
    assert_eq!(due(&world), None, "its volume has to be connected first");
    let plan = plan(&world.observed(false));
    assert!(plan.look_again.is_some());
    assert_eq!(steps(&mut world), [StepKind::Connect]);
    assert_eq!(due(&world).map(|all| all.len()), Some(2));
}

#[test]
fn storage_that_does_not_answer_is_waited_for_so_long() {
    let mut world = restarted();
    world.connections.clear();
    world.storage_down = true;
    assert_eq!(due(&world), None);
    let message = |world: &World| {
        let plan = plan(&world.observed(true));
        let item = plan.items.into_iter().find(|item| item.key.uid == "seed").expect("an item");
        assert_eq!(reason(&item), Some(Why::Waiting(Waiting::Recovering)));
        item.report.and_then(|report| report.stuck).expect("stuck").message
    };
    assert!(message(&world).contains("not connected yet (n-a)"), "{}", message(&world));
    world.now += SignedDuration::from_secs(21);
    assert_eq!(due(&world), Some(vec!["seed".to_owned()]), "the others are not lost with it");
}

#[test]
fn a_refused_disk_is_left_out_after_as_long() {
    let mut world = restarted();
    let partial = |world: &World| plan(&world.observed(false)).recover.map(|recover| recover.partial);
    assert_eq!(partial(&world), Some(false), "the whole set, or nothing");
    world.now += SignedDuration::from_secs(19);
    assert_eq!(partial(&world), Some(false));
    world.now += SignedDuration::from_secs(1);
    assert_eq!(partial(&world), Some(true));
}

#[test]
fn a_host_that_has_nothing_is_shown_a_controller() {
    let mut world = granted(0);
    world.recovery = Some(Recovery { since: world.now, error: Some("SNAP is busy".to_owned()) });
    assert_eq!(due(&world), Some(Vec::new()), "before any machine is");
    steps(&mut world);
    assert_eq!(reason(&only(&world)), Some(Why::Waiting(Waiting::Recovering)));
    world.recovery = None;
    assert_eq!(due(&world), None);
    assert!(steps(&mut world).contains(&StepKind::Expose));
    assert!(world.exposures.iter().any(|exposure| exposure.id == id("a", 7)));
}

#[test]
fn what_was_released_is_not_presented_again() {
    let mut world = restarted();
    world.released.insert(id("a", 7));
    assert_eq!(due(&world), Some(vec!["seed".to_owned()]));
}
