//! What the boot service has seen of a server, in its HardwareReport.

use super::{INVENTORY, MAC, UUID, World};
use api::conditions;
use api::report::{HardwareReportStatus, HeardBy, NetbootStage};
use api::{HardwareReport, labels};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use planner::host::PowerState;
use planner::meta::{annotation, uid};
use planner::netboot::Client;
use planner::netboot::report::{Sight, add};
use std::sync::Arc;

const ADDRESS: &str = "10.88.0.50";

fn report(owner: &str) -> HardwareReport {
    let mut report = HardwareReport::new("hw", Default::default());
    report.metadata.namespace = Some(INVENTORY.to_owned());
    report.metadata.owner_references = Some(vec![OwnerReference { uid: owner.to_owned(), ..Default::default() }]);
    report.status = Some(HardwareReportStatus::default());
    report
}

pub(super) fn see(world: &mut World, sight: &Sight) {
    change(world, |status, now| *status = add(status, MAC, sight, now).unwrap_or_else(|| status.clone()));
}

/// The report of the Hardware that there is.
pub(super) fn change(world: &mut World, change: impl FnOnce(&mut HardwareReportStatus, Timestamp)) {
    let Some(hardware) = world.hardware.get("hw") else { return };
    let owner = uid(&hardware.metadata).to_owned();
    let is_its = |report: &&HardwareReport| planner::netboot::report::is_of(report, hardware);
    let mut report = world.report.as_deref().filter(is_its).cloned().unwrap_or_else(|| report(&owner));
    change(report.status.get_or_insert_default(), world.now);
    world.report = Some(Arc::new(report));
}

fn heard() -> Sight {
    Sight::Heard { address: ADDRESS.parse().expect("an address"), by: HeardBy::Dhcp, starts: true }
}

fn addresses(world: &World) -> Vec<(String, String)> {
    let status = world.machine().and_then(|machine| machine.status.clone()).expect("a status");
    status.addresses.into_iter().map(|one| (one.interface, one.address)).collect()
}

/// It was powered on for the installer, and nothing runs on it.
pub(super) fn stays_in_its_firmware(world: &mut World) {
    world.until("it was powered on", |world| world.in_installer);
    world.in_installer = false;
    world.until("it is awaited", |world| world.reason(conditions::INSTALLED) == "NetbootAwaited");
}

#[test]
fn an_installation_says_how_far_the_boot_has_come() {
    let mut world = World::new();
    stays_in_its_firmware(&mut world);
    let said = |world: &World| world.message(conditions::INSTALLED);
    assert!(said(&world).contains("has not seen the server ask"), "{}", said(&world));
    for (stage, words) in [
        (NetbootStage::Program, "fetched its boot program at"),
        (NetbootStage::Script, "has not asked for the kernel"),
        (NetbootStage::Kernel, "its agent has not asked yet"),
    ] {
        see(&mut world, &Sight::Came(stage));
        world.until(words, |world| said(world).contains(words));
    }
    let why = "Hardware 'hw': netboot.allowPXE is not true".to_owned();
    see(&mut world, &Sight::Turned { stage: NetbootStage::Refused, why: why.clone(), client: None, uuid: None });
    world.until("it is told why", |world| said(world).contains(&why));
    world.until("the limit", |world| world.reason(conditions::INSTALLED) == "NetbootNotTaken");
    assert!(said(&world).contains(&why), "{}", said(&world));
}

fn asks(uuid: &str) -> Sight {
    Sight::Asked { client: Client::default(), uuid: Some(uuid.to_owned()) }
}

/// Its MAC address is another server's, or its BMC is: the one whose BMC powers it on is on record before it asks.
#[test]
fn another_server_than_that_of_the_bmc_is_told_of() {
    let mut world = World::new();
    stays_in_its_firmware(&mut world);
    let recorded = |world: &World| annotation(&world.hardware["hw"].metadata, labels::SYSTEM_UUID).map(str::to_owned);
    assert_eq!(recorded(&world).as_deref(), Some(UUID));
    see(&mut world, &asks("ff112233-4455-6677-8899-aabbccddeeff"));
    world.until("it is told", |world| world.reason(conditions::INSTALLED) == "WrongServerBooted");
    let said = world.message(conditions::INSTALLED);
    assert!(
        said.contains("ff112233-4455") && said.contains(UUID) && said.contains("metalplane.io/firmware-uuid"),
        "{said}"
    );
    // Somebody has put it right, and the right one asks.
    world.now += SignedDuration::from_mins(3);
    see(&mut world, &asks("33221100-5544-7766-8899-aabbccddeeff"));
    world.until("it is awaited", |world| world.reason(conditions::INSTALLED) == "NetbootAwaited");
    world.in_installer = true;
    world.until("it runs", World::is_running);
}

#[test]
fn a_bmc_that_tells_no_uuid_hinders_nothing() {
    let mut world = World { uuid: None, ..World::new() };
    stays_in_its_firmware(&mut world);
    see(&mut world, &asks(UUID));
    assert_eq!(world.reason(conditions::INSTALLED), "NetbootAwaited");
    assert_eq!(annotation(&world.hardware["hw"].metadata, labels::SYSTEM_UUID), None);
    world.in_installer = true;
    world.until("it runs", World::is_running);
}

#[test]
fn what_was_seen_before_the_start_counts_for_nothing() {
    let mut world = World::new();
    see(&mut world, &Sight::Came(NetbootStage::Kernel));
    see(&mut world, &heard());
    stays_in_its_firmware(&mut world);
    assert!(world.message(conditions::INSTALLED).contains("has not seen the server ask"));
    world.in_installer = true;
    world.until("it runs", World::is_running);
    assert_eq!((world.reason(conditions::GUEST_REACHABLE), addresses(&world)), ("SystemSilent".to_owned(), vec![]));
}

#[test]
fn the_installed_system_is_reachable_once_it_is_heard_of() {
    let mut world = World::new();
    world.until("it runs", World::is_running);
    see(&mut world, &heard());
    world.until("it is heard of", |world| world.reason(conditions::GUEST_REACHABLE) == "GuestAnswered");
    assert_eq!(addresses(&world), [(MAC.to_owned(), ADDRESS.to_owned())]);
    // It is started anew by its user: of that start nothing has been heard yet.
    world.change(|machine| {
        let request = labels::RESTART_REQUESTED_AT.to_owned();
        machine.metadata.annotations.get_or_insert_default().insert(request, "2026-01-01T00:00:00Z".to_owned());
    });
    world.until("it is restarted", |world| world.reason(conditions::GUEST_REACHABLE) == "SystemSilent");
    assert_eq!((world.power, addresses(&world)), (PowerState::On, vec![]));
    see(&mut world, &heard());
    world.until("it is heard of", |world| world.reason(conditions::GUEST_REACHABLE) == "GuestAnswered");
}

#[test]
fn the_report_of_another_hardware_of_that_name_is_none() {
    let mut world = World::new();
    world.until("it runs", World::is_running);
    see(&mut world, &heard());
    let other = report("another");
    let seen = world.report.as_ref().and_then(|report| report.status.clone());
    world.report = Some(Arc::new(HardwareReport { status: seen, ..other }));
    world.until("a round", |world| annotation(&world.hardware["hw"].metadata, labels::CLAIMED_BY).is_some());
    assert_eq!(world.reason(conditions::GUEST_REACHABLE), "SystemSilent");
}
