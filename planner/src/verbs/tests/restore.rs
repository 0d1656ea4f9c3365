use super::*;
use api::conditions::ConditionStatus;
use api::machine::{BareMetalMachineSpec, BareMetalMachineStatus, DiskSource, MachineState};
use api::verbs::restore::MachineRestoreSpec;
use api::verbs::snapshot::{MachineSnapshotSpec, MachineSnapshotStatus};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PersistentVolumeClaimStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

fn claim(name: &str, uid: &str, size: u64) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.name = Some(name.to_owned());
    claim.metadata.uid = Some(uid.to_owned());
    claim.metadata.labels = Some([(labels::MACHINE_UID.to_owned(), "m-1".to_owned())].into());
    claim.spec = Some(PersistentVolumeClaimSpec {
        volume_mode: Some("Block".to_owned()),
        ..PersistentVolumeClaimSpec::default()
    });
    claim.status = Some(PersistentVolumeClaimStatus {
        phase: Some("Bound".to_owned()),
        capacity: Some([("storage".to_owned(), quantity(size))].into()),
        ..PersistentVolumeClaimStatus::default()
    });
    claim
}

/// A stopped machine with a disk of its own, a kept one and its user's; a snapshot of the first two and one more.
fn world() -> Observed {
    let disk = |name: &str| Disk { name: name.to_owned(), ..Disk::default() };
    let users = api::machine::ClaimReference { claim_name: "mine".into() };
    let disks = vec![
        disk("root"),
        Disk { deletion_policy: DeletionPolicy::Retain, ..disk("data") },
        Disk { source: DiskSource { persistent_volume_claim: Some(users), ..DiskSource::default() }, ..disk("users") },
        disk("new"),
    ];
    let spec = BareMetalMachineSpec { disks, ..BareMetalMachineSpec::default() };
    let mut machine = BareMetalMachine::new("bm", spec);
    machine.metadata.uid = Some("m-1".into());
    machine.metadata.generation = Some(1);
    machine.status = Some(BareMetalMachineStatus {
        observed_generation: Some(1),
        state: Some(MachineState::Stopped),
        ..BareMetalMachineStatus::default()
    });
    let taken = |name: &str| SnapshotDisk {
        name: name.into(),
        volume_snapshot_name: format!("s1-{name}"),
        storage_class_name: Some("fast".into()),
        size: Some(quantity(2 << 30)),
        ..SnapshotDisk::default()
    };
    let mut snapshot =
        MachineSnapshot::new("s1", MachineSnapshotSpec { machine_name: "bm".into(), ..MachineSnapshotSpec::default() });
    let mut status = MachineSnapshotStatus {
        disks: ["root", "data", "users", "old"].map(taken).to_vec(),
        ..MachineSnapshotStatus::default()
    };
    let ready = conditions::READY;
    conditions::set(&mut status.operation.conditions, ready, ConditionStatus::True, "Succeeded", "", None, at(0));
    snapshot.status = Some(status);
    let mut object =
        MachineRestore::new("r1", MachineRestoreSpec { machine_name: "bm".into(), snapshot_name: "s1".into() });
    object.metadata.uid = Some("r-1".into());
    object.metadata.finalizers = Some(vec![labels::FINALIZER_OPERATION.to_owned()]);
    let seen = VolumeSnapshotSeen { ready: true, taken: true, ..VolumeSnapshotSeen::default() };
    let claims = [("bm-root", "c-1", 4 << 30), ("bm-data", "c-2", 1 << 30), ("mine", "c-3", 1 << 30)];
    Observed {
        claims: claims.map(|(name, uid, size)| (name.to_owned(), Arc::new(claim(name, uid, size)))).into(),
        object: Arc::new(object),
        machine: Some(Arc::new(machine)),
        snapshot: Some(Arc::new(snapshot)),
        snapshots: ["s1-root", "s1-data", "s1-users", "s1-old"].map(|name| (name.to_owned(), seen.clone())).into(),
    }
}

