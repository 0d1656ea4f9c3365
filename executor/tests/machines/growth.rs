//! Who completes a claim that has grown, by example.

use super::world::{SHARED, World};
use api::conditions;
use api::quantity::quantity;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimCondition};
use planner::machine::{Action, Plan, plan};

const GIB: u64 = 1 << 30;

/// A machine on the first server with everything presented; its root claim is `a-root`.
pub(super) fn running() -> World {
    let mut world = World::new();
    world.machine("a", true);
    world.hardware.remove("hw-2");
    for _ in 0..40 {
        world.step();
        world.bind_claims();
        round(&mut world);
    }
    assert!(world.disks.values().all(|disk| disk.spec.grant.is_some()), "not all is granted");
    world
}

pub(super) fn round(world: &mut World) -> Plan {
    let o = world.observe("a").expect("there");
    let plan = plan(&o, world.now);
    world.carry_out(&o, &plan, usize::MAX);
    plan
}

/// The claim asks for 2 GiB of which it says that it has one.
fn asks_for_more(claim: &mut PersistentVolumeClaim, type_: &str, message: &str) {
    let spec = claim.spec.get_or_insert_default();
    let resources = spec.resources.get_or_insert_default();
    resources.requests = Some([("storage".to_owned(), quantity(2 * GIB))].into());
    let status = claim.status.get_or_insert_default();
    status.capacity = Some([("storage".to_owned(), quantity(GIB))].into());
    status.conditions = Some(vec![PersistentVolumeClaimCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        message: Some(message.to_owned()),
        ..PersistentVolumeClaimCondition::default()
    }]);
}

fn stored(world: &mut World, disk: &str, bytes: u64) {
    let attachment = world.disks.values_mut().find(|a| a.spec.disk_name == disk).expect("attached");
    attachment.status.get_or_insert_default().volume_capacity = Some(quantity(bytes));
}

fn completes(plan: &Plan) -> Vec<&str> {
    let claim = |action: &'_ Action| match action {
        Action::CompleteExpansion { target, .. } => Some(target.name.clone()),
        _ => None,
    };
    let names: Vec<String> = plan.actions.iter().filter_map(claim).collect();
    names.iter().map(|name| if name == "a-root" { "a-root" } else { "another" }).collect()
}

#[test]
fn a_claim_is_completed_natively_once_the_storage_has_what_it_asks_for() {
    let mut world = running();
    let disk = &mut world.machines.get_mut("a").expect("there").spec.disks[0];
    disk.size = Some(quantity(2 * GIB));
    asks_for_more(world.claims.get_mut("a-root").expect("made"), "FileSystemResizePending", "");
    let waits = plan(&world.observe("a").expect("there"), world.now);
    assert_eq!(completes(&waits), Vec::<&str>::new(), "the agent has not seen it");
    stored(&mut world, "root", GIB);
    assert_eq!(completes(&plan(&world.observe("a").expect("there"), world.now)), Vec::<&str>::new());
    stored(&mut world, "root", 2 * GIB);
    assert_eq!(completes(&plan(&world.observe("a").expect("there"), world.now)), ["a-root"]);
}

#[test]
fn kubelet_completes_what_kubelet_connects() {
    let mut world = running();
    asks_for_more(world.claims.get_mut(SHARED).expect("the user's own"), "FileSystemResizePending", "");
    stored(&mut world, "data", 2 * GIB);
    assert_eq!(completes(&plan(&world.observe("a").expect("there"), world.now)), Vec::<&str>::new());
}

#[test]
fn a_volume_that_grows_offline_only_says_so_and_is_given_back_by_a_host_that_is_off() {
    let mut world = running();
    world.machines.get_mut("a").expect("there").spec.disks[0].size = Some(quantity(2 * GIB));
    let message = "rpc error: code = FailedPrecondition desc = volume is in use";
    asks_for_more(world.claims.get_mut("a-root").expect("made"), "ControllerResizeError", message);
    let says = plan(&world.observe("a").expect("there"), world.now);
    let said = conditions::get(&says.status.conditions, conditions::RESTART_REQUIRED).expect("a condition");
    assert_eq!(said.reason, "ExpandNeedsStop");
    let releases = |plan: &Plan| plan.actions.iter().any(|action| matches!(action, Action::ReleaseDisk { .. }));
    assert!(!releases(&says), "nothing is taken from a host that is on");
    world.powered("dpu-1", planner::host::PowerState::Off);
    assert!(releases(&plan(&world.observe("a").expect("there"), world.now)));
}
