use super::*;
use crate::meta::Target;
use crate::verbs::observed::{GroupClass, GroupSeen};
use api::machine::{BareMetalMachineSpec, BareMetalMachineStatus, Disk, MachineState, PowerStatus};
use api::verbs::OperationPhase;
use api::verbs::snapshot::MachineSnapshotSpec;
use api::{BareMetalMachine, MachineSnapshot, labels};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

fn claim(name: &str) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.name = Some(name.to_owned());
    claim.spec = Some(PersistentVolumeClaimSpec {
        volume_mode: Some("Block".to_owned()),
        storage_class_name: Some("fast".to_owned()),
        ..PersistentVolumeClaimSpec::default()
    });
    claim.status =
        Some(PersistentVolumeClaimStatus { phase: Some("Bound".to_owned()), ..PersistentVolumeClaimStatus::default() });
    claim
}

/// A machine with these disks, running or stopped, and a snapshot that is asked for.
fn world(disks: &[&str], state: MachineState) -> Observed {
    let disk = |name: &&str| Disk { name: (*name).to_owned(), ..Disk::default() };
    let spec = BareMetalMachineSpec { disks: disks.iter().map(disk).collect(), ..BareMetalMachineSpec::default() };
    let mut machine = BareMetalMachine::new("bm", spec);
    machine.metadata.uid = Some("m-1".into());
    machine.metadata.resource_version = Some("7".into());
    machine.metadata.generation = Some(1);
    let power = if state == MachineState::Stopped { "Off" } else { "On" };
    machine.status = Some(BareMetalMachineStatus {
        observed_generation: Some(1),
        state: Some(state),
        power: Some(PowerStatus {
            state: power.into(),
            observed_at: MicroTime(at(0)),
            last_action: None,
            last_action_at: None,
            last_action_accepted_at: None,
            started_boot_id: None,
            started_for: None,
            netboot_by: None,
            boot_disk_reads: None,
            booted_elsewhere: false,
            in_setup: false,
            setup_starts: 0,
            agent_resets: 0,
        }),
        ..BareMetalMachineStatus::default()
    });
    let mut object =
        MachineSnapshot::new("s1", MachineSnapshotSpec { machine_name: "bm".into(), ..MachineSnapshotSpec::default() });
    object.metadata.uid = Some("s-1".into());
    object.metadata.generation = Some(1);
    object.metadata.finalizers = Some(vec![labels::FINALIZER_OPERATION.to_owned()]);
    let names = disks.iter().map(|disk| format!("bm-{disk}"));
    Observed {
        claims: names.map(|name| (name.clone(), Arc::new(claim(&name)))).collect(),
        object: Arc::new(object),
        machine: Some(Arc::new(machine)),
        ..Observed::default()
    }
}

/// The same, of whose disks a CSI driver can take a VolumeGroupSnapshot.
fn groupable(disks: &[&str]) -> Observed {
    let mut o = world(disks, MachineState::Running);
    o.drivers = disks.iter().map(|disk| (format!("bm-{disk}"), "one.example".to_owned())).collect();
    o.classes = vec![group_class("default", "one.example", true)];
    o
}

fn group_class(name: &str, driver: &str, is_default: bool) -> GroupClass {
    GroupClass { name: name.to_owned(), driver: driver.to_owned(), is_default }
}

/// Carries a plan out; what the storage does is the test's.
fn step(o: &mut Observed, now: Timestamp) -> Plan<MachineSnapshotStatus> {
    let plan = plan(o, now);
    Arc::make_mut(&mut o.object).status = Some(plan.status.clone());
    for action in &plan.actions {
        match action {
            Action::Lock(_) => lock(o, Some("MachineSnapshot/s1/s-1")),
            Action::Unlock(_) => lock(o, None),
            Action::CreateSnapshot(new) => {
                assert!(locked(o), "a snapshot is made without the lock");
                let seen = VolumeSnapshotSeen { ours: true, ..VolumeSnapshotSeen::default() };
                assert!(o.snapshots.insert(new.name.clone(), seen).is_none(), "made twice");
            }
            Action::LabelClaim(target) => put_label(o, &target.name, Some("s-1")),
            Action::UnlabelClaim(target) => put_label(o, &target.name, None),
            Action::CreateGroup(new) => {
                assert!(locked(o), "a group is made without the lock");
                assert_eq!(o.labelled.len(), o.claims.len(), "the group does not find every claim");
                assert!(o.group.is_none(), "made twice");
                assert_eq!((new.name.as_str(), new.class.as_str()), ("s1", "default"));
                let target = Target { uid: "g-1".to_owned(), name: new.name.clone(), ..Target::default() };
                o.group = Some(GroupSeen { target, ours: true, ..GroupSeen::default() });
            }
            Action::DeleteGroup(_) => o.group.as_mut().expect("there").deleting = true,
            Action::DeleteSnapshot(_) => o.snapshots.values_mut().for_each(|seen| seen.deleting = true),
            Action::RemoveFinalizer => {}
            other => panic!("{other:?}"),
        }
    }
    plan
}