fn annotate(o: &mut Observed, changes: Vec<(String, Option<String>)>) {
    let machine = Arc::make_mut(o.machine.as_mut().expect("there"));
    let annotations = machine.metadata.annotations.get_or_insert_default();
    for (key, value) in changes {
        match value {
            Some(value) => annotations.insert(key, value),
            None => annotations.remove(&key),
        };
    }
}

fn locked(o: &Observed) -> bool {
    o.machine.as_ref().is_some_and(|machine| crate::verbs::lock(&machine.metadata).is_some())
}

fn step(o: &mut Observed, now: Timestamp) -> Plan<MachineRestoreStatus> {
    let plan = plan(o, now);
    Arc::make_mut(&mut o.object).status = Some(plan.status.clone());
    for action in &plan.actions {
        match action {
            Action::Lock(_) => annotate(o, vec![(labels::OPERATION.into(), Some("MachineRestore/r1/r-1".into()))]),
            Action::Unlock(_) => annotate(o, vec![(labels::OPERATION.into(), None)]),
            Action::CreateClaim(new) => {
                assert!(locked(o), "a claim is made without the lock");
                let mut new = (**new).clone();
                new.metadata.uid = Some(format!("new-{}", o.claims.len()));
                assert!(o.claims.insert(name(&new.metadata).to_owned(), Arc::new(new)).is_none(), "made twice");
            }
            Action::DeleteClaim(target) => {
                let gone = o.claims.remove(&target.name).expect("it is there");
                assert!(!in_use_by(&gone.metadata, "m-1"), "a claim in use is deleted");
            }
            Action::SwitchClaims { claims, .. } => {
                assert!(locked(o), "claims are exchanged without the lock");
                let changes =
                    claims.iter().map(|(disk, claim)| (format!("{}{disk}", labels::CLAIM), Some(claim.clone())));
                annotate(o, changes.collect());
            }
            Action::RemoveFinalizer => Arc::make_mut(&mut o.object).metadata.finalizers = None,
            other => panic!("{other:?}"),
        }
    }
    plan
}

fn settle(o: &mut Observed, now: Timestamp) -> Plan<MachineRestoreStatus> {
    for _ in 0..12 {
        let before = o.object.clone();
        let plan = step(o, now);
        if plan.actions.is_empty() && before == o.object {
            return plan;
        }
    }
    panic!("it does not come to rest: {:?}", o.object.status);
}

fn bind(o: &mut Observed) {
    for claim in o.claims.values_mut().map(Arc::make_mut) {
        claim.status.get_or_insert_default().phase = Some("Bound".to_owned());
    }
}

fn use_claim(o: &mut Observed, name: &str, used: bool) {
    let meta = &mut Arc::make_mut(o.claims.get_mut(name).expect("there")).metadata;
    meta.finalizers = used.then(|| vec![labels::FINALIZER_IN_USE.to_owned()]);
    meta.annotations = used.then(|| [(format!("{}m-1", labels::IN_USE_BY), String::new())].into());
}

fn said(plan: &Plan<MachineRestoreStatus>) -> (OperationPhase, String) {
    let reason = plan.status.operation.conditions.first().map(|condition| condition.reason.clone());
    (plan.status.operation.phase, reason.unwrap_or_default())
}

#[test]
fn claims_are_exchanged_at_once_and_the_old_ones_follow_their_policy() {
    let mut o = world();
    use_claim(&mut o, "bm-root", true);
    let waiting = settle(&mut o, at(1));
    assert_eq!(said(&waiting), (OperationPhase::Running, "ClaimPending".into()));
    let machine = o.machine.clone().expect("there");
    let disk = |n: usize| machine.spec.disks[n].clone();
    assert_eq!(claim_name(&machine, &disk(0)), "bm-root", "nothing is exchanged before all are bound");
    let new = &waiting.status.disks[0];
    assert_eq!((new.name.as_str(), new.size.clone()), ("root", Some(quantity(4 << 30))), "not smaller than it was");
    bind(&mut o);
    let waiting = settle(&mut o, at(2));
    assert_eq!(said(&waiting), (OperationPhase::Running, "VolumeReleasing".into()));
    let machine = o.machine.clone().expect("there");
    for (n, row) in waiting.status.disks.iter().enumerate() {
        assert_eq!(claim_name(&machine, &disk(n)), row.claim_name);
        assert!(!is_users_own(&machine, &disk(n)), "a restored disk is the machine's");
    }
    assert!(o.claims.contains_key("bm-root") && locked(&o), "the host may still have it");
    use_claim(&mut o, "bm-root", false);
    let done = settle(&mut o, at(3));
    assert_eq!(said(&done), (OperationPhase::Succeeded, "Succeeded".into()));
    assert!(!o.claims.contains_key("bm-root"), "deletionPolicy: Delete");
    assert!(o.claims.contains_key("bm-data"), "deletionPolicy: Retain");
    assert!(o.claims.contains_key("mine"), "a user's claim is always kept");
    assert!(!locked(&o));
    assert_eq!(done.status.left_out, ["old", "new"]);
    assert!(
        done.status.operation.conditions[0].message.contains("left as it is: old, new"),
        "{:?}",
        done.status.operation.conditions
    );
}

