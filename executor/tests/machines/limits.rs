//! What a claim's class allows, and what the machine's user is told of it.

use super::growth::{round, running};
use super::world::{DRIVER, SHARED, World};
use api::conditions::{self, ConditionStatus};
use api::{DiskAttachment, Limits};
use planner::machine::{Action, Plan, plan};

fn iops(number: u64) -> Limits {
    Limits { iops: Some(number), ..Limits::default() }
}

/// The volume's driver has accepted the class.
fn has_class(world: &mut World, claim: &str, class: Option<&str>) {
    let status = world.claims.get_mut(claim).expect("made").status.get_or_insert_default();
    status.current_volume_attributes_class_name = class.map(str::to_owned);
}

fn class(world: &mut World, name: &str, driver: &str, parameters: &[(&str, &str)]) {
    let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    world.classes.insert(name.to_owned(), (driver.to_owned(), parameters));
}

fn root(world: &mut World) -> &mut DiskAttachment {
    world.disks.values_mut().find(|a| a.spec.disk_name == "root").expect("attached")
}

/// What the agent says.
fn says(world: &mut World, status: ConditionStatus, reason: &str) {
    let now = world.now;
    let attachment = root(world);
    attachment.metadata.generation = Some(attachment.metadata.generation.unwrap_or_default() + 1);
    let generation = attachment.metadata.generation;
    let all = &mut attachment.status.get_or_insert_default().conditions;
    conditions::set(all, conditions::LIMITED, status, reason, "why", generation, now);
}

fn look(world: &World) -> Plan {
    plan(&world.observe("a").expect("there"), world.now)
}

fn limits(plan: &Plan) -> Vec<Limits> {
    let limit = |action: &Action| match action {
        Action::LimitDisk { limits, .. } => Some(*limits),
        _ => None,
    };
    plan.actions.iter().filter_map(limit).collect()
}

fn told(plan: &Plan) -> Option<(&str, &str)> {
    let condition = conditions::get(&plan.status.conditions, conditions::DISKS_LIMITED)?;
    Some((&condition.status, &condition.reason))
}

#[test]
fn the_dpu_is_told_the_class_that_the_volume_has() {
    let mut world = running();
    assert_eq!((limits(&look(&world)), told(&look(&world))), (vec![], None));
    class(&mut world, "gold", DRIVER, &[("iops", "20000")]);
    has_class(&mut world, "a-root", Some("gold"));
    let first = round(&mut world);
    assert_eq!((limits(&first), told(&first)), (vec![iops(20_000)], Some(("False", "Limiting"))));
    assert_eq!(root(&mut world).spec.qos, Some(iops(20_000)));
    says(&mut world, ConditionStatus::True, "Limited");
    let kept = look(&world);
    assert_eq!((limits(&kept), told(&kept)), (vec![], Some(("True", "Limited"))));

    // What the agent said of the class before says nothing of this one.
    class(&mut world, "silver", DRIVER, &[("iops", "5000")]);
    has_class(&mut world, "a-root", Some("silver"));
    let changed = round(&mut world);
    assert_eq!((limits(&changed), told(&changed)), (vec![iops(5000)], Some(("False", "Limiting"))));
    says(&mut world, ConditionStatus::False, "LimitsUnsupported");
    let refused = look(&world);
    assert_eq!(told(&refused), Some(("False", "LimitsUnsupported")));
    assert!(conditions::is_true(&refused.status.conditions, conditions::DISKS_ATTACHED), "the disk is there");

    has_class(&mut world, "a-root", None);
    let taken = round(&mut world);
    assert_eq!((limits(&taken), told(&taken)), (vec![Limits::default()], None));
    assert_eq!(root(&mut world).spec.qos, None);
}

