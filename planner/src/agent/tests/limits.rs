//! Limits by example: asked for, changed, taken away, refused.

use super::examples::{granted, only, reason, status, steps};
use super::world::World;
use crate::agent::*;
use crate::exposure::Limits;
use api::attachment::DiskAttachmentStatus;
use api::conditions;

const MIB: u64 = 1 << 20;

fn iops(thousands: u64) -> Limits {
    Limits { iops: Some(1000 * thousands), ..Limits::default() }
}

fn ask(world: &mut World, limits: Limits) {
    world.attachments.get_mut("a").expect("there").limits = limits;
    world.sync();
}

fn said(world: &World) -> Option<(String, String, String)> {
    let status = status(world, &DiskAttachmentStatus::default());
    let limited = conditions::get(&status.conditions, conditions::LIMITED)?;
    Some((limited.status.clone(), limited.reason.clone(), limited.message.clone()))
}

#[test]
fn a_disk_is_held_to_what_is_asked_for_and_let_go_again() {
    let mut world = granted(0);
    ask(&mut world, iops(20));
    assert_eq!(steps(&mut world), [StepKind::Claim, StepKind::Connect, StepKind::Expose], "limited from the start");
    assert_eq!(world.exposures[0].limits, iops(20));
    let limited = status(&world, &DiskAttachmentStatus::default());
    assert_eq!(limited.qos, Some(iops(20)));
    assert_eq!(said(&world), Some(("True".into(), "Limited".into(), "iops 20000".into())));

    ask(&mut world, Limits { read_mib: Some(7), ..iops(5) });
    assert_eq!(steps(&mut world), [StepKind::Limit]);
    assert_eq!(world.exposures[0].limits, Limits { read_mib: Some(7), ..iops(5) });
    ask(&mut world, Limits::default());
    assert_eq!(steps(&mut world), [StepKind::Limit]);
    let free = status(&world, &limited);
    assert_eq!((free.qos, said(&world)), (None, None));
}

#[test]
fn the_dpus_own_limits_stay_an_upper_bound() {
    let mut world = granted(0);
    world.bounds = Limits { bandwidth_mib: Some(100), ..iops(10) };
    ask(&mut world, iops(20));
    steps(&mut world);
    assert_eq!(world.exposures[0].limits, world.bounds);
    assert_eq!(
        said(&world).map(|(status, ..)| status),
        Some("True".to_owned()),
        "it is held to less than was asked for"
    );
    ask(&mut world, iops(5));
    steps(&mut world);
    assert_eq!(world.exposures[0].limits, Limits { bandwidth_mib: Some(100), ..iops(5) });
    // The next agent of this DPU has other limits: they hold for what is presented already.
    world.restart_agent();
    world.bounds = iops(2);
    world.sync();
    assert_eq!(steps(&mut world), [StepKind::Limit]);
    assert_eq!(world.exposures[0].limits, iops(2));
}

#[test]
fn without_the_api_server_the_last_limits_hold() {
    let mut world = granted(0);
    steps(&mut world);
    ask(&mut world, iops(3));
    steps(&mut world);
    world.api_down = true;
    world.restart_agent();
    assert_eq!(steps(&mut world), [], "a restart touches nothing");
    world.exposures.clear();
    assert_eq!(steps(&mut world), [StepKind::Expose], "the target crashed");
    assert_eq!(world.exposures[0].limits, iops(3));
}

#[test]
fn what_cannot_be_limited_says_so_and_stops_nothing_else() {
    let mut world = granted(0);
    world.limits_no_reading = true;
    world.volume_bytes = 2 * MIB;
    let asked = Limits { read_mib: Some(7), ..Limits::default() };
    ask(&mut world, asked);
    assert_eq!(steps(&mut world), [StepKind::Claim, StepKind::Connect, StepKind::Expose, StepKind::Limit]);
    let item = only(&world);
    assert_eq!((&item.step, reason(&item)), (&None, None), "it is presented, and not tried for ever");
    assert_eq!(said(&world), Some(("False".into(), "LimitsUnsupported".into(), "refused".into())));
    assert_eq!(status(&world, &DiskAttachmentStatus::default()).qos, None);

    // A size that needs a power cycle beside it: neither hides the other, and neither is tried for ever.
    world.connections[0].size_bytes = 4 * MIB;
    world.resizes_offline_only = true;
    world.attachments.get_mut("a").expect("there").size_bytes = Some(4 * MIB);
    world.sync();
    assert_eq!(steps(&mut world), [StepKind::Resize]);
    assert_eq!(reason(&only(&world)), Some(Why::Blocked(Blocked::ResizeNeedsPowerCycle)));
    assert_eq!(said(&world).map(|(_, reason, _)| reason), Some("LimitsUnsupported".to_owned()));

    ask(&mut world, iops(1));
    assert_eq!(steps(&mut world), [StepKind::Limit], "another class is tried");
    assert_eq!(world.exposures[0].limits, iops(1));
}
