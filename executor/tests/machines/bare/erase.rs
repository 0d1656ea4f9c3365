//! The disks of a server are erased before somebody else has it, by example.

use super::{World, hardware};
use api::conditions;
use api::dpu::{DpuSpec, HardwareReference, LocalDisks};
use api::machine::{HardwareChoice, MachineState, RunStrategy};
use api::{Dpu, labels};
use planner::erase::{Phase, Record, Report};
use planner::host::PowerState;
use planner::machine::observed::annotation;

/// Installed, by a policy that says Erase, and deleted.
fn deleted() -> World {
    let mut world = World::new();
    world.local_disks = LocalDisks::Erase;
    world.until("it runs", World::is_running);
    assert_eq!(world.disks.dirty.len(), 2);
    world.delete();
    world
}

fn record(world: &World) -> Option<Record> {
    Record::of(&world.hardware["hw"].metadata)
}

fn is_free(world: &World) -> bool {
    annotation(&world.hardware["hw"].metadata, labels::CLAIMED_BY).is_none()
}

fn report(world: &World) -> Report {
    Report::of(&world.hardware["hw"].metadata).expect("a report")
}

fn state(world: &World) -> Option<MachineState> {
    world.machine().and_then(|machine| machine.status.as_ref()).and_then(|status| status.state)
}

/// By the last reading of its BMC.
fn reads_on(world: &World) -> bool {
    let status = world.machine().and_then(|machine| machine.status.as_ref());
    status.and_then(|status| status.power.as_ref()).is_some_and(|power| power.state == "On")
}

fn is_incomplete(world: &World) -> bool {
    world.reason(conditions::READY) == "EraseIncomplete"
}

#[test]
fn it_is_erased_then_free_and_the_report_stays() {
    let mut world = deleted();
    world.until("it erases", |world| world.reason(conditions::READY) == "Erasing");
    assert_eq!(state(&world), Some(MachineState::Releasing));
    assert!(world.in_installer && !is_free(&world));
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(is_free(&world) && world.disks.dirty.is_empty() && world.power == PowerState::Off);
    assert!(world.copies() == 0 && world.workflows.is_empty());
    let report = report(&world);
    let disks: Vec<_> = report.disks.iter().map(|disk| (disk.serial.as_str(), disk.method.as_deref())).collect();
    assert_eq!(
        (report.result.as_str(), disks),
        ("Erased", vec![("DISK-1", Some("Overwrite")), ("DISK-2", Some("Overwrite"))])
    );
    let ours = world.hardware["hw"].metadata.annotations.iter().flatten().map(|(key, _)| key.as_str());
    assert_eq!(ours.collect::<Vec<_>>(), [labels::ERASE_REPORT], "nothing else is left");
}

#[test]
fn what_was_not_begun_is_not_erased_and_keep_keeps() {
    let mut world = World::new();
    world.local_disks = LocalDisks::Erase;
    world.change(|machine| machine.spec.run_strategy = RunStrategy::Halted);
    world.until("it is claimed", |world| world.reason(conditions::INSTALLED) == "StartFirst");
    assert_eq!(annotation(&world.hardware["hw"].metadata, labels::LOCAL_DISKS), Some("Erase"));
    world.delete();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(is_free(&world) && world.hardware["hw"].metadata.annotations.is_none(), "nothing was erased");
    let mut world = World::new();
    world.until("it runs", World::is_running);
    world.delete();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(is_free(&world) && world.disks.dirty.len() == 2);
}

/// It counts what was said when the server was claimed, and what is said when it is given back.
#[test]
fn a_policy_that_says_erase_counts_whenever_it_said_so() {
    let mut world = deleted();
    world.local_disks = LocalDisks::Keep;
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(world.disks.dirty.is_empty());
    let mut world = World::new();
    world.until("it runs", World::is_running);
    world.local_disks = LocalDisks::Erase;
    world.delete();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(world.disks.dirty.is_empty());
}

#[test]
fn an_interrupted_one_is_none_and_is_done_again() {
    let mut world = deleted();
    world.until("it erases", |world| world.reason(conditions::READY) == "Erasing");
    world.goes_off();
    world.until("it is started again", |world| world.in_installer);
    assert!(!is_free(&world) && record(&world).is_some_and(|record| record.phase == Phase::Begun));
    // The Workflow is deleted by hand: another one is made, and the disks are erased by that.
    let first = record(&world).expect("a record");
    world.workflows.clear();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(world.disks.dirty.is_empty() && report(&world).result == "Erased");
    assert_eq!(first.number, 1);
}

#[test]
fn a_server_that_loses_its_power_again_and_again_waits_for_somebody() {
    let mut world = deleted();
    for _ in 0..3 {
        world.until("it is seen to run", |world| world.in_installer && reads_on(world));
        world.goes_off();
    }
    world.until("it says so", is_incomplete);
    assert!(!is_free(&world) && world.power == PowerState::Off);
    world.erase_again();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(world.disks.dirty.is_empty());
}

#[test]
fn a_disk_that_the_installation_saw_has_to_be_seen_by_the_eraser() {
    let mut world = deleted();
    world.disks.hidden.insert("DISK-2");
    world.until("it is incomplete", is_incomplete);
    let machine = world.machine().and_then(|machine| machine.status.clone()).expect("a status");
    let ready = conditions::get(&machine.conditions, conditions::READY).expect("Ready");
    assert!(ready.message.contains("serial number DISK-2") && ready.message.contains("bmctl hardware erase hw"));
    assert_eq!(state(&world), Some(MachineState::Releasing));
    for _ in 0..50 {
        world.step();
        world.round(usize::MAX);
    }
    assert!(!is_free(&world), "it waits for ever");
    // It is back in its slot.
    world.disks.hidden.clear();
    world.erase_again();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(world.disks.dirty.is_empty());
}

