//! The plan by example: order of steps, reasons, reports.

use super::world::{DRIVER, World, attachment, function, id};
use crate::agent::*;
use crate::exposure::Presence;
use crate::seen::Seen;
use api::attachment::{DiskAttachmentStatus, NicAttachmentStatus};
use api::conditions;
use api::machine::AttachPhase;
use jiff::SignedDuration;
use std::time::Duration;

const MIB: u64 = 1 << 20;

pub(super) fn granted(number: u8) -> World {
    let mut world = World::new();
    world.add("a", function(number)).epoch = Some(7);
    world.sync();
    world
}

/// The kinds of the steps until nothing is left to do.
pub(super) fn steps(world: &mut World) -> Vec<StepKind> {
    let mut kinds = Vec::new();
    for _ in 0..20 {
        let step = plan(&world.observed(false)).items.first().and_then(|item| item.step.clone());
        let Some(step) = step else { return kinds };
        kinds.push(step.kind());
        world.round(None);
        world.host_lets_go();
        world.sync();
    }
    panic!("no end: {kinds:?}");
}

pub(super) fn only(world: &World) -> Item {
    let mut plan = plan(&world.observed(false));
    assert_eq!(plan.items.len(), 1, "{plan:?}");
    plan.items.remove(0)
}

pub(super) fn status(world: &World, previous: &DiskAttachmentStatus) -> DiskAttachmentStatus {
    let item = only(world);
    disk_status(previous, &world.attachments["a"], &item.report.expect("known to the API server"), world.now)
}

pub(super) fn reason(item: &Item) -> Option<Why> {
    item.report.as_ref().and_then(|r| r.stuck.as_ref()).map(|s| s.why)
}

#[test]
fn brings_each_kind_in_order_and_takes_it_away_in_order() {
    use StepKind::*;
    for (number, bring, take) in [
        (0, vec![Claim, Connect, Expose], vec![NoteRelease, Hide, Disconnect, Finish]),
        (1, vec![Claim, Expose, Plug, LinkUp], vec![NoteRelease, LinkDown, Unplug, Hide, Finish]),
        (2, vec![Claim, WriteSeed, Expose], vec![NoteRelease, Hide, RemoveSeed, Finish]),
        (4, vec![Claim, WriteEraser, Expose], vec![NoteRelease, Hide, RemoveSeed, Finish]),
        (5, vec![Claim, WriteHoldDisk, Expose], vec![NoteRelease, Hide, RemoveSeed, Finish]),
    ] {
        let mut world = granted(number);
        assert_eq!(steps(&mut world), bring, "kind {number}");
        let a = world.attachments.get_mut("a").expect("there");
        (a.deleting, a.release) = (true, true);
        world.sync();
        assert_eq!(steps(&mut world), take, "kind {number}");
        assert_eq!(world.finished, ["a"]);
    }
}

#[test]
fn an_attachment_without_grant_is_inert() {
    let mut world = World::new();
    world.add("a", function(0));
    world.sync();
    let item = only(&world);
    assert_eq!((&item.step, reason(&item)), (&None, Some(Why::Waiting(Waiting::NotGranted))));
    assert_eq!(status(&world, &DiskAttachmentStatus::default()).phase, AttachPhase::Waiting);
}

#[test]
fn that_a_grant_is_awaited_is_told_when_it_is_late() {
    let mut world = World::new();
    world.add("a", function(0));
    world.sync();
    world.ungranted_since.insert("a".to_owned(), world.now);
    let early = plan(&world.observed(false));
    assert!(early.items[0].passes && early.look_again.is_some_and(|again| again <= Duration::from_secs(1)));
    world.now += SignedDuration::from_secs(1);
    assert!(!only(&world).passes, "it is told now");
}

#[test]
fn deletion_without_release_changes_nothing_and_says_why() {
    let mut world = granted(0);
    steps(&mut world);
    world.attachments.get_mut("a").expect("there").deleting = true;
    world.sync();
    assert_eq!(steps(&mut world), []);
    let status = status(&world, &DiskAttachmentStatus::default());
    let exposed = conditions::get(&status.conditions, conditions::EXPOSED).expect("Exposed");
    assert_eq!((exposed.status.as_str(), exposed.reason.as_str()), ("True", "NotReleased"));
    assert!(exposed.message.contains("spec.release"), "{}", exposed.message);
    assert_eq!(status.exposed_boot_id, Some(world.boot_id()));
}

#[test]
fn reports_what_the_host_sees() {
    let mut world = granted(0);
    let before = status(&world, &DiskAttachmentStatus::default());
    assert_eq!((before.phase, before.exposed_boot_id), (AttachPhase::Attaching, None));
    steps(&mut world);
    let after = status(&world, &DiskAttachmentStatus::default());
    assert_eq!(after.phase, AttachPhase::Attached);
    assert_eq!(after.exposed_boot_id, Some("boot-0".to_owned()));
    assert_eq!(after.capacity.map(|q| q.0), Some("1Mi".to_owned()));
    assert_eq!((after.serial.as_deref(), after.wwid.as_deref()), (Some("MP1"), Some("uuid.u")));
    assert_eq!(after.fence.map(|f| (f.boot_id, f.epoch)), Some(("boot-0".to_owned(), 7)));
    for type_ in [conditions::CONNECTED, conditions::EXPOSED, conditions::RESIZED] {
        assert!(conditions::is_true(&after.conditions, type_), "{type_}");
    }
}

