//! A start into the firmware's setup: when it may begin, and when it is over.

use super::growth::running;
use api::attachment::GuestStatus;
use api::conditions;
use api::dpu::PowerDomain;
use api::machine::RunStrategy;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use planner::host::{BootChange, BootMode, BootOverride, BootSource, HostObserved, Post, PowerAction, PowerState};
use planner::machine::observed::Observed;
use planner::machine::{Disruptive, Plan, action_name, plan};
use planner::seen::Seen;
use std::sync::Arc;

const SLOT: &str = "Boot0001";
const SETUP: BootOverride = BootOverride { source: BootSource::Setup, mode: Some(BootMode::Uefi) };

/// All is presented to a host that is off, whose firmware does not list the disk and knows of its setup.
fn new_server(change: impl FnOnce(&mut HostObserved)) -> (Observed, Timestamp) {
    let world = running();
    let mut o = world.observe("a").expect("there");
    let mut host = o.bmc.host.fresh().expect("read").clone();
    host.power = PowerState::Off;
    host.boot.options.retain(|option| option.reference != SLOT);
    host.boot.order.retain(|reference| reference != SLOT);
    host.boot.allowed_next = vec![BootSource::Setup];
    change(&mut host);
    o.bmc.host = Seen::Fresh(host);
    for attachment in &mut o.nic_attachments {
        // No guest has answered.
        Arc::make_mut(attachment).status.as_mut().expect("told").guest = None;
    }
    let status = Arc::make_mut(&mut o.machine).status.get_or_insert_default();
    status.power.as_mut().expect("on record").last_action = Some(action_name(PowerAction::ForceOff).to_owned());
    (o, world.now)
}

/// It was powered on into its setup.
fn started(o: &mut Observed, at: Timestamp) {
    let status = Arc::make_mut(&mut o.machine).status.get_or_insert_default();
    let record = status.power.as_mut().expect("on record");
    (record.in_setup, record.setup_starts) = (true, 1);
    record.last_action = Some(action_name(PowerAction::On).to_owned());
    record.last_action_at = Some(MicroTime(at));
}

fn reason(plan: &Plan) -> &str {
    &conditions::get(&plan.status.conditions, conditions::BOOT_CONFIGURED).expect("told").reason
}

fn power(plan: &Plan) -> Option<(PowerAction, bool)> {
    match &plan.disruptive {
        Some(Disruptive::Power(order)) => Some((order.action, order.into_setup)),
        _ => None,
    }
}

#[test]
fn it_is_asked_for_and_read_back_before_the_power_on() {
    let (o, now) = new_server(|_| {});
    let setup = BootChange::Next { source: BootSource::Setup, mode: BootMode::Uefi };
    assert_eq!(plan(&o, now).disruptive, Some(Disruptive::ConfigureBoot(setup)));
    let (o, now) = new_server(|host| host.boot.next = Some(SETUP));
    let plan = plan(&o, now);
    assert_eq!((power(&plan), reason(&plan)), (Some((PowerAction::On, true)), "BootOptionAwaited"));
    let recorded = plan.status.power.expect("on record");
    assert_eq!((recorded.in_setup, recorded.setup_starts), (true, 1));
}

#[test]
fn it_begins_with_a_host_that_is_off_and_a_bmc_that_knows_of_it() {
    type Change = fn(&mut HostObserved);
    let changes: [(&str, Change); 3] = [
        ("on", |host| host.power = PowerState::On),
        ("classes of devices", |host| {
            for option in &mut host.boot.options {
                option.uefi_device_path = Some("VenHw_B2AD3248-4F72-4950-A966-CFE5062DB83A_05000000".to_owned());
            }
        }),
        ("no such override", |host| host.boot.allowed_next = vec![BootSource::Pxe]),
    ];
    for (what, change) in changes {
        let (o, now) = new_server(change);
        let plan = plan(&o, now);
        assert_eq!((&plan.disruptive, reason(&plan)), (&None, "BootOptionNotListed"), "{what}");
    }
}

