use super::*;
use api::labels;
use api::machine::{BareMetalMachineSpec, BareMetalMachineStatus, Disk, MachineState, PowerStatus};
use api::verbs::OperationPhase;
use api::verbs::snapshot::MachineSnapshotSpec;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PersistentVolumeClaimStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

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
        snapshots: BTreeMap::new(),
    }
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
            Action::DeleteSnapshot(_) => o.snapshots.values_mut().for_each(|seen| seen.deleting = true),
            Action::RemoveFinalizer => {}
            other => panic!("{other:?}"),
        }
    }
    plan
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
