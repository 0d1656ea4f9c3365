//! The lvol pool: against the fake storage node, and against a real SPDK where one is installed. What harms SPDK is never sent:
//! the fake notes it, and `assert_sound` looks.

mod storage_node;

use csi::pool::{
    ContentSource, CreateError, DeleteError, ExpandError, Gravity, GroupError, Handle, Limits, Pool, Range, SizeError,
    SnapshotError, UseError, Volume,
};
use planner::{exposure::ExposureId, target};
use ports::{StorageFence, VolumeConnector, lvol::Export};
use sandbox::spdk::faults::Fault;
use spdk::{
    fence::NvmeFence,
    volumes::{SpdkConnector, nvmeof::NvmeOf},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};
use storage_node::{CLUSTER, GIB, LARGEST, Lab, MIB};

fn at_least(required: u64) -> Range {
    Range { required: Some(required), limit: None }
}

fn exactly(size: u64) -> Range {
    Range { required: Some(size), limit: Some(size) }
}

fn make(pool: &Pool, name: &str, size: u64, source: Option<&ContentSource>) -> Volume {
    pool.create_volume(name, at_least(size), source, &Limits::default())
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn snapshot_of(pool: &Pool, name: &str, volume: &Volume) -> ContentSource {
    ContentSource::Snapshot(pool.create_snapshot(name, &volume.handle).expect("taken").id.to_string())
}

fn limits(parameters: &[(&str, &str)]) -> Limits {
    Limits::parse(parameters.iter().copied()).expect("understood")
}

fn id(uid: &str, epoch: u64) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch }
}

/// Each on the fake; and on a real target, all on one.
fn suite(lab: &mut Lab) {
    creating_again_gives_the_same_volume_or_says_what_differs(lab);
    a_snapshot_is_wide_and_says_the_image_s_size(lab);
    a_volume_is_copied(lab);
    what_a_host_may_have_open_is_cut_as_it_is(lab);
    a_volume_grows_and_never_shrinks(lab);
    a_deleted_snapshot_stays_behind_its_clones(lab);
    limits_are_kept_at_the_storage_node(lab);
    a_dpu_connects_what_it_is_granted(lab);
    a_new_target_is_told_again(lab);
    no_node_and_no_group(lab);
    all_is_deleted(lab);
}

#[test]
fn the_suite_on_a_fake() {
    suite(&mut Lab::fake());
}

#[test]
fn the_suite_on_a_real_target() {
    let Some(mut lab) = Lab::real("the_suite_on_a_real_target") else { return };
    suite(&mut lab);
}

fn creating_again_gives_the_same_volume_or_says_what_differs(lab: &Lab) {
    let pool = lab.pool();
    let first = make(&pool, "pvc-1", 9 * MIB, None);
    assert_eq!(first.record.size_bytes, 3 * CLUSTER, "whole clusters");
    assert_eq!(make(&pool, "pvc-1", 9 * MIB, None), first);
    assert_eq!(make(&lab.pool(), "pvc-1", 9 * MIB, None), first, "after a restart of the driver");
    let other = pool.create_volume("pvc-1", exactly(20 * MIB), None, &Limits::default());
    assert!(matches!(other, Err(CreateError::Incompatible { .. })), "{other:?}");
    let lvol = lab.lvol(first.handle.as_str());
    assert_eq!((lvol.size_bytes, lvol.export), (3 * CLUSTER, Export::Offered));
    assert_eq!(Some(lvol.uuid), first.record.uuid);
    // The record was lost in a crash: it is found by its name.
    fs::remove_dir_all(lab.records().join("volumes").join(first.handle.as_str())).expect("its record");
    let found = make(&pool, "pvc-1", 9 * MIB, None);
    assert_eq!((&found.handle, &found.record.uuid), (&first.handle, &first.record.uuid));
    let lost = make(&pool, "lost", MIB, None).handle;
    fs::remove_dir_all(lab.records().join("volumes").join(lost.as_str())).expect("its record");
    pool.delete_volume(&lost).expect("deleted by its name");
    assert!(lab.lvols().iter().all(|lvol| lvol.name != lost.as_str()));
    let total = pool.capacity().expect("capacity").total;
    let large = pool.create_volume("large", at_least(total + MIB), None, &Limits::default());
    assert!(matches!(large, Err(CreateError::Size(SizeError::AbovePool { .. }))), "{large:?}");
    lab.assert_sound("created");
}