/// What was told in a report outlives the Workflow that has it, and a try that failed is a report as well.
#[test]
fn a_disk_that_was_told_of_once_has_to_be_seen_whatever_became_of_the_report() {
    let mut world = World::new();
    world.local_disks = LocalDisks::Erase;
    world.until("it writes", |world| !world.disks.dirty.is_empty());
    world.round(usize::MAX);
    world.workflows.clear();
    world.disks.hidden.insert("DISK-2");
    world.delete();
    world.until("it is incomplete", is_incomplete);
    let mut world = deleted();
    world.disks.all.push("DISK-3");
    world.agent_fails = true;
    world.until("it failed", is_incomplete);
    (world.agent_fails, world.disks.hidden) = (false, ["DISK-3"].into());
    let failed = record(&world);
    world.erase_again();
    world.until("it is tried once more", |world| record(world) != failed && is_incomplete(world));
    assert!(!is_free(&world));
    world.disks.hidden.clear();
    world.erase_again();
    world.until("it no longer exists", |world| world.machine().is_none());
}

/// No controller has read the first message when the second takes its place.
#[test]
fn a_disk_that_was_told_of_between_two_looks_has_to_be_seen() {
    let mut world = World::new();
    world.local_disks = LocalDisks::Erase;
    world.until("it installs", |world| world.in_installer);
    while world.disks.dirty.is_empty() {
        world.step();
    }
    world.disks.hidden.insert("DISK-2");
    world.step();
    assert!(world.writes.len() > 1, "it told of its disks twice");
    world.delete();
    world.until("it is incomplete", is_incomplete);
    assert!(!is_free(&world));
}

/// What is on record at the Hardware is lost with it: its machine knows, or a Workflow that has run.
#[test]
fn a_hardware_that_is_registered_anew_has_its_disks_erased_and_its_host_off() {
    let mut world = deleted();
    world.until("it erases", |world| world.reason(conditions::READY) == "Erasing");
    world.register_anew();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(world.disks.dirty.is_empty() && world.power == PowerState::Off && is_free(&world));
    let mut world = World::new();
    world.local_disks = LocalDisks::Erase;
    world.until("it writes", |world| !world.disks.dirty.is_empty());
    // The record was written, and the controller died before it had written the status.
    world.change(|machine| machine.status = None);
    world.register_anew();
    world.delete();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(world.disks.dirty.is_empty() && world.power == PowerState::Off && is_free(&world));
}

/// The eraser could not tell what a DPU presents from a disk of the server.
#[test]
fn a_server_that_a_dpu_is_in_is_not_erased() {
    let dpu = || {
        let reference = HardwareReference { name: "hw".into(), serial_number: None };
        Dpu::new("dpu", DpuSpec { hardware_ref: Some(reference), ..DpuSpec::default() })
    };
    let mut world = World::new();
    world.local_disks = LocalDisks::Erase;
    world.change(|machine| machine.spec.hardware = Some(HardwareChoice { name: Some("hw".into()), selector: None }));
    world.create(dpu()).expect("a new name");
    world.until("it is refused", |world| world.reason(conditions::HARDWARE_CLAIMED) == "EraseNotServed");
    let mut world = deleted();
    world.create(dpu()).expect("a new name");
    world.until("it waits", |world| world.reason(conditions::READY) == "EraseNotServed");
    assert!(record(&world).is_none() && !is_free(&world) && world.disks.dirty.len() == 2);
}

#[test]
fn a_disk_that_the_inventory_names_has_to_be_seen_by_the_eraser() {
    let mut world = World::new();
    world.local_disks = LocalDisks::Erase;
    let mut with_disk = hardware();
    with_disk.spec.disks =
        vec![api::tinkerbell::hardware::Disk { device: Some("/dev/disk/by-id/ata-OLD_DISK-3".into()) }];
    world.hardware.remove("hw");
    world.create(with_disk).expect("a new name");
    world.until("it runs", World::is_running);
    world.delete();
    world.until("it is incomplete", is_incomplete);
    world.disks.all.push("DISK-3");
    world.erase_again();
    world.until("it no longer exists", |world| world.machine().is_none());
}

#[test]
fn an_administrator_takes_it_as_it_is_and_that_stays_on_record() {
    let mut world = deleted();
    world.agent_fails = true;
    world.until("it failed", is_incomplete);
    assert!(world.reason(conditions::READY) == "EraseIncomplete" && !is_free(&world));
    world.annotate(labels::RELEASE_WITH_DATA, "the UID of another machine".to_owned());
    for _ in 0..20 {
        world.step();
        world.round(usize::MAX);
    }
    assert!(!is_free(&world), "said of another claim");
    world.with_data();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(is_free(&world) && world.disks.dirty.len() == 2 && world.power == PowerState::Off);
    let report = report(&world);
    assert_eq!((report.result.as_str(), report.machine.as_str()), ("WithData", "team/a"));
    assert!(report.why.is_some_and(|why| why.contains("medium error")));
}

/// Nobody switches its host off for it; what the erasing has started it ends.
#[test]
fn a_machine_that_is_gone_is_erased_as_well() {
    let mut world = World::new();
    world.local_disks = LocalDisks::Erase;
    world.until("it runs", World::is_running);
    world.forced();
    for _ in 0..50 {
        world.step();
        world.round(usize::MAX);
    }
    assert!(world.power == PowerState::On && !is_free(&world) && record(&world).is_none());
    world.goes_off();
    world.until("it is free", is_free);
    assert!(world.disks.dirty.is_empty() && world.power == PowerState::Off && world.workflows.is_empty());
    assert_eq!(report(&world).result, "Erased");
}
