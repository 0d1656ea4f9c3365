//! The eraser of a server with a DPU, where nobody can say what its host has.

use super::growth::{round, running};
use super::world::World;
use api::dpu::{Orphan, OrphanKind};
use api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use planner::erase::is_recorded;
use planner::machine::observed::{Observed, OrphanOn};
use planner::machine::{Action, Plan, plan};
use planner::reason::Waiting;

/// A machine whose claim says that the disks are erased is deleted, and its disks are gone from the host.
fn deleted() -> World {
    let mut world = running();
    let hardware = world.hardware.get_mut("hw-1").expect("there");
    let annotations = hardware.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::LOCAL_DISKS.to_owned(), "Erase".to_owned());
    let status = world.dpus.get_mut("dpu-1").expect("there").status.as_mut().expect("told");
    status.erasers = vec!["x86_64".to_owned()];
    let now = world.now;
    world.machines.get_mut("a").expect("there").metadata.deletion_timestamp = Some(Time(now));
    world
}

fn erases(plan: &Plan) -> bool {
    let is_one = |action: &Action| match action {
        Action::CreateDiskAttachment(made) => made.spec.eraser.is_some(),
        Action::RecordErase { .. } | Action::GrantDisk { .. } => true,
        _ => false,
    };
    plan.disruptive.is_some() || plan.actions.iter().any(is_one)
}

fn ready(plan: &Plan) -> &str {
    let ready = api::conditions::get(&plan.status.conditions, api::conditions::READY);
    ready.map(|ready| ready.reason.as_str()).unwrap_or_default()
}

type Change = fn(&mut Observed);

fn has_orphan(o: &mut Observed) {
    let dpu = o.dpus.iter().find(|dpu| dpu.name() == "dpu-1").expect("there").clone();
    let orphan = Orphan { kind: OrphanKind::Disk, uid: "unknown".to_owned(), epoch: 1, ..Orphan::default() };
    o.own.orphans.push(OrphanOn { dpu, orphan });
}

fn went_back(o: &mut Observed) {
    o.own.no_grants = Some(Waiting::ExposuresUnknown { dpu: "dpu-2".to_owned() }.into());
}

#[test]
fn nothing_is_powered_off_or_erased_under_what_nobody_can_explain() {
    let cases: [(&str, Change); 2] = [("HardwareHasOrphans", has_orphan), ("ExposuresUnknown", went_back)];
    let mut world = deleted();
    let mut asked = 0;
    for _ in 0..120 {
        world.step();
        let o = world.observe("a").expect("it waits for its eraser");
        if erases(&plan(&o, world.now)) && o.disk_attachments.iter().all(|a| a.spec.eraser.is_some()) {
            for (reason, change) in cases {
                let mut o = o.clone();
                change(&mut o);
                let plan = plan(&o, world.now);
                assert!(!erases(&plan), "{reason}: {plan:?}");
                assert_eq!(ready(&plan), reason);
            }
            asked += 1;
        }
        round(&mut world);
    }
    let begun = world.hardware.get("hw-1").is_some_and(|hardware| is_recorded(&hardware.metadata));
    assert!(begun && asked >= 3, "asked {asked} times");
}
