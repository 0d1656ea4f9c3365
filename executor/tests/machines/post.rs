//! A disk that is added while the server's firmware is in POST.

use super::growth::running;
use super::world::World;
use api::conditions;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use planner::host::Post;
use planner::machine::{Action, Plan, plan};
use planner::seen::Seen;

/// A machine that was powered on at this moment, and a disk of it that nobody has granted yet.
fn added() -> World {
    let mut world = running();
    let now = world.now;
    let machine = world.machines.get_mut("a").expect("there");
    let power = machine.status.as_mut().and_then(|status| status.power.as_mut()).expect("it was powered on");
    power.last_action_at = Some(MicroTime(now));
    let data = world.disks.values_mut().find(|disk| disk.spec.disk_name == "data").expect("attached");
    data.spec.grant = None;
    world.now += SignedDuration::from_secs(60);
    world
}

fn plan_in(world: &World, post: Post) -> Plan {
    let mut o = world.observe("a").expect("there");
    let Seen::Fresh(host) = &mut o.bmc.host else { panic!("the BMC answers") };
    host.post = post;
    plan(&o, world.now)
}

fn waits_for_post(plan: &Plan) -> bool {
    let attached = conditions::get(&plan.status.conditions, conditions::DISKS_ATTACHED).expect("DisksAttached");
    attached.reason == "HostInPost"
}

fn grants(plan: &Plan) -> bool {
    plan.actions.iter().any(|action| matches!(action, Action::GrantDisk { .. }))
}

#[test]
fn it_is_granted_when_post_is_done() {
    let mut world = added();
    let plan = plan_in(&world, Post::Running);
    assert!(waits_for_post(&plan) && !grants(&plan), "{:?}", plan.actions);
    for post in [Post::Done, Post::Unknown] {
        assert!(!waits_for_post(&plan_in(&world, post)), "{post:?}");
    }
    world.now += SignedDuration::from_mins(20);
    assert!(!waits_for_post(&plan_in(&world, Post::Running)), "a BMC that never tells of the end");
}

/// Whoever reboots it: POST begins anew, a day after the machine was powered on.
#[test]
fn a_guest_that_reboots_is_in_post_too() {
    let mut world = added();
    world.now += SignedDuration::from_hours(24);
    let waits = |world: &World, ago: i64| {
        let mut o = world.observe("a").expect("there");
        let Seen::Fresh(host) = &mut o.bmc.host else { panic!("the BMC answers") };
        (host.post, o.own.bmc.post_since) = (Post::Running, Some(world.now - SignedDuration::from_mins(ago)));
        let plan = plan(&o, world.now);
        assert_ne!(waits_for_post(&plan), grants(&plan));
        waits_for_post(&plan)
    };
    assert!(waits(&world, 2));
    assert!(!waits(&world, 21), "a BMC that never tells of the end");
}

#[test]
fn a_machine_that_has_all_is_not_looked_at() {
    assert!(!waits_for_post(&plan_in(&running(), Post::Running)));
}