/// A reason, and the change of the world that gives it.
type Case = (&'static str, fn(&mut Observed));

#[test]
fn what_forbids_it_is_said_and_nothing_is_changed() {
    let cases: [Case; 6] = [
        ("MachineRuns", |o| {
            let machine = Arc::make_mut(o.machine.as_mut().expect("there"));
            machine.status.get_or_insert_default().state = Some(MachineState::Running);
        }),
        ("MachineMissing", |o| o.machine = None),
        ("MachineSnapshotMissing", |o| o.snapshot = None),
        ("SnapshotOfAnother", |o| {
            Arc::make_mut(o.snapshot.as_mut().expect("there")).spec.machine_name = "other".into();
        }),
        ("MachineSnapshotNotReady", |o| Arc::make_mut(o.snapshot.as_mut().expect("there")).status = None),
        ("SnapshotMissing", |o| drop(o.snapshots.remove("s1-root"))),
    ];
    for (reason, change) in cases {
        let mut o = world();
        change(&mut o);
        let before = o.claims.len();
        assert_eq!(said(&settle(&mut o, at(1))), (OperationPhase::Pending, reason.to_owned()));
        assert!(!locked(&o) && o.claims.len() == before, "{reason}");
    }
    let mut o = world();
    let machine = Arc::make_mut(o.machine.as_mut().expect("there"));
    machine.spec.disks.retain(|disk| disk.name == "new");
    assert_eq!(said(&settle(&mut o, at(1))).1, "NothingToRestore");
}

#[test]
fn a_deletion_before_the_exchange_undoes_it_and_after_it_ends_it() {
    let mut o = world();
    settle(&mut o, at(1));
    assert_eq!(o.claims.len(), 6);
    Arc::make_mut(&mut o.object).metadata.deletion_timestamp = Some(Time(at(2)));
    settle(&mut o, at(2));
    assert_eq!(o.claims.keys().collect::<Vec<_>>(), ["bm-data", "bm-root", "mine"]);
    assert!(!locked(&o) && o.object.metadata.finalizers.is_none());

    let mut o = world();
    use_claim(&mut o, "bm-root", true);
    settle(&mut o, at(1));
    bind(&mut o);
    settle(&mut o, at(2));
    Arc::make_mut(&mut o.object).metadata.deletion_timestamp = Some(Time(at(3)));
    settle(&mut o, at(3));
    assert!(locked(&o) && o.object.metadata.finalizers.is_some(), "the old disk is still there");
    use_claim(&mut o, "bm-root", false);
    settle(&mut o, at(4));
    assert!(!o.claims.contains_key("bm-root") && !locked(&o) && o.object.metadata.finalizers.is_none());
}

#[test]
fn a_machine_that_is_deleted_meanwhile_takes_its_new_claims_with_it() {
    let mut o = world();
    settle(&mut o, at(1));
    let machine = Arc::make_mut(o.machine.as_mut().expect("there"));
    machine.metadata.deletion_timestamp = Some(Time(at(2)));
    assert_eq!(said(&settle(&mut o, at(2))), (OperationPhase::Failed, "MachineDeleted".into()));
    assert_eq!(o.claims.len(), 3, "only those of before are left: {:?}", o.claims.keys());
}