fn put_label(o: &mut Observed, claim: &str, label: Option<&str>) {
    let claim = Arc::make_mut(o.claims.get_mut(claim).expect("there"));
    claim.metadata.labels = label.map(|label| [(labels::GROUP_SNAPSHOT.to_owned(), label.to_owned())].into());
    o.labelled = o.claims.values().filter(|claim| claim.metadata.labels.is_some()).cloned().collect();
}

/// What the snapshot controller does once the driver has taken the volumes of these claims.
fn take_members(o: &mut Observed, disks: &[&str]) {
    let uid = o.group.as_ref().expect("made").target.uid.clone();
    for disk in disks {
        let seen = VolumeSnapshotSeen {
            claim: Some(format!("bm-{disk}")),
            group_uid: Some(uid.clone()),
            taken: true,
            ..VolumeSnapshotSeen::default()
        };
        o.snapshots.insert(format!("snapshot-{disk}"), seen);
    }
}

fn lock(o: &mut Observed, lock: Option<&str>) {
    let machine = Arc::make_mut(o.machine.as_mut().expect("there"));
    machine.metadata.annotations = lock.map(|lock| [(labels::OPERATION.to_owned(), lock.to_owned())].into());
}

fn locked(o: &Observed) -> bool {
    o.machine.as_ref().is_some_and(|machine| crate::verbs::lock(&machine.metadata).is_some())
}

fn settle(o: &mut Observed, now: Timestamp) -> Plan<MachineSnapshotStatus> {
    for _ in 0..10 {
        let before = o.object.clone();
        let plan = step(o, now);
        if plan.actions.is_empty() && before.status == o.object.status {
            return plan;
        }
    }
    panic!("it does not come to rest: {:?}", o.object.status);
}

fn reason(plan: &Plan<MachineSnapshotStatus>) -> &str {
    plan.status.operation.conditions.first().map(|condition| condition.reason.as_str()).unwrap_or_default()
}

#[test]
fn a_running_machine_with_one_disk_is_cut_and_the_lock_goes_before_it_is_ready() {
    let mut o = world(&["root"], MachineState::Running);
    let waiting = settle(&mut o, at(1));
    assert_eq!((waiting.status.operation.phase, reason(&waiting)), (OperationPhase::Running, "SnapshotNotReady"));
    assert!(locked(&o) && waiting.wake_at == Some(at(301)));
    o.snapshots.values_mut().for_each(|seen| seen.taken = true);
    let taken = settle(&mut o, at(2));
    assert!(!locked(&o), "the machine is free once it is cut");
    assert_eq!((taken.status.operation.phase, taken.wake_at), (OperationPhase::Running, None));
    o.snapshots.values_mut().for_each(|seen| seen.ready = true);
    let ready = settle(&mut o, at(9000));
    assert_eq!((ready.status.operation.phase, reason(&ready)), (OperationPhase::Succeeded, "Succeeded"));
    assert_eq!(ready.status.consistency, Some(Consistency::Machine));
    let disk = &ready.status.disks[0];
    assert_eq!((disk.volume_snapshot_name.as_str(), disk.storage_class_name.as_deref()), ("s1-root", Some("fast")));
    o.snapshots.clear();
    assert_eq!(reason(&settle(&mut o, at(9001))), "SnapshotMissing", "somebody deleted it by hand");
}

#[test]
fn several_disks_of_a_running_machine_are_refused_until_it_stops_or_each_may_be_cut_by_itself() {
    let mut o = world(&["root", "data"], MachineState::Running);
    let refused = settle(&mut o, at(1));
    assert_eq!((refused.status.operation.phase, reason(&refused)), (OperationPhase::Pending, "SeveralDisksRun"));
    assert!(!locked(&o) && o.snapshots.is_empty());
    Arc::make_mut(&mut o.object).spec.consistency = Consistency::PerDisk;
    let each = settle(&mut o, at(2));
    assert_eq!((o.snapshots.len(), each.status.consistency), (2, Some(Consistency::PerDisk)));

    let mut o = world(&["root", "data"], MachineState::Stopped);
    let stopped = settle(&mut o, at(1));
    assert_eq!((o.snapshots.len(), stopped.status.consistency), (2, Some(Consistency::Machine)));
    assert!(stopped.status.machine_was_off);
}