/// All is presented by a DPU that shares its host's power, on another boot than the host was started for.
fn shared(change: impl FnOnce(&mut HostObserved)) -> (Observed, Timestamp) {
    let (mut o, now) = new_server(|host| {
        host.power = PowerState::On;
        change(host);
    });
    Arc::make_mut(&mut o.dpus[0].dpu).spec.power_domain = PowerDomain::Host;
    let status = Arc::make_mut(&mut o.machine).status.get_or_insert_default();
    status.power.as_mut().expect("on record").started_boot_id = Some("another".to_owned());
    (o, now)
}

#[test]
fn a_host_that_shares_its_power_is_reset_into_its_setup_once_its_dpu_presents_all() {
    let setup = BootChange::Next { source: BootSource::Setup, mode: BootMode::Uefi };
    let sent = SignedDuration::from_secs(30);
    let (mut o, now) = shared(|_| {});
    started(&mut o, now - sent);
    let planned = plan(&o, now);
    assert_eq!((&planned.disruptive, reason(&planned)), (&Some(Disruptive::ConfigureBoot(setup)), "BootOrderSetting"));
    let (mut o, now) = shared(|host| host.boot.next = Some(SETUP));
    started(&mut o, now - sent);
    let planned = plan(&o, now);
    assert_eq!((power(&planned), reason(&planned)), (Some((PowerAction::WarmReset, true)), "BootOptionAwaited"));
    let recorded = planned.status.power.expect("on record");
    assert_eq!((recorded.in_setup, recorded.setup_starts), (true, 2));
    assert_eq!(recorded.started_boot_id.as_deref(), Some("another"), "nothing was started yet");
    // Until then it is waited for.
    let attachment = Arc::make_mut(&mut o.disk_attachments[0]);
    attachment.status = None;
    let planned = plan(&o, now);
    assert_eq!((&planned.disruptive, reason(&planned)), (&None, "BootOptionAwaited"));
}

/// Of a host that was reset into its setup: whether the disk is listed, for how long the list is the same, what is told of POST.
#[test]
fn such_a_reset_ends_as_a_start_does_and_the_power_stays() {
    let secs = SignedDuration::from_secs;
    for (listed, post, same, expected) in [
        (true, Post::InSetup, secs(9), Err("BootOptionAwaited")),
        (true, Post::InSetup, secs(10), Ok(())),
        (false, Post::InSetup, secs(119), Err("BootOptionAwaited")),
        (false, Post::InSetup, secs(120), Err("BootOptionNotListed")),
        (false, Post::Unknown, secs(600), Err("BootOptionAwaited")),
    ] {
        let (mut o, now) = shared(|host| {
            host.post = post;
            if listed {
                let (o, _) = (running().observe("a").expect("there"), ());
                host.boot = o.bmc.host.fresh().expect("read").boot.clone();
            }
        });
        started(&mut o, now - secs(600));
        reset(&mut o, now - secs(600), true);
        o.bmc.listing_since = Some(now - same);
        let planned = plan(&o, now);
        match expected {
            Ok(()) => assert_eq!(power(&planned), Some((PowerAction::WarmReset, false)), "{post:?} {same:#}"),
            Err(why) => assert_eq!((&planned.disruptive, reason(&planned)), (&None, why), "{post:?} {same:#}"),
        }
    }
}

/// A reset is on record before it is sent, and may never have been.
#[test]
fn a_reset_into_the_setup_that_may_be_lost_is_sent_again() {
    for (since, is_again) in [(29, false), (31, true)] {
        let (mut o, now) = shared(|host| host.boot.next = Some(SETUP));
        let sent = now - SignedDuration::from_secs(since);
        started(&mut o, sent);
        reset(&mut o, sent, false);
        let expected = is_again.then_some((PowerAction::WarmReset, true));
        assert_eq!(power(&plan(&o, now)), expected, "after {since} s");
    }
}

/// A system that nobody has started through us runs there, and is reset anyway: into the setup, once the list stands still.
#[test]
fn a_host_that_was_on_before_its_machine_is_reset_into_its_setup() {
    for (same, expected) in [(59, None), (60, Some((PowerAction::WarmReset, true)))] {
        let (mut o, now) = shared(|host| host.boot.next = Some(SETUP));
        Arc::make_mut(&mut o.machine).status.as_mut().expect("there").power = None;
        o.bmc.listing_since = Some(now - SignedDuration::from_secs(same));
        let planned = plan(&o, now);
        assert_eq!((power(&planned), reason(&planned)), (expected, "BootOptionAwaited"), "{same} s");
    }
}

