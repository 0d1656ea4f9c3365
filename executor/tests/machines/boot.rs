//! What a machine's plan makes of what a BMC shows of booting. Which option is meant: `planner/tests/boot_options`.

use super::growth::running;
use api::conditions;
use api::labels;
use jiff::Timestamp;
use planner::host::{BootChange, BootMode, BootOverride, BootSource, HostObserved, Lack};
use planner::machine::observed::Observed;
use planner::machine::{Action, Disruptive, Plan, plan};
use planner::seen::Seen;
use std::sync::Arc;

const SLOT: &str = "Boot0001";

/// A machine that runs, of which the BMC shows something else.
fn seen(change: impl FnOnce(&mut HostObserved)) -> (Observed, Timestamp) {
    let world = running();
    let mut o = world.observe("a").expect("there");
    let mut host = o.bmc.host.fresh().expect("read").clone();
    change(&mut host);
    o.bmc.host = Seen::Fresh(host);
    (o, world.now)
}

fn annotated(o: &mut Observed, key: &str, value: &str) {
    let hardware = Arc::make_mut(&mut o.hardware[0]);
    hardware.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

fn told(plan: &Plan) -> String {
    let condition = conditions::get(&plan.status.conditions, conditions::BOOT_CONFIGURED).expect("told");
    format!("{}: {}", condition.reason, condition.message)
}

fn change(plan: &Plan) -> Option<&BootChange> {
    match &plan.disruptive {
        Some(Disruptive::ConfigureBoot(change)) => Some(change),
        _ => None,
    }
}

fn first() -> BootChange {
    BootChange::First { reference: SLOT.to_owned() }
}

fn remembered(plan: &Plan) -> Option<&Option<String>> {
    plan.actions.iter().find_map(|action| match action {
        Action::RememberBootPath { path, .. } => Some(path),
        _ => None,
    })
}

#[test]
fn an_order_that_waits_for_a_post_is_enough() {
    let reversed = |host: &mut HostObserved| host.boot.order.reverse();
    let (o, now) = seen(reversed);
    assert_eq!(change(&plan(&o, now)), Some(&first()));
    let (o, now) = seen(|host| {
        reversed(host);
        host.boot.pending = Some(vec![SLOT.to_owned(), "Boot0003".to_owned()]);
    });
    assert_eq!(change(&plan(&o, now)), None);
    assert!(told(&plan(&o, now)).starts_with("BootOrderSet"), "{}", told(&plan(&o, now)));
}

#[test]
fn without_its_option_nothing_is_set_and_all_options_are_told() {
    let (o, now) = seen(|host| host.boot.options.retain(|option| option.reference != SLOT));
    let plan = plan(&o, now);
    assert!(plan.disruptive.is_none(), "{:?}", plan.disruptive);
    let told = told(&plan);
    assert!(told.starts_with("BootOptionNotListed") && told.contains("Boot0003 \"UEFI PXEv4"), "{told}");
}

#[test]
fn any_disk_is_taken_by_an_administrators_word_alone() {
    let bare = |host: &mut HostObserved| {
        (host.boot.order, host.boot.options) = (Vec::new(), Vec::new());
        host.lacks = [Lack::BootOptions, Lack::BootOrder].into();
        host.boot.allowed_always = vec![BootSource::Hdd];
    };
    let (mut o, now) = seen(bare);
    assert!(told(&plan(&o, now)).starts_with("BootOrderUnsupported"), "{}", told(&plan(&o, now)));
    annotated(&mut o, labels::BOOT_OPTION, "Hdd");
    let always = BootChange::Always { source: BootSource::Hdd, mode: BootMode::Uefi };
    assert_eq!(change(&plan(&o, now)), Some(&always));
    let (mut o, now) = seen(|host| {
        bare(host);
        host.boot.allowed_always.clear();
    });
    annotated(&mut o, labels::BOOT_OPTION, "Hdd");
    assert!(told(&plan(&o, now)).contains("no continuous boot source override"), "{}", told(&plan(&o, now)));
}

#[test]
fn an_override_that_lasts_is_ended_and_a_setup_once_is_left() {
    let overridden = |source| Some(BootOverride { source, mode: Some(BootMode::Uefi) });
    let (o, now) = seen(|host| host.boot.always = overridden(BootSource::Hdd));
    assert_eq!(change(&plan(&o, now)), Some(&first()));
    let (o, now) = seen(|host| host.boot.next = overridden(BootSource::Hdd));
    assert_eq!(change(&plan(&o, now)), Some(&first()));
    let (o, now) = seen(|host| host.boot.next = overridden(BootSource::Setup));
    assert_eq!(change(&plan(&o, now)), None);
}

#[test]
fn a_path_is_learnt_where_the_disk_was_proven_and_forgotten_with_its_firmware() {
    let (mut o, now) = seen(|host| host.firmware_version = Some("1.8.2".to_owned()));
    // Of the firmware without a version there is a record already.
    let learnt = remembered(&plan(&o, now)).cloned().flatten().expect("learnt anew");
    assert!(learnt.contains("PciRoot(0x0)/Pci(0x2,0x0)/NVMe(0x1,"), "{learnt}");
    annotated(&mut o, labels::BOOT_PATH, &learnt);
    assert_eq!(remembered(&plan(&o, now)), None);
    // The name tells nothing any more.
    let unnamed = |host: &mut HostObserved| {
        let option = host.boot.options.iter_mut().find(|option| option.reference == SLOT).expect("listed");
        option.display_name = "UEFI OS".to_owned();
    };
    let (mut o, now) = seen(|host| {
        unnamed(host);
        host.firmware_version = Some("1.8.2".to_owned());
    });
    annotated(&mut o, labels::BOOT_PATH, &learnt);
    assert!(told(&plan(&o, now)).starts_with("BootOrderSet"), "{}", told(&plan(&o, now)));
    let (mut o, now) = seen(|host| {
        unnamed(host);
        host.firmware_version = Some("1.9.0".to_owned());
    });
    annotated(&mut o, labels::BOOT_PATH, &learnt);
    let plan = plan(&o, now);
    assert_eq!(remembered(&plan), Some(&None));
    assert!(told(&plan).starts_with("BootOptionNotListed"), "{}", told(&plan));
}

#[test]
fn what_is_refused_for_now_is_sent_again_a_little_later() {
    let (mut o, now) = seen(|host| host.boot.order.reverse());
    (o.bmc.boot_sent_at, o.bmc.boot_refused) = (Some(now), Some("the BIOS is in POST".to_owned()));
    o.bmc.read_at = Some(now + jiff::SignedDuration::from_millis(1));
    let early = plan(&o, now);
    assert_eq!(change(&early), None);
    assert!(told(&early).starts_with("BootOrderRefused") && told(&early).contains("in POST"), "{}", told(&early));
    let later = early.wake_at.expect("it is looked at again");
    assert_eq!(change(&plan(&o, later)), Some(&first()));
}