fn a_snapshot_is_wide_and_says_the_image_s_size(lab: &Lab) {
    let pool = lab.pool();
    let golden = make(&pool, "golden", 64 * MIB, None);
    let snapshot = pool.create_snapshot("golden-snap", &golden.handle).expect("taken");
    assert_eq!(snapshot.record.size_bytes, 64 * MIB, "the image's, not the parent's");
    assert_eq!(pool.create_snapshot("golden-snap", &golden.handle).expect("found"), snapshot);
    assert_eq!(lab.lvol(snapshot.id.as_str()).size_bytes, LARGEST);
    let after = lab.lvol(golden.handle.as_str());
    assert_eq!((after.size_bytes, after.export), (64 * MIB, Export::Offered), "as before");
    let source = ContentSource::Snapshot(snapshot.id.to_string());
    for (name, size) in [("same", 64 * MIB), ("larger", 20 * GIB)] {
        let clone = make(&pool, name, size, Some(&source));
        assert_eq!(make(&pool, name, size, Some(&source)), clone);
        let lvol = lab.lvol(clone.handle.as_str());
        assert_eq!((lvol.size_bytes, lvol.parent.as_deref()), (size, Some(snapshot.id.as_str())), "no copy");
    }
    let small = pool.create_volume("small", at_least(MIB), Some(&source), &Limits::default());
    assert!(matches!(small, Err(CreateError::Size(SizeError::BelowSource { .. }))), "{small:?}");
    let other = pool.create_snapshot("golden-snap", &Handle::of_volume("pvc-1"));
    assert!(matches!(other, Err(SnapshotError::Incompatible { .. })), "{other:?}");
    // A snapshot behind a snapshot, and a clone of that.
    let second = snapshot_of(&pool, "golden-snap-2", &golden);
    make(&pool, "of-second", 10 * GIB, Some(&second));
    lab.assert_sound("cloned");
}

fn a_volume_is_copied(lab: &Lab) {
    let pool = lab.pool();
    let from = make(&pool, "original", 32 * MIB, None);
    let source = ContentSource::Volume(from.handle.to_string());
    let copy = make(&pool, "copy", GIB, Some(&source));
    assert_eq!(make(&pool, "copy", GIB, Some(&source)), copy);
    assert_eq!(copy.record.source, Some(source.clone()));
    let behind = lab.lvol(copy.handle.as_str()).parent.expect("a snapshot");
    assert_eq!(lab.lvol(from.handle.as_str()).parent.as_ref(), Some(&behind));
    assert!(pool.snapshots().expect("listed").iter().all(|it| it.id.as_str() != behind), "nobody's snapshot");
    for volume in [&from, &copy] {
        pool.delete_volume(&volume.handle).expect("deleted");
        lab.assert_sound("a copy or its original is deleted");
    }
    assert!(lab.lvols().iter().all(|lvol| lvol.name != behind), "it went with the last");
}

/// Its snapshot has its size, and whoever needs more takes over the data.
fn what_a_host_may_have_open_is_cut_as_it_is(lab: &Lab) {
    let pool = lab.pool();
    let live = make(&pool, "live", 32 * MIB, None);
    let fence = fence(lab);
    let admit = fence.fence_identity(&id("cut", 1));
    lab.runtime.block_on(fence.admit(&lab.persistent(&pool, &live), &admit)).expect("admitted");
    assert_eq!(lab.lvol(live.handle.as_str()).export, Export::Admitted);
    let source = snapshot_of(&pool, "live-snap", &live);
    let ContentSource::Snapshot(snapshot) = &source else { panic!("{source:?}") };
    assert_eq!(lab.lvol(snapshot).size_bytes, 32 * MIB);
    assert_eq!(lab.lvol(live.handle.as_str()).export, Export::Admitted, "untouched");
    let same = make(&pool, "live-same", 32 * MIB, Some(&source));
    assert_eq!(lab.lvol(same.handle.as_str()).parent.as_deref(), Some(snapshot.as_str()));
    let larger = make(&pool, "live-larger", 4 * GIB, Some(&source));
    let lvol = lab.lvol(larger.handle.as_str());
    assert_eq!((lvol.size_bytes, lvol.parent), (4 * GIB, None), "on its own");
    lab.assert_sound("cloned from a live one");
    let grown = pool.expand_volume(&live.handle, at_least(GIB)).expect("grown beyond its snapshot");
    assert_eq!(grown.record.size_bytes, GIB);
    let lvol = lab.lvol(live.handle.as_str());
    assert_eq!((lvol.size_bytes, lvol.parent, lvol.export), (GIB, None, Export::Admitted));
    lab.assert_sound("grown");
}

