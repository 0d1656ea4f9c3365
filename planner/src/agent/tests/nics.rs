//! A NIC's way up and down, by example.

use super::examples::{granted, only, reason, steps};
use super::world::{Ovn, World, function, id};
use crate::agent::*;
use crate::network::rows::Binding;
use api::attachment::NicAttachmentStatus;
use api::conditions;
use api::machine::AttachPhase;
use jiff::SignedDuration;
use std::time::Duration;

fn status(world: &World) -> NicAttachmentStatus {
    let report = only(world).report.expect("known to the API server");
    nic_status(&NicAttachmentStatus::default(), &world.attachments["a"], &report, world.now)
}

fn connected(world: &World) -> (String, String) {
    let status = status(world);
    let condition = conditions::get(&status.conditions, conditions::CONNECTED).expect("Connected");
    (condition.status.clone(), condition.reason.clone())
}

fn is_up(world: &World) -> bool {
    world.exposures.iter().any(|exposure| exposure.link_up == Some(true))
}

/// A NIC that is up.
fn up() -> World {
    let mut world = granted(1);
    steps(&mut world);
    assert!(is_up(&world));
    world
}

#[test]
fn the_link_waits_until_the_port_is_in_force() {
    let mut world = granted(1);
    world.ovn = Ovn::Nothing;
    assert_eq!(steps(&mut world), [StepKind::Claim, StepKind::Expose, StepKind::Plug]);
    for (ovn, why) in [(Ovn::Nothing, Waiting::NotBound), (Ovn::Installed, Waiting::NotInForce)] {
        world.ovn = ovn;
        assert!(!world.round(None) && !is_up(&world), "{ovn:?}");
        assert_eq!(reason(&only(&world)), Some(Why::Waiting(why)));
        let status = status(&world);
        assert_eq!((status.phase, status.exposed_boot_id), (AttachPhase::Attaching, None));
        assert_eq!(connected(&world), ("False".to_owned(), Why::Waiting(why).as_str().to_owned()));
    }
    world.ovn = Ovn::InForce;
    assert_eq!(steps(&mut world), [StepKind::LinkUp]);
    assert_eq!((status(&world).phase, status(&world).exposed_boot_id), (AttachPhase::Attached, Some("boot-0".into())));
    assert_eq!(connected(&world).0, "True");
}

#[test]
fn a_port_that_takes_too_long_has_a_next_command() {
    let mut world = granted(1);
    world.ovn = Ovn::Nothing;
    steps(&mut world);
    let message = |world: &World| only(world).report.and_then(|report| report.stuck).expect("stuck").message;
    world.round(None);
    assert!(message(&world).contains("30 s at most"), "{}", message(&world));
    world.now += SignedDuration::from_secs(10);
    assert_eq!(plan(&world.observed(false)).look_again, Some(Duration::from_secs(20)), "then it says something else");
    world.now += SignedDuration::from_secs(20);
    assert!(message(&world).contains("Next: "), "{}", message(&world));
    assert_eq!(plan(&world.observed(false)).look_again, None, "the switch tells");
}

/// A status for each moment of a NIC's way would be two writes that nobody waits for, and each wakes the controller.
#[test]
fn a_port_that_is_in_force_within_a_moment_is_told_of_once() {
    let mut world = granted(1);
    world.ovn = Ovn::Nothing;
    steps(&mut world);
    world.round(None);
    let early = plan(&world.observed(false));
    assert!(early.items[0].passes && early.look_again.is_some_and(|again| again <= Duration::from_secs(1)));
    world.ovn = Ovn::Installed;
    assert!(only(&world).passes, "of another reason the time does not begin again");
    world.now += SignedDuration::from_secs(1);
    assert!(!only(&world).passes, "it is told now");
    world.ovn = Ovn::InForce;
    steps(&mut world);
    assert!(!only(&world).passes && connected(&world).0 == "True", "what works is told at once");
}

#[test]
fn a_host_that_releases_a_nic_within_a_moment_is_not_told_of() {
    let mut world = up();
    let a = world.attachments.get_mut("a").expect("there");
    (a.deleting, a.release) = (true, true);
    world.sync();
    while world.round(None) {}
    assert_eq!(reason(&only(&world)), Some(Why::Waiting(Waiting::HostLettingGo)));
    assert!(only(&world).passes);
    world.now += SignedDuration::from_secs(1);
    assert!(!only(&world).passes, "it is told now");
}