#[test]
fn a_machine_that_is_off_is_not_started_before_all_is_cut() {
    let mut o = world(&["root", "data"], MachineState::Stopped);
    step(&mut o, at(1));
    assert!(locked(&o));
    let machine = Arc::make_mut(o.machine.as_mut().expect("there"));
    // Somebody asks for a start: the machine's plan waits, and this one goes on.
    machine.metadata.generation = Some(2);
    let why = crate::verbs::forbids_start(&machine.metadata).expect("forbidden");
    assert!(why.message().contains("MachineSnapshot 's1'"), "{why}");
    settle(&mut o, at(2));
    assert_eq!(o.snapshots.len(), 2);
    o.snapshots.values_mut().for_each(|seen| (seen.taken, seen.ready) = (true, true));
    assert_eq!(settle(&mut o, at(3)).status.operation.phase, OperationPhase::Succeeded);
    assert!(!locked(&o));
}

#[test]
fn a_storage_that_does_not_cut_does_not_keep_the_machine_for_ever() {
    let mut o = world(&["root", "data"], MachineState::Stopped);
    settle(&mut o, at(1));
    o.snapshots.values_mut().for_each(|seen| seen.error = Some("no space left".into()));
    assert_eq!(reason(&settle(&mut o, at(300))), "SnapshotFailed");
    let failed = settle(&mut o, at(301));
    assert_eq!((failed.status.operation.phase, reason(&failed)), (OperationPhase::Failed, "NotTakenInTime"));
    assert!(failed.status.operation.conditions[0].message.contains("no space left"));
    assert!(!locked(&o));
}

#[test]
fn another_operation_comes_first() {
    let mut o = world(&["root"], MachineState::Running);
    lock(&mut o, Some("MachineSnapshot/other/s-9"));
    let waiting = settle(&mut o, at(1));
    assert_eq!((waiting.status.operation.phase, reason(&waiting)), (OperationPhase::Pending, "MachineBusy"));
    assert!(o.snapshots.is_empty());
}

#[test]
fn what_cannot_be_taken_says_why() {
    let mut o = world(&["root"], MachineState::Running);
    o.machine = None;
    assert_eq!(reason(&settle(&mut o, at(1))), "MachineMissing");
    let mut o = world(&["root"], MachineState::Running);
    Arc::make_mut(o.claims.get_mut("bm-root").expect("there")).status = None;
    assert_eq!(reason(&settle(&mut o, at(1))), "ClaimPending");
    let mut o = world(&["root"], MachineState::Running);
    settle(&mut o, at(1));
    o.machine = None;
    let failed = settle(&mut o, at(2));
    assert_eq!((failed.status.operation.phase, reason(&failed)), (OperationPhase::Failed, "MachineDeleted"));
}

#[test]
fn a_deletion_follows_the_policy_and_gives_the_lock_back() {
    for policy in [DeletionPolicy::Delete, DeletionPolicy::Retain] {
        let mut o = world(&["root"], MachineState::Running);
        settle(&mut o, at(1));
        let object = Arc::make_mut(&mut o.object);
        object.spec.deletion_policy = policy;
        object.metadata.deletion_timestamp = Some(Time(at(2)));
        let mut last = Vec::new();
        for _ in 0..4 {
            last = step(&mut o, at(2)).actions;
        }
        assert_eq!(last, [Action::RemoveFinalizer]);
        assert!(!locked(&o));
        assert!(o.snapshots.values().all(|seen| seen.deleting == (policy == DeletionPolicy::Delete)));
    }
}

#[test]
fn several_disks_of_a_running_machine_are_taken_by_one_group() {
    let mut o = groupable(&["root", "data"]);
    let waiting = settle(&mut o, at(1));
    assert_eq!((waiting.status.operation.phase, reason(&waiting)), (OperationPhase::Running, "GroupSnapshotNotReady"));
    assert!(locked(&o) && waiting.status.disks.iter().all(|disk| disk.volume_snapshot_name.is_empty()));
    o.group.as_mut().expect("made").bound = true;
    take_members(&mut o, &["root"]);
    assert_eq!(reason(&settle(&mut o, at(2))), "GroupSnapshotNotReady", "one disk of two is no machine");
    assert!(locked(&o) && o.labelled.len() == 2);
    take_members(&mut o, &["data"]);
    let taken = settle(&mut o, at(3));
    assert!(
        taken.status.taken_at.is_some() && !locked(&o) && o.labelled.is_empty(),
        "the machine is free, no label is left"
    );
    assert_eq!(reason(&taken), "SnapshotNotReady");
    o.snapshots.values_mut().for_each(|seen| seen.ready = true);
    let ready = settle(&mut o, at(4));
    assert_eq!(
        (ready.status.operation.phase, ready.status.consistency),
        (OperationPhase::Succeeded, Some(Consistency::Machine))
    );
    assert!(!ready.status.machine_was_off);
    let names: Vec<&str> = ready.status.disks.iter().map(|disk| disk.volume_snapshot_name.as_str()).collect();
    assert_eq!(names, ["snapshot-root", "snapshot-data"]);
    o.snapshots.remove("snapshot-data");
    assert_eq!(reason(&settle(&mut o, at(5))), "SnapshotMissing");
}