fn a_volume_grows_and_never_shrinks(lab: &Lab) {
    let pool = lab.pool();
    let handle = make(&pool, "grows", 10 * CLUSTER, None).handle;
    for _ in 0..2 {
        let grown = pool.expand_volume(&handle, at_least(20 * CLUSTER - 5)).expect("grown");
        assert_eq!(grown.record.size_bytes, 20 * CLUSTER);
        assert_eq!(lab.lvol(handle.as_str()).size_bytes, 20 * CLUSTER);
    }
    assert_eq!(pool.expand_volume(&handle, at_least(MIB)).expect("is enough").record.size_bytes, 20 * CLUSTER);
    let below = pool.expand_volume(&handle, Range { required: Some(5 * MIB), limit: Some(6 * MIB) });
    assert!(matches!(below, Err(ExpandError::Size(_))), "{below:?}");
    assert_eq!(lab.lvol(handle.as_str()).size_bytes, 20 * CLUSTER);
    // A clone of a wide snapshot grows without a copy, up to it and no further.
    let golden = ContentSource::Snapshot(Handle::of_snapshot("golden-snap").to_string());
    let clone = make(&pool, "grows-clone", 64 * MIB, Some(&golden));
    pool.expand_volume(&clone.handle, at_least(30 * GIB)).expect("grown");
    let lvol = lab.lvol(clone.handle.as_str());
    assert_eq!((lvol.size_bytes, lvol.parent.is_some()), (30 * GIB, true));
    lab.assert_sound("expanded");
}

fn a_deleted_snapshot_stays_behind_its_clones(lab: &Lab) {
    let pool = lab.pool();
    let volume = make(&pool, "kept-by", 16 * MIB, None);
    let source = snapshot_of(&pool, "kept", &volume);
    let clones = ["kept-a", "kept-b"].map(|name| make(&pool, name, GIB, Some(&source)));
    let ContentSource::Snapshot(name) = &source else { panic!("{source:?}") };
    for _ in 0..2 {
        pool.delete_snapshot(&Handle::parse(name).expect("its id")).expect("deleted while its clones stay");
    }
    assert!(pool.snapshots().expect("listed").iter().all(|it| it.id.as_str() != name));
    assert!(lab.lvol(name).clones.len() == 3, "the clones' data are in it");
    let late = pool.create_volume("late", at_least(GIB), Some(&source), &Limits::default());
    assert!(matches!(late, Err(CreateError::NoSource(..))), "{late:?}");
    for volume in clones.iter().chain([&volume]) {
        assert!(lab.lvols().iter().any(|lvol| lvol.name == *name), "a larger one is never merged into its clone");
        pool.delete_volume(&volume.handle).expect("deleted");
        lab.assert_sound("a clone is deleted");
    }
    assert!(lab.lvols().iter().all(|lvol| lvol.name != *name), "it went with the last");
    // Snapshots of one size, as a schedule makes them: each becomes part of the next.
    let volume = make(&pool, "daily", 16 * MIB, None);
    let [monday, tuesday] =
        ["monday", "tuesday"].map(|day| pool.create_snapshot(day, &volume.handle).expect("taken").id);
    pool.delete_snapshot(&monday).expect("deleted");
    assert!(lab.lvols().iter().all(|lvol| lvol.name != monday.as_str()), "its space is free");
    assert_eq!(lab.lvol(tuesday.as_str()).parent, None);
    lab.assert_sound("a schedule");
}

