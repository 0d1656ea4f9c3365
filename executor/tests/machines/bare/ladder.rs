//! Servers whose BMC does not send them to the network by an override for one boot.

use super::World;
use super::firmware::{DISK, Firmware, Way};
use api::machine::RunStrategy;
use api::{conditions, labels};
use jiff::SignedDuration;
use planner::host::{MediaUrl, Medium, PowerState};
use planner::machine::observed::annotation;

const ONCE: Way = Way::Once;
const ALWAYS: Way = Way::Always;
const ORDER: Way = Way::Order;
const MEDIUM: Way = Way::Medium;

fn world(ignores: &[Way]) -> World {
    let mut world = World::new();
    world.power = PowerState::Off;
    let (ignores, post) = (ignores.to_vec(), Some(SignedDuration::from_secs(90)));
    world.firmware = Firmware { offers_all: true, ignores, post, ..Firmware::default() };
    world
}

fn kept(world: &World) -> Option<&str> {
    annotation(&world.hardware["hw"].metadata, labels::NETBOOT_BY)
}

/// By which it was installed; the starts of its own system come after that.
fn installed_by(world: &World) -> Vec<Option<Way>> {
    let starts = &world.firmware.asked;
    let at = starts.iter().position(Option::is_some).expect("it asked the network");
    starts[..=at].to_vec()
}

/// Neither the BMC nor the order sends it to the network any more.
fn is_undone(world: &World) -> bool {
    let (order, medium) = (&world.firmware.order, &world.firmware.medium);
    !matches!(medium, Medium::Inserted(_))
        && world.next.is_none()
        && world.firmware.always.is_none()
        && order.first().is_none_or(|first| first == DISK)
}

#[test]
fn each_rung_is_tried_once_and_the_one_that_worked_is_first_the_next_time() {
    for (ignores, by, starts) in [
        (&[][..], None, vec![Some(ONCE)]),
        (&[ONCE], Some("Continuous"), vec![None, Some(ALWAYS)]),
        (&[ONCE, ALWAYS], Some("BootOption"), vec![None, None, Some(ORDER)]),
        (&[ONCE, ALWAYS, ORDER], Some("VirtualMedia"), vec![None, None, None, Some(MEDIUM)]),
    ] {
        let mut world = world(ignores);
        world.firmware.has_drive = true;
        let began = world.now;
        world.until("it runs", |world| world.is_running() && is_undone(world));
        assert_eq!((kept(&world), installed_by(&world)), (by, starts.clone()), "{ignores:?}");
        // Firmware that is done and silent is not waited for as long as one of which nothing is known.
        let minutes = world.now.duration_since(began).as_mins();
        assert!(minutes < 7 * i64::try_from(starts.len()).expect("few"), "{minutes} minutes: {ignores:?}");
        world.firmware.asked.clear();
        world.ask();
        world.until("it is installed once more", |world| world.installations() == 2 && world.is_running());
        assert_eq!(installed_by(&world).len(), 1, "{ignores:?}");
        world.delete();
        world.until("it no longer exists", |world| world.machine().is_none());
        assert!(is_undone(&world) && kept(&world) == by, "{ignores:?}");
    }
}

#[test]
fn a_bmc_that_keeps_another_mode_is_asked_otherwise_before_the_host_is_started() {
    let mut world = world(&[]);
    world.firmware.stays_legacy = true;
    world.until("it runs", World::is_running);
    assert_eq!(installed_by(&world), [Some(ALWAYS)]);
    assert_eq!(kept(&world), Some("Continuous"));
}

#[test]
fn the_last_one_waits_for_a_person_and_says_what_was_tried() {
    let mut world = world(&[ONCE, ALWAYS, ORDER]);
    world.until("it is given up", |world| world.reason(conditions::READY) == "NetbootNotTaken");
    let message = world.message(conditions::READY);
    for part in ["for one boot, then by a continuous", "first in the boot order"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!((world.firmware.asked.len(), world.power, kept(&world)), (3, PowerState::On, None));
    for _ in 0..200 {
        world.step();
        world.round(usize::MAX);
    }
    assert_eq!((world.firmware.asked.len(), world.writes.len()), (3, 0), "it waits");
    // As the message says; it begins with the first way.
    world.firmware.ignores.clear();
    for strategy in [RunStrategy::Halted, RunStrategy::Always] {
        world.change(|machine| machine.spec.run_strategy = strategy);
        world.until("it is taken", |world| (world.power == PowerState::On) == (strategy == RunStrategy::Always));
    }
    world.until("it runs", World::is_running);
    assert_eq!(world.firmware.asked[3], Some(ONCE));
}

#[test]
fn a_drive_that_shows_no_medium_is_told_so_and_asked_again() {
    let mut world = world(&[ONCE, ALWAYS, ORDER]);
    (world.firmware.has_drive, world.firmware.drops) = (true, 4);
    world.until("it is said", |world| world.reason(conditions::READY) == "MediumNotTaken");
    let message = world.message(conditions::READY);
    assert!(message.contains("insert http://10.88.0.1:7080/iso/52-54-00-00-00-01/installer.iso"), "{message}");
    assert_eq!((world.firmware.asked.len(), world.power), (3, PowerState::Off));
    world.until("it runs", |world| world.is_running() && is_undone(world));
    assert_eq!(kept(&world), Some("VirtualMedia"));
}

#[test]
fn what_somebody_else_has_inserted_stays_until_the_drive_is_needed() {
    let theirs = || Medium::Inserted(Some(MediaUrl::shown("http://images.example/rescue.iso")));
    let mut world = world(&[]);
    (world.firmware.has_drive, world.firmware.medium) = (true, theirs());
    world.until("it runs", World::is_running);
    world.delete();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert_eq!(world.firmware.medium, theirs());
}

#[test]
fn a_controller_that_starts_and_is_told_nothing_of_the_drive_leaves_the_machine_ready() {
    let mut world = world(&[ONCE, ALWAYS, ORDER]);
    world.firmware.has_drive = true;
    world.until("it runs", |world| world.is_running() && is_undone(world));
    (world.firmware.medium, world.firmware.sent_at) = (Medium::Unknown, None);
    for _ in 0..50 {
        world.step();
        world.round(usize::MAX);
        assert!(world.is_running(), "{}", world.message(conditions::READY));
    }
    assert_eq!(world.firmware.medium, Medium::Ejected, "it may be in there");
}

#[test]
fn a_server_is_not_powered_off_in_its_post() {
    let mut world = world(&[ONCE]);
    world.firmware.post = Some(SignedDuration::from_mins(30));
    let began = world.now;
    world.until("it is asked otherwise", |world| world.firmware.asked.len() == 2);
    let minutes = world.now.duration_since(began).as_mins();
    assert!((33..36).contains(&minutes), "{minutes} minutes");
}

#[test]
fn of_a_bmc_that_tells_nothing_of_post_the_next_one_waits_twenty_minutes() {
    let mut world = world(&[ONCE]);
    world.firmware.post = None;
    let began = world.now;
    world.until("it is asked otherwise", |world| world.firmware.asked.len() == 2);
    let minutes = world.now.duration_since(began).as_mins();
    assert!((20..25).contains(&minutes), "{minutes} minutes");
    world.until("it runs", World::is_running);
}