#[test]
fn a_class_that_cannot_be_read_changes_nothing_and_is_told() {
    let mut world = running();
    class(&mut world, "gold", DRIVER, &[("iops", "20000")]);
    has_class(&mut world, "a-root", Some("gold"));
    round(&mut world);
    for (name, driver, key, reason) in [
        ("gone", None, "", "ClassMissing"),
        ("odd", Some(DRIVER), "throughput", "ClassNotUnderstood"),
        ("foreign", Some("ebs.csi.aws.com"), "iops", "ClassNotUnderstood"),
    ] {
        if let Some(driver) = driver {
            class(&mut world, name, driver, &[(key, "1000")]);
        }
        has_class(&mut world, "a-root", Some(name));
        let plan = round(&mut world);
        assert_eq!((limits(&plan), told(&plan)), (vec![], Some(("False", reason))), "{name}");
        assert_eq!(root(&mut world).spec.qos, Some(iops(20_000)), "{name}");
    }
}

/// The classes that are asked for: of claims that are made, and of those that are there.
fn chosen(plan: &Plan) -> Vec<(String, Option<String>)> {
    let of = |action: &Action| match action {
        Action::ModifyClaim { target, class } => Some((target.name.clone(), Some(class.clone()))),
        Action::CreateClaim(claim) => {
            let class = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
            Some((claim.metadata.name.clone().unwrap_or_default(), class))
        }
        _ => None,
    };
    plan.actions.iter().filter_map(of).collect()
}

#[test]
fn a_claim_has_the_class_that_its_disk_names() {
    let mut world = World::new();
    world.machine("a", true);
    world.hardware.remove("hw-2");
    let names = |world: &mut World, class: Option<&str>| {
        world.machines.get_mut("a").expect("there").spec.disks[0].volume_attributes_class_name =
            class.map(str::to_owned);
    };
    let asks = |class: &str| vec![("a-root".to_owned(), Some(class.to_owned()))];
    class(&mut world, "gold", DRIVER, &[("iops", "20000")]);
    class(&mut world, "silver", DRIVER, &[("iops", "5000")]);
    names(&mut world, Some("gold"));
    let mut made = Vec::new();
    for _ in 0..40 {
        world.step();
        world.bind_claims();
        made.extend(chosen(&round(&mut world)));
    }
    assert_eq!(made, asks("gold"), "the claim is made with it");
    assert_eq!(told(&look(&world)), Some(("False", "ModifyingVolume")));
    has_class(&mut world, "a-root", Some("gold"));
    let first = round(&mut world);
    assert_eq!((limits(&first), told(&first)), (vec![iops(20_000)], Some(("False", "Limiting"))));

    names(&mut world, Some("silver"));
    let changed = round(&mut world);
    assert_eq!((chosen(&changed), limits(&changed)), (asks("silver"), vec![]), "the volume has the class before");
    let waits = look(&world);
    assert_eq!((chosen(&waits), told(&waits).map(|told| told.0)), (vec![], Some("False")));
    has_class(&mut world, "a-root", Some("silver"));
    assert_eq!(limits(&round(&mut world)), [iops(5000)]);
    // What is not named, here or of a claim of the user's own, is not the machine's to choose.
    names(&mut world, None);
    has_class(&mut world, "a-root", Some("gold"));
    let own = look(&world);
    assert_eq!((chosen(&own), limits(&own)), (vec![], vec![iops(20_000)]));
}

#[test]
fn a_new_attachment_is_made_with_its_limits() {
    let mut world = World::new();
    class(&mut world, "gold", DRIVER, &[("iops", "20000")]);
    has_class(&mut world, SHARED, Some("gold"));
    world.machine("a", true);
    world.hardware.remove("hw-2");
    let made = (0..40).find_map(|_| {
        world.step();
        world.bind_claims();
        round(&mut world).actions.into_iter().find_map(|action| match action {
            Action::CreateDiskAttachment(attachment) if attachment.spec.disk_name == "data" => {
                Some(attachment.spec.qos)
            }
            _ => None,
        })
    });
    assert_eq!(made, Some(Some(iops(20_000))));
}
