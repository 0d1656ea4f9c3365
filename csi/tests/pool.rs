//! The pool's operations on a real XFS: what csi-sanity asks of a driver, and what a crash may leave.

mod fixture;

use csi::pool::{
    ContentSource, CreateError, DeleteError, ExpandError, Handle, OpenError, Pool, Range, SizeError, SnapshotError,
    UseError,
};
use fixture::Mounted;
use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    thread,
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
    let volume = pool.create_volume("pvc-1", at_least(100 * MIB + 1), None).expect("created");
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
    let first = pool.create_volume("pvc-1", exactly(10 * MIB), None).expect("created");
    assert_eq!(pool.create_volume("pvc-1", exactly(10 * MIB), None).expect("found"), first);
    assert_eq!(pool.create_volume("pvc-1", Range::default(), None).expect("found"), first);
    let other_size = pool.create_volume("pvc-1", exactly(20 * MIB), None);
    assert!(matches!(other_size, Err(CreateError::Incompatible { .. })), "{other_size:?}");
    let source = ContentSource::Volume(first.handle.to_string());
    let other_source = pool.create_volume("pvc-1", exactly(10 * MIB), Some(&source));
    assert!(matches!(other_source, Err(CreateError::Incompatible { .. })), "{other_source:?}");
    assert_eq!(pool.volumes().expect("listed"), [first]);
}

#[test]
fn a_clone_shares_blocks_has_the_content_and_is_on_its_own() {
    let Some((_mounted, pool)) = pool("a_clone_shares_blocks_has_the_content_and_is_on_its_own") else { return };
    let golden = pool.create_volume("golden", at_least(64 * MIB), None).expect("created");
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
    let clone = pool.create_volume("clone", at_least(128 * MIB), Some(&source)).expect("cloned");
    let used = before.saturating_sub(pool.capacity().expect("capacity").available);
    assert!(used < 4 * MIB, "a clone of 8 MiB took {used} bytes");
    assert_eq!(clone.record.source, Some(source.clone()));
    let image = fs::read(pool.image(&clone.handle)).expect("the clone");
    assert_eq!(image.len() as u64, 128 * MIB);
    assert!(image[..8 << 20].iter().all(|byte| *byte == 7) && image[8 << 20..].iter().all(|byte| *byte == 0));

    pool.delete_volume(&golden.handle).expect("deleted while its snapshot stays");
    pool.delete_snapshot(&snapshot.id).expect("deleted while its clone stays");
    assert_eq!(pool.create_volume("clone", at_least(128 * MIB), Some(&source)).expect("found"), clone);
    let late = pool.create_volume("late", Range::default(), Some(&source));
    assert!(matches!(late, Err(CreateError::NoSource(..))), "{late:?}");
}

#[test]
fn a_restore_below_the_image_s_size_is_refused() {
    let Some((_mounted, pool)) = pool("a_restore_below_the_image_s_size_is_refused") else { return };
    let volume = pool.create_volume("golden", exactly(50 * MIB), None).expect("created");
    let snapshot = pool.create_snapshot("snap", &volume.handle).expect("taken");
    let source = ContentSource::Snapshot(snapshot.id.to_string());
    let small = pool.create_volume("small", at_least(49 * MIB), Some(&source));
    assert!(matches!(small, Err(CreateError::Size(SizeError::BelowSource { .. }))), "{small:?}");
    let same = pool.create_volume("same", Range::default(), Some(&source)).expect("of the source's size");
    assert_eq!(same.record.size_bytes, 50 * MIB);
}

#[test]
fn no_volume_is_larger_than_its_pool_but_together_they_may_be() {
    let Some((_mounted, pool)) = pool("no_volume_is_larger_than_its_pool_but_together_they_may_be") else { return };
    let total = pool.capacity().expect("capacity").total;
    let large = pool.create_volume("large", at_least(total + MIB), None);
    assert!(matches!(large, Err(CreateError::Size(SizeError::AbovePool { .. }))), "{large:?}");
    for name in ["a", "b", "c"] {
        pool.create_volume(name, at_least(total - MIB), None).expect("thin");
    }
}

#[test]
fn snapshots_are_found_again_by_name_and_belong_to_one_volume() {
    let Some((_mounted, pool)) = pool("snapshots_are_found_again_by_name_and_belong_to_one_volume") else { return };
    let [a, b] = ["a", "b"].map(|name| pool.create_volume(name, at_least(MIB), None).expect("created").handle);
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
    let handle = pool.create_volume("pvc-1", at_least(MIB), None).expect("created").handle;
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
    let handle = pool.create_volume("pvc-1", at_least(MIB), None).expect("created").handle;
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
    let handle = pool.create_volume("pvc-1", at_least(MIB), None).expect("created").handle;
    pool.register_node("node-1").expect("registered");
    // As the agent's file connector writes it.
    let record = pool.image(&handle).with_file_name("writer.json");
    fs::write(&record, r#"{"uid": "1f", "epoch": 3, "identity": "metalplane-1f-3"}"#).expect("a writer");
    for refused in [pool.publish_volume(&handle, "node-1", false), pool.stage_volume(&handle, "node-1", true)] {
        let error = refused.expect_err("refused").to_string();
        assert!(error.contains("metalplane-1f-3") && error.contains("writer.json"), "{error}");
    }
    fs::remove_file(&record).expect("the DPU lets go");
    pool.publish_volume(&handle, "node-1", false).expect("free");
}

#[test]
fn a_volume_grows_and_never_shrinks() {
    let Some((_mounted, pool)) = pool("a_volume_grows_and_never_shrinks") else { return };
    let handle = pool.create_volume("pvc-1", exactly(10 * MIB), None).expect("created").handle;
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
fn what_a_crash_left_is_removed_and_the_retry_succeeds() {
    let Some((mounted, pool)) = pool("what_a_crash_left_is_removed_and_the_retry_succeeds") else { return };
    let kept = pool.create_volume("kept", at_least(MIB), None).expect("created");
    let halves = [
        mounted.path().join("volumes").join(format!(".tmp-{}", Handle::of_volume("half"))),
        mounted.path().join("snapshots").join(format!(".tmp-{}", Handle::of_snapshot("half"))),
    ];
    for half in &halves {
        fs::create_dir(half).expect("half a volume");
        fs::write(half.join("disk.img"), "half").expect("half an image");
    }
    // The same process, without a restart: the leftover is in the way of nobody, and of no list.
    assert_eq!(pool.volumes().expect("listed"), vec![kept.clone()]);
    pool.create_volume("half", at_least(MIB), None).expect("created over the leftover");
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
        let make = || pool.create_volume("pvc-1", at_least(MIB), None).expect("created").handle;
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
    let volume = pool.create_volume("a", at_least(16 * MIB), None).expect("created");
    let source = ContentSource::Volume(volume.handle.to_string());
    pool.create_volume("b", at_least(32 * MIB), Some(&source)).expect("cloned");
}