#[test]
fn what_is_in_force_no_more_keeps_its_link() {
    let mut world = up();
    world.ovn = Ovn::Nothing;
    assert_eq!(steps(&mut world), []);
    assert!(is_up(&world), "the guest sees no flapping");
    assert_eq!(connected(&world), ("False".to_owned(), "NotBound".to_owned()));
    world.restart_agent();
    world.sync();
    assert_eq!(steps(&mut world), [], "an agent that adopts it touches nothing either");
    world.ovn = Ovn::InForce;
    assert_eq!(steps(&mut world), []);
    assert_eq!(connected(&world).0, "True");
}

#[test]
fn a_restarted_agent_goes_on_where_the_last_one_was() {
    let mut world = granted(1);
    for kind in [StepKind::Claim, StepKind::Expose, StepKind::Plug, StepKind::LinkUp] {
        assert_eq!(only(&world).step.map(|step| step.kind()), Some(kind));
        world.round(None);
        world.restart_agent();
        world.sync();
    }
    assert_eq!(steps(&mut world), []);
    assert!(is_up(&world));
}

#[test]
fn a_port_that_somebody_took_away_takes_the_link_along() {
    let mut world = up();
    world.ports.clear();
    assert_eq!(steps(&mut world), [StepKind::LinkDown, StepKind::Plug, StepKind::LinkUp]);
}

#[test]
fn the_host_is_asked_for_it_after_the_link_and_the_port() {
    let mut world = up();
    let a = world.attachments.get_mut("a").expect("there");
    (a.deleting, a.release) = (true, true);
    world.sync();
    world.round(None);
    world.round(None);
    assert!(!is_up(&world) && world.ports.len() == 1, "the link first");
    world.round(None);
    assert!(world.ports.is_empty() && world.exposures.len() == 1, "then the port");
    world.round(None);
    assert_eq!(reason(&only(&world)), Some(Why::Waiting(Waiting::HostLettingGo)));
}

#[test]
fn a_port_from_before_there_were_versions_gets_one() {
    let mut world = up();
    world.ports[0].version.clear();
    assert_eq!(steps(&mut world), [StepKind::Plug], "and its link stays");
    assert!(is_up(&world));
}

/// Both ends of the binding say it: the interface on the switch, and the port in OVN.
#[test]
fn a_grant_has_one_version() {
    let binding = Binding { chassis: "c".into(), attachment_uid: "a".into(), epoch: 7 };
    assert_eq!(binding.version(), id("a", 7).version());
}

#[test]
fn what_presents_nics_does_not_hide_disks() {
    let mut world = granted(1);
    world.add("disk", function(0)).epoch = Some(1);
    world.nics_down = true;
    world.sync();
    let works = |world: &mut World| {
        while world.round(None) {
            world.sync();
        }
    };
    works(&mut world);
    let plan = plan(&world.observed(true));
    let of = |uid: &str| plan.items.iter().find(|item| item.key.uid == uid).expect("an item");
    assert_eq!(reason(of("a")), Some(Why::Waiting(Waiting::EmulationUnknown)), "the NIC waits");
    assert_eq!(reason(of("disk")), None);
    assert!(world.exposures.iter().any(|exposure| exposure.id == id("disk", 1)), "the disk is there");
    let disk = world.attachments.get_mut("disk").expect("there");
    (disk.deleting, disk.release) = (true, true);
    world.sync();
    works(&mut world);
    world.host_lets_go();
    works(&mut world);
    assert!(world.exposures.is_empty() && world.connections.is_empty(), "and is taken away");
    world.nics_down = false;
    works(&mut world);
    assert!(is_up(&world));
}

#[test]
fn a_function_that_was_made_anew_is_plugged_by_its_new_device() {
    let mut world = up();
    world.exposures[0].representor = Some("en3f0pf0sf1002".to_owned());
    // The world's switch has the old one's name until it is plugged again.
    assert_eq!(only(&world).step.map(|step| step.kind()), Some(StepKind::LinkDown));
    world.exposures[0].link_up = Some(false);
    assert_eq!(only(&world).step.map(|step| step.kind()), Some(StepKind::Unplug));
    world.ports.clear();
    let Some(Step::Plug { device, .. }) = only(&world).step else { panic!("it is plugged again") };
    assert_eq!(device, "en3f0pf0sf1002");
}