#[test]
fn why_no_group_can_be_made_is_said() {
    type Change = fn(&mut Observed);
    let cases: [(&str, &str, Change); 6] = [
        ("no class", "driver 'one.example' of the disks has no default VolumeGroupSnapshotClass", |o| {
            o.classes.clear()
        }),
        ("not the default", "has no default", |o| o.classes[0].is_default = false),
        ("two defaults", "several default VolumeGroupSnapshotClasses: default, other", |o| {
            o.classes.push(group_class("other", "one.example", true));
        }),
        ("two drivers", "disk 'root' is of CSI driver 'one.example', disk 'data' of CSI driver 'two.example'", |o| {
            o.drivers.insert("bm-data".to_owned(), "two.example".to_owned());
        }),
        ("no CSI volume", "the volume of disk 'data' is not a CSI volume", |o| drop(o.drivers.remove("bm-data"))),
        ("another's class", "VolumeGroupSnapshotClass 'theirs' is of CSI driver 'two.example'", |o| {
            o.classes.push(group_class("theirs", "two.example", true));
            let class = &mut Arc::make_mut(&mut o.object).spec.volume_group_snapshot_class_name;
            *class = Some("theirs".to_owned());
        }),
    ];
    for (what, said, change) in cases {
        let mut o = groupable(&["root", "data"]);
        change(&mut o);
        let refused = settle(&mut o, at(1));
        assert_eq!((refused.status.operation.phase, reason(&refused)), (OperationPhase::Pending, "SeveralDisksRun"));
        let message = &refused.status.operation.conditions[0].message;
        assert!(message.contains(said), "{what}: {message}");
        assert!(!locked(&o) && o.group.is_none() && o.labelled.is_empty(), "{what}");
    }
}

#[test]
fn a_group_that_is_not_taken_in_time_leaves_no_label() {
    let mut o = groupable(&["root", "data"]);
    settle(&mut o, at(1));
    o.group.as_mut().expect("made").error = Some("written without a pause".to_owned());
    let failing = settle(&mut o, at(2));
    assert_eq!(reason(&failing), "GroupSnapshotFailed");
    let failed = settle(&mut o, at(301));
    assert_eq!((failed.status.operation.phase, reason(&failed)), (OperationPhase::Failed, "NotTakenInTime"));
    assert!(failed.status.operation.conditions[0].message.contains("written without a pause"));
    assert!(!locked(&o) && o.labelled.is_empty());
}

#[test]
fn a_group_of_somebody_elses_is_not_taken() {
    let mut o = groupable(&["root", "data"]);
    o.group = Some(GroupSeen::default());
    assert_eq!(reason(&settle(&mut o, at(1))), "GroupSnapshotNotOurs");
    take_members(&mut o, &["root", "data"]);
    assert_eq!(reason(&settle(&mut o, at(2))), "GroupSnapshotNotOurs");
    Arc::make_mut(&mut o.object).metadata.deletion_timestamp = Some(Time(at(3)));
    for _ in 0..4 {
        step(&mut o, at(3));
    }
    assert!(!o.group.expect("it is not ours").deleting);
}

#[test]
fn a_group_is_deleted_once_its_content_is_known_and_kept_by_policy() {
    let deleted = |policy| {
        let mut o = groupable(&["root", "data"]);
        settle(&mut o, at(1));
        let object = Arc::make_mut(&mut o.object);
        object.spec.deletion_policy = policy;
        object.metadata.deletion_timestamp = Some(Time(at(2)));
        o
    };
    let mut o = deleted(DeletionPolicy::Delete);
    let waiting = settle(&mut o, at(2));
    assert!(o.labelled.is_empty() && waiting.wake_at == Some(at(301)), "{waiting:?}");
    assert!(!o.group.as_ref().expect("there").deleting, "its content would be nobody's");
    let mut late = o.clone();
    o.group.as_mut().expect("there").bound = true;
    step(&mut late, at(301));
    for mut o in [o, late] {
        let mut last = Vec::new();
        for _ in 0..4 {
            last = step(&mut o, at(302)).actions;
        }
        assert!(o.group.as_ref().expect("there").deleting && !locked(&o));
        assert_eq!(last, [Action::RemoveFinalizer]);
    }
    let mut o = deleted(DeletionPolicy::Retain);
    let mut last = Vec::new();
    for _ in 0..4 {
        last = step(&mut o, at(2)).actions;
    }
    assert!(!o.group.as_ref().expect("there").deleting && o.labelled.is_empty());
    assert_eq!(last, [Action::RemoveFinalizer]);
}
