//! The pool's operations on a real XFS: what csi-sanity asks of a driver, and what a crash may leave.

mod fixture;

use csi::pool::{
    ContentSource, CreateError, DeleteError, DeleteSnapshotError, ExpandError, Gravity, Group, GroupError, Handle,
    Limits, ModifyError, OpenError, Pool, Range, SizeError, Snapshot, SnapshotError, UseError,
};
use fixture::Mounted;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

const MIB: u64 = 1 << 20;

fn at_least(required: u64) -> Range {
    Range { required: Some(required), limit: None }
}

fn exactly(size: u64) -> Range {
    Range { required: Some(size), limit: Some(size) }
}

/// A pool on an XFS of its own.
fn pool(test: &str) -> Option<(Mounted, Pool)> {
    let mounted = Mounted::xfs(test, "2G")?;
    let pool = Pool::open("fast", &mounted.path()).expect("a pool on XFS opens");
    Some((mounted, pool))
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder of the pool");
    let mut names: Vec<String> =
        entries.map(|it| it.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_volume_is_a_sparse_file_and_its_record() {
    let Some((mounted, pool)) = pool("a_volume_is_a_sparse_file_and_its_record") else { return };
    let volume = pool.create_volume("pvc-1", at_least(100 * MIB + 1), None, &Limits::default()).expect("created");
    assert_eq!(volume.record.size_bytes, 101 * MIB);
    let image = mounted.path().join("volumes").join(volume.handle.as_str()).join("disk.img");
    assert_eq!(pool.image(&volume.handle), image);
    let meta = image.metadata().expect("the image");
    assert_eq!((meta.len(), meta.blocks()), (101 * MIB, 0));
    assert_eq!(names(image.parent().expect("its folder")), ["disk.img", "volume.json"]);
}

#[test]
fn creating_again_gives_the_same_volume_or_says_what_differs() {
    let Some((_mounted, pool)) = pool("creating_again_gives_the_same_volume_or_says_what_differs") else { return };
    let first = pool.create_volume("pvc-1", exactly(10 * MIB), None, &Limits::default()).expect("created");
    assert_eq!(pool.create_volume("pvc-1", exactly(10 * MIB), None, &Limits::default()).expect("found"), first);
    assert_eq!(pool.create_volume("pvc-1", Range::default(), None, &Limits::default()).expect("found"), first);
    let other_size = pool.create_volume("pvc-1", exactly(20 * MIB), None, &Limits::default());
    assert!(matches!(other_size, Err(CreateError::Incompatible { .. })), "{other_size:?}");
    let source = ContentSource::Volume(first.handle.to_string());
    let other_source = pool.create_volume("pvc-1", exactly(10 * MIB), Some(&source), &Limits::default());
    assert!(matches!(other_source, Err(CreateError::Incompatible { .. })), "{other_source:?}");
    assert_eq!(pool.volumes().expect("listed"), [first]);
}

#[test]
fn a_clone_shares_blocks_has_the_content_and_is_on_its_own() {
    let Some((_mounted, pool)) = pool("a_clone_shares_blocks_has_the_content_and_is_on_its_own") else { return };
    let golden = pool.create_volume("golden", at_least(64 * MIB), None, &Limits::default()).expect("created");
    fs::write(pool.image(&golden.handle), vec![7; 8 << 20]).expect("content");
    fs::File::options()
        .write(true)
        .open(pool.image(&golden.handle))
        .expect("the image")
        .set_len(64 * MIB)
        .expect("size");
    let snapshot = pool.create_snapshot("snap", &golden.handle).expect("taken");
    assert_eq!(snapshot.record.size_bytes, 64 * MIB);
    // Written after the snapshot: the clone must not see it.
    let written = fs::File::options().write(true).open(pool.image(&golden.handle));
    written.and_then(|file| file.write_all_at(&[9; 16], 0)).expect("later content");

    let before = pool.capacity().expect("capacity").available;
    let source = ContentSource::Snapshot(snapshot.id.to_string());
    let clone = pool.create_volume("clone", at_least(128 * MIB), Some(&source), &Limits::default()).expect("cloned");
    let used = before.saturating_sub(pool.capacity().expect("capacity").available);
    assert!(used < 4 * MIB, "a clone of 8 MiB took {used} bytes");
    assert_eq!(clone.record.source, Some(source.clone()));
    let image = fs::read(pool.image(&clone.handle)).expect("the clone");
    assert_eq!(image.len() as u64, 128 * MIB);
    assert!(image[..8 << 20].iter().all(|byte| *byte == 7) && image[8 << 20..].iter().all(|byte| *byte == 0));

    pool.delete_volume(&golden.handle).expect("deleted while its snapshot stays");
    pool.delete_snapshot(&snapshot.id).expect("deleted while its clone stays");
    assert_eq!(
        pool.create_volume("clone", at_least(128 * MIB), Some(&source), &Limits::default()).expect("found"),
        clone
    );
    let late = pool.create_volume("late", Range::default(), Some(&source), &Limits::default());
    assert!(matches!(late, Err(CreateError::NoSource(..))), "{late:?}");
}

#[test]
fn a_restore_below_the_image_s_size_is_refused() {
    let Some((_mounted, pool)) = pool("a_restore_below_the_image_s_size_is_refused") else { return };
    let volume = pool.create_volume("golden", exactly(50 * MIB), None, &Limits::default()).expect("created");
    let snapshot = pool.create_snapshot("snap", &volume.handle).expect("taken");
    let source = ContentSource::Snapshot(snapshot.id.to_string());
    let small = pool.create_volume("small", at_least(49 * MIB), Some(&source), &Limits::default());
    assert!(matches!(small, Err(CreateError::Size(SizeError::BelowSource { .. }))), "{small:?}");
    let same =
        pool.create_volume("same", Range::default(), Some(&source), &Limits::default()).expect("of the source's size");
    assert_eq!(same.record.size_bytes, 50 * MIB);
}

#[test]
fn no_volume_is_larger_than_its_pool_but_together_they_may_be() {
    let Some((_mounted, pool)) = pool("no_volume_is_larger_than_its_pool_but_together_they_may_be") else { return };
    let total = pool.capacity().expect("capacity").total;
    let large = pool.create_volume("large", at_least(total + MIB), None, &Limits::default());
    assert!(matches!(large, Err(CreateError::Size(SizeError::AbovePool { .. }))), "{large:?}");
    for name in ["a", "b", "c"] {
        pool.create_volume(name, at_least(total - MIB), None, &Limits::default()).expect("thin");
    }
}

#[test]
fn snapshots_are_found_again_by_name_and_belong_to_one_volume() {
    let Some((_mounted, pool)) = pool("snapshots_are_found_again_by_name_and_belong_to_one_volume") else { return };
    let [a, b] = ["a", "b"]
        .map(|name| pool.create_volume(name, at_least(MIB), None, &Limits::default()).expect("created").handle);
    let first = pool.create_snapshot("snap", &a).expect("taken");
    assert_eq!(pool.create_snapshot("snap", &a).expect("found"), first);
    assert!(matches!(pool.create_snapshot("snap", &b), Err(SnapshotError::Incompatible { .. })));
    let none = pool.create_snapshot("other", &Handle::of_volume("none"));
    assert!(matches!(none, Err(SnapshotError::NoSuchVolume(_))), "{none:?}");
    pool.delete_volume(&a).expect("deleted");
    assert_eq!(pool.create_snapshot("snap", &a).expect("found without its volume"), first);
    assert_eq!(pool.snapshots().expect("listed"), [first]);
}

#[test]
fn one_node_at_a_time_and_no_deletion_under_it() {
    let Some((_mounted, pool)) = pool("one_node_at_a_time_and_no_deletion_under_it") else { return };
    let handle = pool.create_volume("pvc-1", at_least(MIB), None, &Limits::default()).expect("created").handle;
    let stranger = pool.publish_volume(&handle, "node-1", false);
    assert!(matches!(stranger, Err(UseError::NoSuchNode { .. })), "{stranger:?}");
    for node in ["node-1", "node-2"] {
        pool.register_node(node).expect("registered");
    }
    for name in ["..", "a/b", ""] {
        assert!(matches!(pool.publish_volume(&handle, name, false), Err(UseError::NoSuchNode { .. })));
    }
    for _ in 0..2 {
        pool.publish_volume(&handle, "node-1", false).expect("published");
    }
    assert!(matches!(pool.publish_volume(&handle, "node-1", true), Err(UseError::Incompatible { .. })));
    assert!(matches!(pool.publish_volume(&handle, "node-2", false), Err(UseError::Elsewhere { .. })));
    assert!(matches!(pool.delete_volume(&handle), Err(DeleteError::InUse { .. })));
    pool.unpublish_volume(&handle, Some("node-2")).expect("never was there");
    assert!(matches!(pool.delete_volume(&handle), Err(DeleteError::InUse { .. })));
    for _ in 0..2 {
        pool.unpublish_volume(&handle, Some("node-1")).expect("unpublished");
    }
    pool.publish_volume(&handle, "node-2", true).expect("published elsewhere");
    pool.unpublish_volume(&handle, None).expect("unpublished from all");
    for _ in 0..2 {
        pool.delete_volume(&handle).expect("deleted");
    }
    pool.unpublish_volume(&handle, None).expect("gone is unpublished");
}

#[test]
fn a_staged_volume_is_in_use_without_an_attacher_too() {
    let Some((mounted, pool)) = pool("a_staged_volume_is_in_use_without_an_attacher_too") else { return };
    let handle = pool.create_volume("pvc-1", at_least(MIB), None, &Limits::default()).expect("created").handle;
    for node in ["node-1", "node-2"] {
        pool.register_node(node).expect("registered");
    }
    pool.stage_volume(&handle, "node-1", false).expect("staged");
    pool.publish_volume(&handle, "node-1", false).expect("the same node");
    assert!(matches!(pool.stage_volume(&handle, "node-2", false), Err(UseError::Elsewhere { .. })));
    assert!(matches!(pool.publish_volume(&handle, "node-2", false), Err(UseError::Elsewhere { .. })));
    assert!(matches!(pool.delete_volume(&handle), Err(DeleteError::InUse { .. })));
    for _ in 0..2 {
        pool.unstage_volume(&handle, "node-1").expect("unstaged");
        assert!(matches!(pool.delete_volume(&handle), Err(DeleteError::InUse { .. })), "published still");
    }
    // Whoever runs the cluster says that the node has it no more.
    pool.unpublish_volume(&handle, Some("node-1")).expect("unpublished");
    pool.stage_volume(&handle, "node-2", false).expect("free");
    // node-2 burns down. An administrator who is sure of it takes its registration away.
    assert!(matches!(pool.stage_volume(&handle, "node-1", false), Err(UseError::Elsewhere { .. })));
    fs::remove_file(mounted.path().join("nodes/node-2")).expect("its registration");
    pool.stage_volume(&handle, "node-1", false).expect("freed");
}

#[test]
fn a_disk_of_a_machine_goes_to_no_node() {
    let Some((_mounted, pool)) = pool("a_disk_of_a_machine_goes_to_no_node") else { return };
    let handle = pool.create_volume("pvc-1", at_least(MIB), None, &Limits::default()).expect("created").handle;
    pool.register_node("node-1").expect("registered");
    // As the agent's file connector writes it.
    let record = pool.image(&handle).with_file_name("writer.json");
    fs::write(&record, r#"{"uid": "1f", "epoch": 3, "identity": "metalplane-1f-3"}"#).expect("a writer");
    for refused in [pool.publish_volume(&handle, "node-1", false), pool.stage_volume(&handle, "node-1", true)] {
        let error = refused.expect_err("refused").to_string();
        assert!(error.contains("metalplane-1f-3") && error.contains("writer.json"), "{error}");
    }
    let deleted = pool.delete_volume(&handle).expect_err("its host writes it");
    assert!(
        matches!(&deleted, DeleteError::Machine(_)) && deleted.to_string().contains("metalplane-1f-3"),
        "{deleted}"
    );
    assert!(pool.image(&handle).exists());
    fs::remove_file(&record).expect("the DPU lets go");
    pool.publish_volume(&handle, "node-1", false).expect("free");
}

#[test]
fn a_disk_that_machines_read_goes_to_a_node_that_reads() {
    let Some((mounted, pool)) = pool("a_disk_that_machines_read_goes_to_a_node_that_reads") else { return };
    let create = |name| pool.create_volume(name, at_least(MIB), None, &Limits::default()).expect("created").handle;
    let (handle, other) = (create("pvc-1"), create("pvc-2"));
    pool.register_node("node-1").expect("registered");
    // As the agent's file connector writes it.
    let readers = mounted.path().join("readers");
    fs::create_dir(&readers).expect("a folder");
    fs::write(readers.join(format!("{handle}.metalplane-1f-1")), "").expect("a reader");
    pool.publish_volume(&other, "node-1", false).expect("another volume");
    for refused in [pool.publish_volume(&handle, "node-1", false), pool.stage_volume(&handle, "node-1", false)] {
        let error = refused.expect_err("refused").to_string();
        assert!(error.contains("metalplane-1f-1 reads") && error.contains("readers/"), "{error}");
    }
    assert!(matches!(pool.delete_volume(&handle), Err(DeleteError::Machine(_))));
    pool.publish_volume(&handle, "node-1", true).expect("a node may read beside them");
    pool.unpublish_volume(&handle, Some("node-1")).expect("unpublished");
    fs::remove_dir_all(&readers).expect("the DPU lets go");
    pool.delete_volume(&handle).expect("free");
}

#[test]
fn a_volume_grows_and_never_shrinks() {
    let Some((_mounted, pool)) = pool("a_volume_grows_and_never_shrinks") else { return };
    let handle = pool.create_volume("pvc-1", exactly(10 * MIB), None, &Limits::default()).expect("created").handle;
    for _ in 0..2 {
        let grown = pool.expand_volume(&handle, at_least(20 * MIB - 5)).expect("grown");
        assert_eq!(grown.record.size_bytes, 20 * MIB);
        assert_eq!(pool.image(&handle).metadata().expect("the image").len(), 20 * MIB);
    }
    assert_eq!(pool.expand_volume(&handle, at_least(5 * MIB)).expect("is enough").record.size_bytes, 20 * MIB);
    let below = pool.expand_volume(&handle, Range { required: Some(5 * MIB), limit: Some(6 * MIB) });
    assert!(matches!(below, Err(ExpandError::Size(_))), "{below:?}");
    let none = pool.expand_volume(&Handle::of_volume("none"), at_least(MIB));
    assert!(matches!(none, Err(ExpandError::NoSuchVolume(_))), "{none:?}");
}

#[test]
fn what_was_cut_from_a_volume_stays_as_it_was_when_the_volume_grows() {
    let Some((_mounted, pool)) = pool("what_was_cut_from_a_volume_stays_as_it_was_when_the_volume_grows") else {
        return;
    };
    let create =
        |name: &str, range, source: Option<&ContentSource>| pool.create_volume(name, range, source, &Limits::default());
    let handle = create("pvc-1", exactly(10 * MIB), None).expect("created").handle;
    let write = |handle: &Handle, byte: u8, at: u64| {
        let image = fs::File::options().write(true).open(pool.image(handle)).expect("an image");
        image.write_all_at(&[byte], at).expect("written");
    };
    let read = |handle: &Handle, at: u64| {
        let mut byte = [0];
        fs::File::open(pool.image(handle)).and_then(|image| image.read_exact_at(&mut byte, at)).expect("read");
        byte[0]
    };
    write(&handle, 1, 0);
    let before = pool.create_snapshot("before", &handle).expect("taken");
    pool.expand_volume(&handle, exactly(20 * MIB)).expect("grown");
    write(&handle, 2, 0);
    write(&handle, 3, 15 * MIB);
    let after = pool.create_snapshot("after", &handle).expect("taken");
    let mut sizes: Vec<_> = pool.snapshots().expect("listed").iter().map(|it| it.record.size_bytes).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [10 * MIB, 20 * MIB]);
    // A copy of the small one may be as large as the volume is now: what lies behind its end is nothing.
    let [before, after] = [before, after].map(|it| ContentSource::Snapshot(it.id.to_string()));
    let small = create("small", exactly(20 * MIB), Some(&before)).expect("restored").handle;
    assert_eq!((read(&small, 0), read(&small, 15 * MIB)), (1, 0));
    let large = create("large", exactly(20 * MIB), Some(&after)).expect("restored").handle;
    assert_eq!((read(&large, 0), read(&large, 15 * MIB)), (2, 3));
    let less = create("less", exactly(10 * MIB), Some(&after));
    assert!(matches!(less, Err(CreateError::Size(_))), "{less:?}");
    // And a copy that grows takes nothing from where it came from.
    pool.expand_volume(&small, exactly(30 * MIB)).expect("grown");
    write(&small, 4, 0);
    assert_eq!((read(&handle, 0), read(&handle, 15 * MIB)), (2, 3));
}

/// Writes all the time, each number to every image in turn, as a database does with its log and its tables.
fn numbers(images: &[PathBuf], pause: Duration, stop: &AtomicBool) {
    let open = |image: &PathBuf| fs::File::options().write(true).open(image).expect("an image");
    let files: Vec<fs::File> = images.iter().map(open).collect();
    for number in 1u64.. {
        for file in &files {
            file.write_all_at(&number.to_le_bytes(), 0).expect("written");
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(pause);
    }
}

/// Ends the writer, also when the test fails before it would have.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn number(image: &Path) -> u64 {
    let mut bytes = [0; 8];
    fs::File::open(image).and_then(|file| file.read_exact_at(&mut bytes, 0)).expect("a number");
    u64::from_le_bytes(bytes)
}

#[test]
fn a_group_is_cut_at_one_moment_under_a_writer() {
    let Some((mounted, pool)) = pool("a_group_is_cut_at_one_moment_under_a_writer") else { return };
    let make = |name: &str| pool.create_volume(name, at_least(MIB), None, &Limits::default()).expect("created").handle;
    let volumes: BTreeSet<Handle> = ["log", "table", "index"].map(make).into();
    let images: Vec<PathBuf> = volumes.iter().map(|handle| pool.image(handle)).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| numbers(&images, Duration::from_millis(500), &stop));
        for round in 0..8 {
            let group = pool.create_group(&format!("group-{round}"), &volumes).expect("cut in a pause");
            let numbers = cut_numbers(&mounted, &group, &volumes);
            assert!(is_one_moment(&numbers), "{numbers:?}");
        }
    });
}