/// Its DPU has presented nothing in the POST in which it gets its power: whatever the firmware finds then is not booted.
#[test]
fn a_host_that_shares_its_power_is_powered_on_into_its_setup() {
    let off = |next: Option<BootOverride>, allowed: &[BootSource]| {
        let world = running();
        let mut o = world.observe("a").expect("there");
        let mut host = o.bmc.host.fresh().expect("read").clone();
        host.power = PowerState::Off;
        (host.boot.next, host.boot.allowed_next) = (next, allowed.to_vec());
        o.bmc.host = Seen::Fresh(host);
        let dpu = &mut o.dpus[0];
        Arc::make_mut(&mut dpu.dpu).spec.power_domain = PowerDomain::Host;
        dpu.silent = true;
        Arc::make_mut(&mut o.machine).status.as_mut().expect("there").power = None;
        (o, world.now)
    };
    let setup = BootChange::Next { source: BootSource::Setup, mode: BootMode::Uefi };
    let (o, now) = off(None, &[BootSource::Setup]);
    assert_eq!(plan(&o, now).disruptive, Some(Disruptive::ConfigureBoot(setup)));
    let (o, now) = off(Some(SETUP), &[BootSource::Setup]);
    let planned = plan(&o, now);
    assert_eq!((power(&planned), reason(&planned)), (Some((PowerAction::On, true)), "BootOrderSet"));
    // A BMC that does not offer it, and one that does not take it.
    let (o, now) = off(None, &[BootSource::Pxe]);
    assert_eq!(power(&plan(&o, now)), Some((PowerAction::On, false)));
    let (mut o, now) = off(None, &[BootSource::Setup]);
    o.bmc.boot_attempts = 3;
    assert_eq!(power(&plan(&o, now)), Some((PowerAction::On, false)));
}

fn reset(o: &mut Observed, at: Timestamp, accepted: bool) {
    o.bmc.accepted_at = None;
    let status = Arc::make_mut(&mut o.machine).status.get_or_insert_default();
    let record = status.power.as_mut().expect("on record");
    record.setup_starts = 2;
    record.last_action = Some(action_name(PowerAction::WarmReset).to_owned());
    record.last_action_at = Some(MicroTime(at));
    record.last_action_accepted_at = accepted.then_some(MicroTime(at));
}

/// A BMC may accept the reset that is to start the host from its disk, and do nothing.
#[test]
fn a_host_that_its_bmc_did_not_reset_is_told_of() {
    let mins = SignedDuration::from_mins;
    for (post, since, read, expected) in [
        (Post::InSetup, mins(19), mins(0), "True HostPoweredOn"),
        (Post::InSetup, mins(21), mins(0), "False LeftInSetup"),
        // It was in its setup when it was read last.
        (Post::InSetup, mins(21), mins(2), "True HostPoweredOn"),
        (Post::Done, mins(21), mins(0), "True HostPoweredOn"),
        (Post::Unknown, mins(21), mins(0), "True HostPoweredOn"),
    ] {
        let (mut o, now) = shared(|host| {
            host.post = post;
            host.boot = running().observe("a").expect("there").bmc.host.fresh().expect("read").boot.clone();
        });
        reset(&mut o, now - since, true);
        let boot_id = o.dpus[0].boot_id().map(str::to_owned);
        let status = Arc::make_mut(&mut o.machine).status.as_mut().expect("there");
        status.power.as_mut().expect("on record").started_boot_id = boot_id;
        o.bmc.read_at = Some(now - read);
        let planned = plan(&o, now);
        let told = conditions::get(&planned.status.conditions, conditions::POWERED_ON).expect("told");
        assert_eq!(format!("{} {}", told.status, told.reason), expected, "{post:?}, {since:#} after the reset");
        assert_eq!(power(&planned), None, "nothing is reset again, or powered off");
        assert_eq!(planned.bmc >= planner::machine::BmcNeed::Now, read == mins(2), "{post:?} {since:#}: it is read");
    }
}