fn limits_are_kept_at_the_storage_node(lab: &Lab) {
    let pool = lab.pool();
    let gold = limits(&[("iops", "20000"), ("readMiBps", "300")]);
    let volume = pool.create_volume("gold", at_least(MIB), None, &gold).expect("created");
    let now = lab.lvol(volume.handle.as_str()).limits;
    assert_eq!((now.operations, now.mib, now.read_mib), (20000, 0, 300));
    pool.modify_volume(&volume.handle, &limits(&[("iops", "0"), ("bandwidthMiBps", "500")])).expect("changed");
    // SPDK changes them only while somebody has the volume open.
    let fence = fence(lab);
    let host = fence.fence_identity(&id("gold", 1));
    lab.runtime.block_on(fence.admit(&lab.persistent(&pool, &volume), &host)).expect("admitted");
    pool.tend(false).expect("set");
    let now = lab.lvol(volume.handle.as_str()).limits;
    assert_eq!((now.operations, now.mib, now.read_mib), (0, 500, 0), "a class is the whole of it");
}

fn fence(lab: &Lab) -> NvmeFence {
    NvmeFence::new(BTreeMap::from([(lab.address.to_string(), lab.storage.socket().to_owned())]))
}

/// The way of a machine's disk: the controller admits, the agent connects by the attributes alone.
fn a_dpu_connects_what_it_is_granted(lab: &Lab) {
    let pool = lab.pool();
    let volume = make(&pool, "disk", 16 * MIB, None);
    let persistent = lab.persistent(&pool, &volume);
    let read = target::of(csi::DRIVER, volume.handle.as_str(), &persistent.attributes);
    assert!(matches!(read, Some(Ok(target::Target::NvmeOf(_)))), "{read:?}");
    let (fence, grant) = (fence(lab), id("disk", 1));
    let admitted = fence.fence_identity(&grant);
    let connector = SpdkConnector::new(lab.dpu.socket(), NvmeOf);
    let early = lab.runtime.block_on(connector.connect(&grant, &persistent));
    early.expect_err("nobody is admitted yet");
    lab.runtime.block_on(fence.admit(&persistent, &admitted)).expect("admitted");
    let connected = lab.runtime.block_on(connector.connect(&grant, &persistent)).expect("connected");
    assert_eq!(connected.size_bytes, 16 * MIB);
    let busy = pool.delete_volume(&volume.handle);
    assert!(matches!(&busy, Err(DeleteError::Connected { host, .. }) if *host == admitted), "{busy:?}");
    pool.expand_volume(&volume.handle, at_least(32 * MIB)).expect("grown while it is connected");
    let mut size = 0;
    for _ in 0..100 {
        size = lab.runtime.block_on(connector.list()).expect("listed")[0].size_bytes;
        if size == 32 * MIB {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(size, 32 * MIB, "the DPU hears of it");
    lab.runtime.block_on(connector.disconnect(&grant)).expect("disconnected");
    lab.runtime.block_on(fence.dismiss(&persistent, &admitted)).expect("dismissed");
    // What a fence leaves on the subsystem's list is nobody.
    lab.runtime.block_on(fence.fence(&persistent, &admitted)).expect("fenced");
    let snapshot = pool.create_snapshot("disk-snap", &volume.handle).expect("taken");
    assert_eq!(lab.lvol(snapshot.id.as_str()).size_bytes, LARGEST, "nobody has it any more");
    pool.delete_volume(&volume.handle).expect("deleted");
    lab.assert_sound("connected and fenced");
}

fn a_new_target_is_told_again(lab: &mut Lab) {
    let (gold, golden) = (Handle::of_volume("gold"), Handle::of_volume("golden"));
    let before = lab.lvols().len();
    lab.restart_storage();
    assert_eq!(lab.lvols().len(), before, "all of the lvstore can be loaded");
    assert_eq!(lab.lvol(gold.as_str()).export, Export::None);
    let pool = lab.pool();
    pool.tend(true).expect("told again");
    assert_eq!(lab.lvol(golden.as_str()).export, Export::Offered);
    let lvol = lab.lvol(gold.as_str());
    assert_eq!((lvol.export, lvol.limits.mib, lvol.limits.read_mib), (Export::Offered, 500, 0));
    lab.assert_sound("a new target");
}

fn no_node_and_no_group(lab: &Lab) {
    let pool = lab.pool();
    let volume = make(&pool, "pvc-1", 9 * MIB, None);
    pool.register_node("node-1").expect("registered");
    let published = pool.publish_volume(&volume.handle, "node-1", false);
    assert!(matches!(published, Err(UseError::NoNodes { .. })), "{published:?}");
    let group = pool.create_group("group", &BTreeSet::from([volume.handle.clone()]));
    assert!(matches!(group, Err(GroupError::OneByOne { .. })), "{group:?}");
    assert_eq!(pool.ailments(&volume), []);
}

fn all_is_deleted(lab: &Lab) {
    let pool = lab.pool();
    for snapshot in pool.snapshots().expect("listed") {
        pool.delete_snapshot(&snapshot.id).expect("deleted");
        lab.assert_sound("a snapshot is deleted");
    }
    for volume in pool.volumes().expect("listed") {
        for _ in 0..2 {
            pool.delete_volume(&volume.handle).expect("deleted");
        }
        lab.assert_sound("a volume is deleted");
    }
    assert_eq!(lab.lvols(), []);
}

#[test]
fn what_is_wrong_with_a_volume_is_said() {
    let lab = Lab::fake();
    let pool = lab.pool();
    let volume = make(&pool, "pvc-1", 16 * MIB, None);
    assert_eq!(pool.ailments(&volume), []);
    let full = format!("lvs0/{}", volume.handle);
    lab.fake_storage().with(|world| world.fill_lvol(&full, 40 * GIB / CLUSTER));
    let reasons = |pool: &Pool| pool.ailments(&volume).iter().map(|it| (it.gravity, it.reason)).collect::<Vec<_>>();
    assert_eq!(reasons(&pool), [(Gravity::Degraded, "PoolNearlyFull")]);
    lab.fake_storage().kill();
    assert_eq!(reasons(&lab.pool())[0], (Gravity::Inaccessible, "PoolUnreadable"));
}

/// What a driver does with a pool, from a blank volume to nothing.
fn life(pool: &Pool, tries: u32) {
    let again = |what: &str, verb: &dyn Fn() -> Result<(), String>| {
        for round in 0.. {
            match verb() {
                Ok(()) => return,
                Err(error) => assert!(round < tries, "{what}: {error}"),
            }
        }
    };
    fn done<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<(), String> {
        result.map(drop).map_err(|error| error.to_string())
    }
    let none = Limits::default();
    let [golden, clone, copy] = ["golden", "clone", "copy"].map(Handle::of_volume);
    let snap = Handle::of_snapshot("snap");
    let of_snap = ContentSource::Snapshot(snap.to_string());
    let of_clone = ContentSource::Volume(clone.to_string());
    again("create", &|| done(pool.create_volume("golden", exactly(16 * MIB), None, &limits(&[("iops", "1000")]))));
    again("snapshot", &|| done(pool.create_snapshot("snap", &golden)));
    again("clone", &|| done(pool.create_volume("clone", exactly(GIB), Some(&of_snap), &none)));
    again("copy", &|| done(pool.create_volume("copy", exactly(2 * GIB), Some(&of_clone), &none)));
    again("expand", &|| done(pool.expand_volume(&clone, at_least(3 * GIB))));
    again("modify", &|| done(pool.modify_volume(&clone, &limits(&[("writeMiBps", "7")]))));
    again("tend", &|| done(pool.tend(false)));
    let listed: Vec<_> = pool.volumes().expect("listed").iter().map(|it| it.record.size_bytes).collect();
    let mut sizes = listed;
    sizes.sort_unstable();
    assert_eq!(sizes, [16 * MIB, 2 * GIB, 3 * GIB]);
    again("delete the snapshot", &|| done(pool.delete_snapshot(&snap)));
    for volume in [&golden, &clone, &copy] {
        again("delete a volume", &|| done(pool.delete_volume(volume)));
    }
    again("tend", &|| done(pool.tend(true)));
}

/// More calls than a verb makes when nothing goes wrong.
const STRIDE: usize = 41;

/// Every fault at every call at the storage node, one to a verb: each verb, repeated, ends as without, and does no harm on the
/// way.
#[test]
fn every_fault_at_every_call_is_survived() {
    let lab = Lab::fake();
    for fault in Fault::all() {
        for first in 0..STRIDE {
            let when = format!("{fault:?} at call {first} and each {STRIDE} later");
            for round in 0..20 {
                lab.fake_storage().inject(first + round * STRIDE, fault.clone());
            }
            life(&lab.pool(), 8);
            assert!(lab.fake_storage().has_faults(), "{when}: to the end");
            lab.fake_storage().forget_faults();
            assert_eq!(lab.lvols(), [], "{when}");
            lab.assert_sound(&when);
        }
    }
}