/// How far each image had got when a group was cut, in the order of writing.
fn cut_numbers(mounted: &Mounted, group: &Group, volumes: &BTreeSet<Handle>) -> Vec<u64> {
    let folder = mounted.path().join("groups").join(group.id.as_str());
    let of = |snapshot: &Snapshot| (snapshot.record.source_volume.clone(), snapshot.id.clone());
    let cut: BTreeMap<String, Handle> = group.snapshots.iter().map(of).collect();
    volumes.iter().map(|volume| number(&folder.join(cut[volume.as_str()].as_str()).join("disk.img"))).collect()
}

/// No later image is ahead of an earlier one, and the first is at most one ahead.
fn is_one_moment(numbers: &[u64]) -> bool {
    numbers.is_sorted_by(|a, b| a >= b) && numbers[0] - numbers[numbers.len() - 1] <= 1
}

#[test]
fn volumes_that_are_written_all_the_time_are_cut_at_one_moment_or_not_at_all() {
    let test = "volumes_that_are_written_all_the_time_are_cut_at_one_moment_or_not_at_all";
    let Some((mounted, pool)) = pool(test) else { return };
    let make = |name: &str| pool.create_volume(name, at_least(MIB), None, &Limits::default()).expect("created").handle;
    let volumes: BTreeSet<Handle> = ["a", "b"].map(make).into();
    let images: Vec<PathBuf> = volumes.iter().map(|handle| pool.image(handle)).collect();
    let stop = AtomicBool::new(false);
    let cut = thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| numbers(&images, Duration::ZERO, &stop));
        while number(&images[1]) == 0 {
            thread::yield_now();
        }
        let alone = pool.create_group("alone", &volumes.iter().take(1).cloned().collect());
        assert_eq!(alone.expect("one volume is always at one moment").snapshots.len(), 1);
        // On a busy machine the writer itself may have to wait, and that is a pause.
        pool.create_group("group", &volumes)
    });
    match cut {
        Ok(group) => {
            let numbers = cut_numbers(&mounted, &group, &volumes);
            assert!(is_one_moment(&numbers), "{numbers:?}");
        }
        Err(GroupError::Busy { .. }) => {
            assert_eq!(names(&mounted.path().join("groups")).len(), 1, "nothing half is left");
            pool.create_group("group", &volumes).expect("cut once it is quiet");
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_group_is_found_again_restored_from_and_deleted_as_a_whole() {
    let Some((_mounted, pool)) = pool("a_group_is_found_again_restored_from_and_deleted_as_a_whole") else { return };
    let make = |name: &str| pool.create_volume(name, at_least(MIB), None, &Limits::default()).expect("created").handle;
    let [a, b, c] = ["a", "b", "c"].map(make);
    fs::write(pool.image(&a), vec![5; MIB as usize]).expect("content");
    let volumes = BTreeSet::from([a.clone(), b.clone()]);
    let group = pool.create_group("group", &volumes).expect("cut");
    assert_eq!(pool.create_group("group", &volumes).expect("found"), group);
    let other = pool.create_group("group", &BTreeSet::from([a.clone(), c]));
    assert!(matches!(other, Err(GroupError::Incompatible { .. })), "{other:?}");
    let none = pool.create_group("none", &BTreeSet::from([a.clone(), Handle::of_volume("none")]));
    assert!(matches!(none, Err(GroupError::NoSuchVolume(_))), "{none:?}");

    let alone = pool.create_snapshot("alone", &a).expect("taken");
    let listed = pool.snapshots().expect("listed");
    assert!(listed.is_sorted_by_key(|snapshot| snapshot.id.clone()) && listed.len() == 3 && listed.contains(&alone));
    let of_a = group.snapshots.iter().find(|snapshot| snapshot.record.source_volume == a.as_str()).expect("of a");
    assert_eq!(pool.snapshot(&of_a.id).expect("read").as_ref(), Some(of_a));
    pool.delete_volume(&a).expect("deleted while its snapshot stays");
    let source = ContentSource::Snapshot(of_a.id.to_string());
    let restored = pool.create_volume("restored", Range::default(), Some(&source), &Limits::default()).expect("made");
    assert_eq!(fs::read(pool.image(&restored.handle)).expect("the image"), vec![5; MIB as usize]);

    let single = pool.delete_snapshot(&of_a.id);
    assert!(matches!(single, Err(DeleteSnapshotError::InGroup { .. })), "{single:?}");
    let mismatch = pool.delete_group(&group.id, &[alone.id.to_string()]);
    assert!(matches!(mismatch, Err(GroupError::Members { .. })), "{mismatch:?}");
    let members: Vec<String> = group.snapshots.iter().map(|snapshot| snapshot.id.to_string()).collect();
    for _ in 0..2 {
        pool.delete_group(&group.id, &members).expect("deleted");
    }
    assert_eq!(pool.snapshots().expect("listed"), [alone]);
}

#[test]
fn limits_are_kept_and_a_class_is_the_whole_of_them() {
    let Some((_mounted, pool)) = pool("limits_are_kept_and_a_class_is_the_whole_of_them") else { return };
    let limits = |parameters: &[(&str, &str)]| Limits::parse(parameters.iter().copied()).expect("understood");
    let gold = limits(&[("iops", "20000"), ("bandwidthMiBps", "500")]);
    let volume = pool.create_volume("pvc-1", at_least(MIB), None, &gold).expect("created");
    assert_eq!(volume.record.limits, gold);
    assert_eq!(pool.create_volume("pvc-1", at_least(MIB), None, &gold).expect("found"), volume);
    let other = pool.create_volume("pvc-1", at_least(MIB), None, &limits(&[("iops", "1000")]));
    assert!(matches!(other, Err(CreateError::Incompatible { .. })), "{other:?}");
    let now = || pool.volume(&volume.handle).expect("read").expect("there").record.limits;
    for _ in 0..2 {
        pool.modify_volume(&volume.handle, &limits(&[("iops", "5000"), ("readMiBps", "0")])).expect("changed");
        assert_eq!(now(), limits(&[("iops", "5000")]), "what the class does not name is not limited");
    }
    pool.modify_volume(&volume.handle, &Limits::default()).expect("changed");
    assert!(now().is_empty());
    let none = pool.modify_volume(&Handle::of_volume("none"), &gold);
    assert!(matches!(none, Err(ModifyError::NoSuchVolume(_))), "{none:?}");
}

#[test]
fn what_is_wrong_with_a_volume_is_said() {
    let Some((mounted, pool)) = pool("what_is_wrong_with_a_volume_is_said") else { return };
    let volume = pool.create_volume("pvc-1", at_least(8 * MIB), None, &Limits::default()).expect("created");
    let reasons = || pool.ailments(&volume).iter().map(|it| (it.gravity, it.reason)).collect::<Vec<_>>();
    assert_eq!(reasons(), []);
    let image = pool.image(&volume.handle);
    fs::File::options().write(true).open(&image).and_then(|file| file.set_len(MIB)).expect("cut off");
    assert_eq!(reasons(), [(Gravity::DataLoss, "ImageTruncated")]);
    fs::remove_file(&image).expect("removed");
    assert_eq!(reasons(), [(Gravity::DataLoss, "ImageMissing")]);
    let ballast = fs::File::create(mounted.path().join("ballast")).expect("a file");
    let free = pool.capacity().expect("capacity").available;
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, free - 4 * MIB).expect("space is taken");
    assert_eq!(reasons(), [(Gravity::DataLoss, "ImageMissing"), (Gravity::Degraded, "PoolNearlyFull")]);
    assert_eq!(pool.ailment().map(|it| it.reason), Some("PoolNearlyFull"));
}

#[test]
fn what_a_crash_left_is_removed_and_the_retry_succeeds() {
    let Some((mounted, pool)) = pool("what_a_crash_left_is_removed_and_the_retry_succeeds") else { return };
    let kept = pool.create_volume("kept", at_least(MIB), None, &Limits::default()).expect("created");
    let halves = [
        mounted.path().join("volumes").join(format!(".tmp-{}", Handle::of_volume("half"))),
        mounted.path().join("snapshots").join(format!(".tmp-{}", Handle::of_snapshot("half"))),
        mounted.path().join("groups").join(format!(".tmp-{}", Handle::of_group("half"))),
    ];
    for half in &halves {
        fs::create_dir(half).expect("half a volume");
        fs::write(half.join("disk.img"), "half").expect("half an image");
    }
    // The same process, without a restart: the leftover is in the way of nobody, and of no list.
    assert_eq!(pool.volumes().expect("listed"), vec![kept.clone()]);
    pool.create_volume("half", at_least(MIB), None, &Limits::default()).expect("created over the leftover");
    fs::create_dir(&halves[0]).expect("half a volume again");
    // A restart.
    let pool = Pool::open("fast", &mounted.path()).expect("opened again");
    assert!(halves.iter().all(|half| !half.exists()));
    assert_eq!(pool.volumes().expect("listed").len(), 2);
    // An expansion that grew the file and died before its record did.
    fs::File::options().write(true).open(pool.image(&kept.handle)).expect("the image").set_len(5 * MIB).expect("grown");
    let snapshot = pool.create_snapshot("snap", &kept.handle).expect("taken");
    assert_eq!(snapshot.record.size_bytes, MIB);
    let copy = mounted.path().join("snapshots").join(snapshot.id.as_str()).join("disk.img");
    assert_eq!(copy.metadata().expect("the copy").len(), MIB);
}

#[test]
fn many_callers_of_one_name_make_one_volume() {
    let Some((_mounted, pool)) = pool("many_callers_of_one_name_make_one_volume") else { return };
    thread::scope(|scope| {
        let make = || pool.create_volume("pvc-1", at_least(MIB), None, &Limits::default()).expect("created").handle;
        let callers: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        for caller in callers {
            assert_eq!(caller.join().expect("a caller"), Handle::of_volume("pvc-1"));
        }
    });
    assert_eq!(pool.volumes().expect("listed").len(), 1);
}

#[test]
fn a_filesystem_without_reflinks_is_refused_by_name() {
    let test = "a_filesystem_without_reflinks_is_refused_by_name";
    let cases = [
        ("mkfs.ext4", &["-q"][..], "is on ext4,"),
        ("mkfs.xfs", &["-q", "-m", "reflink=0"][..], "is on XFS made without reflink,"),
    ];
    for (mkfs, flags, says) in cases {
        let Some(mounted) = Mounted::new(test, "400M", mkfs, flags) else { return };
        let error = Pool::open("fast", &mounted.path()).expect_err("refused");
        let text = error.to_string();
        assert!(
            matches!(error, OpenError::NoReflink { .. }) && text.contains(says) && text.contains("btrfs"),
            "{text}"
        );
        assert!(names(&mounted.path()).iter().all(|name| name == ".lock" || name == "lost+found"));
    }
    let absent = Pool::open("fast", Path::new("/nonexistent/pool"));
    assert!(matches!(absent, Err(OpenError::Absent { .. })), "{absent:?}");
}

#[test]
fn a_pool_works_on_btrfs() {
    let test = "a_pool_works_on_btrfs";
    let Some(mounted) = Mounted::new(test, "1G", "mkfs.btrfs", &["-q"]) else { return };
    let pool = Pool::open("fast", &mounted.path()).expect("opened");
    let volume = pool.create_volume("a", at_least(16 * MIB), None, &Limits::default()).expect("created");
    let source = ContentSource::Volume(volume.handle.to_string());
    pool.create_volume("b", at_least(32 * MIB), Some(&source), &Limits::default()).expect("cloned");
}