#[test]
fn what_cannot_be_read_keeps_the_report_and_is_not_touched() {
    let mut world = granted(0);
    steps(&mut world);
    let before = status(&world, &DiskAttachmentStatus::default());
    world.emulation_down = true;
    let a = world.attachments.get_mut("a").expect("there");
    (a.deleting, a.release) = (true, true);
    world.sync();
    assert_eq!(only(&world).step, None);
    let after = status(&world, &before);
    assert_eq!(after.exposed_boot_id, before.exposed_boot_id);
    assert_eq!(conditions::get(&after.conditions, conditions::EXPOSED).map(|c| c.status.as_str()), Some("Unknown"));
}

#[test]
fn a_new_boot_claims_again_before_it_reports() {
    let mut world = granted(0);
    steps(&mut world);
    world.reboot_dpu(true);
    world.sync();
    let unclaimed = status(&world, &DiskAttachmentStatus::default());
    assert_eq!((unclaimed.phase, unclaimed.exposed_boot_id), (AttachPhase::Attaching, None));
    assert_eq!(steps(&mut world), [StepKind::Claim, StepKind::Connect]);
    assert_eq!(status(&world, &DiskAttachmentStatus::default()).exposed_boot_id, Some("boot-1".to_owned()));
}

#[test]
fn without_the_api_server_the_record_is_replayed_and_nothing_else() {
    let mut world = granted(0);
    steps(&mut world);
    world.api_down = true;
    world.restart_agent();
    world.exposures.clear();
    assert_eq!(steps(&mut world), [StepKind::Expose], "the target crashed: the record is replayed");
    world.reboot_dpu(false);
    assert_eq!(plan(&world.observed(false)), Plan::default(), "a new boot remembers nothing");
}

#[test]
fn grows_online_or_says_that_a_power_cycle_is_needed() {
    let mut world = granted(0);
    steps(&mut world);
    world.attachments.get_mut("a").expect("there").size_bytes = Some(2 * MIB);
    world.sync();
    assert_eq!(reason(&only(&world)), Some(Why::Waiting(Waiting::StorageSmaller)));
    world.connections[0].size_bytes = 2 * MIB;
    world.resizes_offline_only = true;
    world.round(None);
    let item = only(&world);
    assert_eq!((&item.step, reason(&item)), (&None, Some(Why::Blocked(Blocked::ResizeNeedsPowerCycle))));
    let refused = status(&world, &DiskAttachmentStatus::default());
    assert_eq!(refused.phase, AttachPhase::Attached, "it is still presented");
    let resized = conditions::get(&refused.conditions, conditions::RESIZED).expect("Resized");
    assert_eq!((resized.status.as_str(), resized.reason.as_str()), ("False", "ResizeNeedsPowerCycle"));

    world.exposures[0].size_bytes = Some(2 * MIB);
    let cycled = status(&world, &refused);
    assert!(conditions::is_true(&cycled.conditions, conditions::RESIZED));
    assert_eq!(cycled.capacity.map(|q| q.0), Some("2Mi".to_owned()));
}

#[test]
fn a_host_that_lost_its_disk_is_told_and_nothing_is_done() {
    let mut world = granted(0);
    steps(&mut world);
    let before = status(&world, &DiskAttachmentStatus::default());
    world.exposures[0].presence = Presence::Stranded;
    let item = only(&world);
    assert_eq!((&item.step, reason(&item)), (&None, Some(Why::Blocked(Blocked::HostPowerCycleNeeded))));
    let stranded = status(&world, &before);
    assert_eq!(stranded.phase, AttachPhase::Attached, "it is presented: the next start boots");
    assert_eq!(stranded.exposed_boot_id, before.exposed_boot_id);
    let exposed = conditions::get(&stranded.conditions, conditions::EXPOSED).expect("Exposed");
    assert_eq!((exposed.status.as_str(), exposed.reason.as_str()), ("True", "HostPowerCycleNeeded"));

    world.exposures[0].presence = Presence::Present;
    let cycled = status(&world, &stranded);
    assert_eq!(conditions::get(&cycled.conditions, conditions::EXPOSED).map(|c| c.reason.as_str()), Some("Exposed"));
}