/// It was started, whatever was asked of the firmware; and is asked before its power is taken.
#[test]
fn a_guest_that_answers_was_started() {
    for (post, is_started) in [(Post::Unknown, true), (Post::Done, true), (Post::InSetup, false)] {
        let (mut o, now) = new_server(|host| (host.power, host.post) = (PowerState::On, post));
        let sent = now - SignedDuration::from_secs(30);
        started(&mut o, sent);
        for attachment in &mut o.nic_attachments {
            let status = Arc::make_mut(attachment).status.as_mut().expect("told");
            let answered_at = Some(MicroTime(sent + SignedDuration::from_secs(20)));
            status.guest = Some(GuestStatus { answered_at, ..GuestStatus::default() });
        }
        assert_eq!(reason(&plan(&o, now)) != "BootOptionAwaited", is_started, "{post:?}");
        assert_eq!(plan(&o, now).status.power.expect("on record").in_setup, !is_started, "{post:?}");
        Arc::make_mut(&mut o.machine).spec.run_strategy = RunStrategy::Halted;
        let action = if is_started { PowerAction::SoftOff } else { PowerAction::ForceOff };
        assert_eq!(power(&plan(&o, now)), Some((action, false)), "{post:?}");
    }
}

#[test]
fn a_host_that_comes_on_is_waited_for() {
    let (mut o, now) = new_server(|_| {});
    started(&mut o, now);
    let plan = plan(&o, now);
    assert_eq!((&plan.disruptive, reason(&plan)), (&None, "BootOptionAwaited"));
    assert!(plan.bmc > planner::machine::BmcNeed::Slow, "it is read");
}

#[test]
fn it_ends_by_a_list_that_stands_still_or_by_the_time() {
    let secs = SignedDuration::from_secs;
    let listed = |host: &mut HostObserved| {
        let world = running();
        let o = world.observe("a").expect("there");
        host.boot.options.clone_from(&o.bmc.host.fresh().expect("read").boot.options);
    };
    // Whether the disk is listed, what is told of POST, for how long both were so, and for how long the host is on.
    for (is_listed, post, same, on, over) in [
        (true, Post::InSetup, secs(9), secs(60), false),
        (true, Post::InSetup, secs(10), secs(60), true),
        (true, Post::Unknown, secs(59), secs(60), false),
        (true, Post::Unknown, secs(60), secs(60), true),
        (true, Post::Running, secs(299), secs(600), false),
        (true, Post::Running, secs(300), secs(600), true),
        (false, Post::Done, secs(119), secs(600), false),
        (false, Post::Done, secs(120), secs(600), true),
        (false, Post::Unknown, secs(1199), secs(1199), false),
        (false, Post::Unknown, secs(0), secs(1200), true),
        // Firmware may be updated meanwhile.
        (false, Post::Running, secs(2399), secs(2399), false),
        (false, Post::Running, secs(0), secs(2400), true),
    ] {
        let (mut o, now) = new_server(|host| {
            host.power = PowerState::On;
            host.post = post;
            if is_listed {
                listed(host);
            }
        });
        started(&mut o, now - on);
        o.bmc.listing_since = Some(now - same);
        let plan = plan(&o, now);
        let expected = over.then_some((PowerAction::ForceOff, false));
        assert_eq!(power(&plan), expected, "{is_listed} {post:?} {same:#} {on:#}");
        assert_eq!(reason(&plan), "BootOptionAwaited");
        assert!(plan.status.power.expect("on record").in_setup, "until it is off");
    }
}

/// The override that no start has used up is ended with the order that is set.
#[test]
fn an_override_that_is_left_is_ended() {
    for starts in [0, 1] {
        let world = running();
        let mut o = world.observe("a").expect("there");
        let mut host = o.bmc.host.fresh().expect("read").clone();
        (host.power, host.boot.next) = (PowerState::Off, Some(SETUP));
        o.bmc.host = Seen::Fresh(host);
        let status = Arc::make_mut(&mut o.machine).status.get_or_insert_default();
        status.power.as_mut().expect("on record").setup_starts = starts;
        let first = Some(Disruptive::ConfigureBoot(BootChange::First { reference: SLOT.to_owned() }));
        let sent = plan(&o, world.now).disruptive;
        // One that somebody else asked for is left to the next start.
        assert_eq!(sent == first, starts > 0, "{sent:?}");
    }
}
