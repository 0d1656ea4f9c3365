//! What the host was shown and no attachment explains.

use super::examples::{granted, only, reason, steps};
use super::world::{World, function, id};
use crate::agent::*;
use api::dpu::OrphanKind;

/// A DPU that shows one of a kind, of which the API server knows nothing any more.
fn orphaned(number: u8) -> World {
    let mut world = granted(number);
    steps(&mut world);
    world.attachments.clear();
    world.sync();
    world
}

fn cleared(world: &World) -> Vec<StepKind> {
    plan(&world.observed(true)).clear.iter().map(Step::kind).collect()
}

#[test]
fn an_orphan_is_kept_and_reported_from_a_fresh_list() {
    for number in 0..3 {
        let mut world = orphaned(number);
        let stale = plan(&world.observed(false));
        assert!(stale.needs_fresh_list && stale.clear.is_empty() && stale.orphans.is_none(), "{stale:?}");
        let fresh = plan(&world.observed(true));
        assert!(fresh.clear.is_empty() && fresh.items.iter().all(|item| item.step.is_none()), "{fresh:?}");
        let orphans = fresh.orphans.expect("known");
        assert_eq!(orphans.iter().map(|one| (one.uid.as_str(), one.epoch)).collect::<Vec<_>>(), [("a", 7)]);
        assert_eq!(orphans[0].attachment_name.as_deref(), Some("n-a"));
        match number {
            0 => assert_eq!(orphans[0].volume.as_ref().map(|v| v.volume_handle.as_str()), Some("h")),
            1 => {
                assert_eq!((orphans[0].kind, orphans[0].logical_port.as_deref()), (OrphanKind::Nic, Some("p")));
            }
            _ => assert_eq!(orphans[0].volume, None, "a seed has none"),
        }
        world.round(None);
        let told = plan(&world.observed(false));
        assert!(!told.needs_fresh_list, "what is reported already needs no list: {told:?}");
        assert_eq!(told.orphans, Some(world.word.reported.clone()));
    }
}

#[test]
fn an_orphan_is_presented_again_after_its_process_crashed() {
    let mut world = orphaned(0);
    world.exposures.clear();
    world.connections.clear();
    let kinds: Vec<_> =
        plan(&world.observed(true)).items.iter().filter_map(|i| i.step.as_ref().map(Step::kind)).collect();
    assert_eq!(kinds, [StepKind::Connect]);
    world.settle();
    assert_eq!(world.exposures.iter().map(|e| &e.id).collect::<Vec<_>>(), [&id("a", 7)]);
}

#[test]
fn a_grant_of_another_epoch_waits_for_an_orphan_whose_process_crashed() {
    for number in 0..3 {
        let mut world = orphaned(number);
        // Of a NIC nothing but the record tells now.
        world.exposures.clear();
        world.connections.clear();
        world.ports.clear();
        // The API server was restored to before the grant, and the controller grants once more.
        world.add("a", function(number)).epoch = Some(8);
        world.settle();
        assert_eq!(world.record["a"].id, id("a", 7), "kind {number}");
        assert_eq!(world.exposures.iter().map(|e| &e.id).collect::<Vec<_>>(), [&id("a", 7)], "kind {number}");
        let waits = plan(&world.observed(false)).items.iter().find_map(reason);
        assert_eq!(waits, Some(Why::Waiting(Waiting::OtherEpochPresent)), "kind {number}");

        world.word.releasable.insert(id("a", 7));
        world.settle();
        assert_eq!(world.exposures.iter().map(|e| &e.id).collect::<Vec<_>>(), [&id("a", 8)], "kind {number}");
        assert_eq!(world.word.reported, []);
    }
}

#[test]
fn an_orphan_goes_by_the_word_of_the_controller_or_of_an_administrator() {
    let mut world = orphaned(0);
    world.word.releasable.insert(id("a", 6));
    assert_eq!(cleared(&world), [], "of another epoch");
    world.word.releasable.insert(id("a", 7));
    assert_eq!(cleared(&world), [StepKind::NoteRelease]);
    let stale = plan(&world.observed(false));
    assert!(stale.needs_fresh_list && stale.clear.is_empty(), "only by a fresh list and word: {stale:?}");
    world.settle();
    assert!(world.exposures.is_empty() && world.connections.is_empty() && world.record.is_empty());
    assert_eq!(world.word.reported, []);

    let mut world = orphaned(1);
    world.word.forget.insert("a".to_owned());
    world.settle();
    assert!(world.exposures.is_empty() && world.ports.is_empty() && world.record.is_empty());
}

#[test]
fn what_was_seen_to_be_released_is_no_orphan() {
    let mut world = granted(0);
    steps(&mut world);
    let a = world.attachments.get_mut("a").expect("there");
    (a.deleting, a.release) = (true, true);
    world.sync();
    world.round(None);
    // Its finalizer was taken away meanwhile.
    world.attachments.clear();
    world.restart_agent();
    world.settle();
    assert!(world.exposures.is_empty() && world.record.is_empty() && world.word.reported.is_empty());
}

#[test]
fn what_was_released_is_not_claimed_again_after_a_restore() {
    let mut world = granted(0);
    steps(&mut world);
    let before = world.attachments.clone();
    let a = world.attachments.get_mut("a").expect("there");
    (a.deleting, a.release) = (true, true);
    world.settle();
    assert_eq!(world.finished, ["a"]);
    world.attachments = before;
    world.sync();
    assert_eq!(steps(&mut world), [], "somebody else may have the volume");
    assert_eq!(reason(&only(&world)), Some(Why::Blocked(Blocked::ReleasedBefore)));
}

#[test]
fn what_no_host_was_shown_is_cleared() {
    let mut world = granted(0);
    world.round(None);
    world.round(None);
    assert_eq!((world.connections.len(), world.exposures.len()), (1, 0));
    world.attachments.clear();
    world.sync();
    assert_eq!(plan(&world.observed(true)).orphans, Some(Vec::new()));
    assert_eq!(cleared(&world), [StepKind::Disconnect]);
    world.settle();
    assert!(world.connections.is_empty() && world.record.is_empty());
}

#[test]
fn an_attachment_whose_grant_is_lost_again_leaves_an_orphan() {
    let mut world = granted(0);
    steps(&mut world);
    // Restored to a moment before its grant.
    world.attachments.get_mut("a").expect("there").epoch = None;
    world.sync();
    assert_eq!(cleared(&world), []);
    assert_eq!(plan(&world.observed(true)).orphans.map(|all| all.len()), Some(1));
}