#[test]
fn a_failed_step_comes_back_later_and_is_named() {
    let mut world = granted(0);
    world.round(None);
    world.failures.insert(
        ("a".into(), StepKind::Connect),
        Failure {
            step: Step::Connect { id: id("a", 7), volume: super::world::volume() },
            class: FailureClass::NotFound,
            message: "volume h: no such file".into(),
            count: 3,
            at: world.now,
        },
    );
    let plan = plan(&world.observed(false));
    assert_eq!(plan.look_again, Some(Duration::from_millis(800)));
    assert_eq!(plan.items[0].step, None);
    let failed = status(&world, &DiskAttachmentStatus::default());
    let connected = conditions::get(&failed.conditions, conditions::CONNECTED).expect("Connected");
    assert_eq!((connected.reason.as_str(), connected.message.as_str()), ("ConnectFailed", "volume h: no such file"));
    world.now += SignedDuration::from_millis(800);
    assert!(only(&world).step.is_some());
}

#[test]
fn a_refused_identity_is_fenced_and_never_replaced() {
    let mut world = granted(0);
    world.round(None);
    let step = Step::Connect { id: id("a", 7), volume: super::world::volume() };
    let class = FailureClass::Unauthorized;
    let failure = Failure { step, class, message: "blocklisted".into(), count: 1, at: world.now };
    let connecting = ("a".to_owned(), StepKind::Connect);
    world.failures.insert(connecting.clone(), failure);
    let fenced = status(&world, &DiskAttachmentStatus::default());
    assert_eq!(fenced.phase, AttachPhase::Failed);
    assert!(conditions::is_true(&fenced.conditions, conditions::FENCED));
    world.now += SignedDuration::from_secs(60);
    let again = only(&world).step.expect("tried again");
    assert_eq!(again, world.failures[&connecting].step, "the same identity");
}

#[test]
fn an_import_is_started_observed_and_remembered() {
    let mut world = granted(3);
    assert_eq!(steps(&mut world), [StepKind::Claim, StepKind::Connect, StepKind::Import]);
    let running = status(&world, &DiskAttachmentStatus::default());
    assert_eq!((running.phase, running.import.map(|i| i.done)), (AttachPhase::Attaching, Some(false)));
    world.import_ends("a");
    let done = status(&world, &DiskAttachmentStatus::default());
    assert_eq!((done.phase, done.import.map(|i| i.done)), (AttachPhase::Attached, Some(true)));
    assert!(conditions::is_true(&done.conditions, conditions::IMPORTED));

    // The status says so even after a reboot: nothing is written twice.
    let a = world.attachments.get_mut("a").expect("there");
    a.import_done = Some(ImportDone { bytes: MIB, checksum: "sha256:00".into() });
    world.reboot_dpu(false);
    world.sync();
    assert_eq!(steps(&mut world), []);
}

#[test]
fn a_nic_keeps_what_was_seen_of_its_guest_over_a_restart() {
    let mut world = granted(1);
    steps(&mut world);
    let seen = Guest { first_packet_at: Some(world.now), answered_at: Some(world.now), answered_address: None };
    let mut observed = world.observed(false);
    observed.guests.insert("a".into(), seen);
    let attachment = attachment("a", function(1));
    let report = |observed: &Observed| plan(observed).items[0].report.clone().expect("known");
    let first = nic_status(&NicAttachmentStatus::default(), &attachment, &report(&observed), world.now);
    assert!(first.guest.as_ref().is_some_and(|g| g.answered_at.is_some()));
    let second = nic_status(&first, &attachment, &report(&world.observed(false)), world.now);
    assert_eq!(second.guest, first.guest);
}

#[test]
fn a_host_that_missed_the_request_is_asked_again() {
    let mut world = granted(0);
    steps(&mut world);
    let a = world.attachments.get_mut("a").expect("there");
    (a.deleting, a.release) = (true, true);
    world.sync();
    world.round(None);
    world.round(None);
    assert_eq!(reason(&only(&world)), Some(Why::Waiting(Waiting::HostLettingGo)));
    world.now += SignedDuration::from_secs(10);
    assert_eq!(only(&world).step.map(|step| step.kind()), Some(StepKind::Hide));
    world.round(None);
    assert_eq!(only(&world).step, None);
}

#[test]
fn polls_only_while_something_moves() {
    let mut world = granted(0);
    steps(&mut world);
    assert_eq!(plan(&world.observed(false)).look_again, None);
    world.exposures[0].presence = Presence::Appearing;
    assert_eq!(plan(&world.observed(false)).look_again, Some(Duration::from_millis(250)));
    world.exposures[0].presence = Presence::Leaving;
    world.attachments.clear();
    world.sync();
    assert_eq!(plan(&world.observed(true)).look_again, Some(Duration::from_millis(250)), "an orphan leaves too");
}

#[test]
fn a_volume_that_no_connector_understands_is_blocked() {
    let world = {
        let mut world = granted(0);
        world.round(None);
        world
    };
    let mut observed = world.observed(false);
    observed.connections.clear();
    let item = plan(&observed).items.remove(0);
    assert_eq!(reason(&item), Some(Why::Blocked(Blocked::NoConnector)));
    observed.connections.insert(DRIVER.to_owned(), Seen::Unknown);
    let item = plan(&observed).items.remove(0);
    assert_eq!(reason(&item), Some(Why::Waiting(Waiting::ConnectorUnknown)));
}
