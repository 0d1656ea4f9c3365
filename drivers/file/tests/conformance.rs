//! The suite of the port on real directories, and what is special to files.

use async_trait::async_trait;
use file::{DRIVER, FileConnector};
use planner::exposure::ExposureId;
use ports::conformance::volume::{Bench, suite};
use ports::volume::{Fence, Volume};
use ports::{ErrorClass, VolumeConnector};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use tempfile::TempDir;

struct FilePool {
    root: TempDir,
}

impl FilePool {
    fn new() -> Self {
        let pool = Self { root: tempfile::tempdir().expect("a directory") };
        fs::create_dir_all(pool.root.path().join("pool/volumes")).expect("make the pool");
        pool
    }

    fn connector(&self) -> FileConnector {
        let pools = BTreeMap::from([("fast".to_owned(), self.root.path().join("pool"))]);
        FileConnector::new(pools, self.root.path().join("run/connections"))
    }

    fn directory(&self, handle: &str) -> PathBuf {
        self.root.path().join("pool/volumes").join(handle)
    }

    fn make(&self, handle: &str, size_bytes: u64) -> Volume {
        fs::create_dir(self.directory(handle)).expect("a fresh volume");
        let disk = File::create(self.directory(handle).join("disk.img")).expect("a disk");
        disk.set_len(size_bytes).expect("a sparse disk");
        volume(handle)
    }
}

fn volume(handle: &str) -> Volume {
    let attributes = [("pool", "fast"), ("format", "raw")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    Volume { driver: DRIVER.to_owned(), handle: handle.to_owned(), attributes: attributes.into(), ..Volume::default() }
}

fn id(uid: &str, epoch: u64) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch }
}

#[async_trait]
impl Bench for FilePool {
    type Connector = FileConnector;

    async fn open(&self) -> FileConnector {
        self.connector()
    }

    async fn volume(&self, number: u8, size_bytes: u64) -> Volume {
        self.make(&format!("pvc-{number}"), size_bytes)
    }

    async fn missing_volume(&self) -> Volume {
        volume("pvc-missing")
    }

    async fn grow(&self, volume: &Volume, size_bytes: u64) {
        let disk = File::options().write(true).open(self.directory(&volume.handle).join("disk.img")).expect("a disk");
        disk.set_len(size_bytes).expect("grow");
    }
}

#[tokio::test]
async fn conforms() {
    let pool = FilePool::new();
    suite(&pool).await;
    assert_eq!(pool.connector().fence(), Fence::OwnDriver);
}

#[tokio::test]
async fn a_holder_that_slept_through_the_next_grant_is_refused() {
    let (one_dpu, volume) = {
        let pool = FilePool::new();
        let volume = pool.make("pvc-1", 4096);
        (pool, volume)
    };
    // Another DPU: the same pool, its own records.
    let pools = BTreeMap::from([("fast".to_owned(), one_dpu.root.path().join("pool"))]);
    let other_dpu = FileConnector::new(pools, one_dpu.root.path().join("other-run"));

    other_dpu.connect(&id("b", 6), &volume).await.expect("the later grant connects first");
    let error = one_dpu.connector().connect(&id("a", 5), &volume).await.expect_err("the earlier one slept");
    assert_eq!(error.class, ErrorClass::Conflict);
    assert!(error.message.contains("b epoch 6"), "{error}");
    let reader = Volume { read_only: true, ..volume.clone() };
    let error = one_dpu.connector().connect(&id("r", 1), &reader).await.expect_err("it is written");
    assert!(error.class == ErrorClass::Busy && error.message.contains("metalplane-b-6 writes"), "{error}");
    // The DPU of epoch 6 is lost without a disconnect; its grant ends by proof and the next epoch takes over.
    one_dpu.connector().connect(&id("a", 7), &volume).await.expect("the next grant");
    other_dpu.disconnect(&id("b", 6)).await.expect("a late disconnect");
    let error = other_dpu.connect(&id("c", 6), &volume).await.expect_err("the record of epoch 7 is still there");
    assert_eq!(error.class, ErrorClass::Conflict);
}

#[tokio::test]
async fn a_vanished_disk_is_listed_with_no_size() {
    let pool = FilePool::new();
    let connector = pool.connector();
    let volume = pool.make("pvc-1", 4096);
    connector.connect(&id("a", 1), &volume).await.expect("connect");
    fs::remove_dir_all(pool.directory("pvc-1")).expect("somebody deletes the volume");
    let listed = connector.list().await.expect("list");
    assert_eq!((&listed[0].id, listed[0].size_bytes), (&id("a", 1), 0));
    connector.disconnect(&id("a", 1)).await.expect("disconnect");
    assert_eq!(connector.list().await.expect("list"), []);
}

#[tokio::test]
async fn links_out_of_the_pool_are_no_volumes() {
    let pool = FilePool::new();
    let secret = pool.root.path().join("secret");
    fs::write(&secret, "not yours").expect("write");
    fs::create_dir(pool.directory("pvc-1")).expect("make");
    std::os::unix::fs::symlink(&secret, pool.directory("pvc-1").join("disk.img")).expect("link");
    std::os::unix::fs::symlink(pool.root.path(), pool.directory("pvc-2")).expect("link");
    fs::write(pool.root.path().join("disk.img"), "not yours").expect("write");
    for handle in ["pvc-1", "pvc-2"] {
        let error = pool.connector().connect(&id("a", 1), &volume(handle)).await.expect_err(handle);
        assert_eq!(error.class, ErrorClass::Invalid, "{error}");
    }
    assert_eq!(pool.connector().list().await.expect("list"), []);
}

#[tokio::test]
async fn a_uid_cannot_name_another_file() {
    let pool = FilePool::new();
    let volume = pool.make("pvc-1", 4096);
    for uid in ["", "../a", "a/b", "A"] {
        let connector = pool.connector();
        assert_eq!(connector.connect(&id(uid, 1), &volume).await.expect_err(uid).class, ErrorClass::Invalid);
        assert_eq!(connector.disconnect(&id(uid, 1)).await.expect_err(uid).class, ErrorClass::Invalid);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_one_writer_wins() {
    let pool = FilePool::new();
    let volume = pool.make("pvc-1", 4096);
    let attempts: Vec<_> = (0..16)
        .map(|number| {
            let (connector, volume) = (pool.connector(), volume.clone());
            tokio::spawn(async move { connector.connect(&id(&format!("u{number}"), 1), &volume).await.is_ok() })
        })
        .collect();
    let mut winners = 0;
    for attempt in attempts {
        winners += usize::from(attempt.await.expect("no panic"));
    }
    assert_eq!(winners, 1);
    assert_eq!(pool.connector().list().await.expect("list").len(), 1);
}

#[tokio::test]
async fn a_volume_that_a_node_has_is_refused_to_a_writer() {
    let pool = FilePool::new();
    let volume = pool.make("pvc-1", 4096);
    let (record, nodes) = (pool.directory("pvc-1").join("volume.json"), pool.root.path().join("pool/nodes"));
    fs::create_dir(&nodes).expect("make");
    fs::write(nodes.join("node-1"), "").expect("register");
    let connector = pool.connector();
    for list in ["published", "staged"] {
        // As the CSI driver writes it, with all that this side does not read.
        let text = format!(
            r#"{{"name": "pvc-1", "sizeBytes": 4096, "created": "2026-11-22T00:00:00Z",
                "{list}": [{{"node": "node-1", "readOnly": false}}]}}"#
        );
        fs::write(&record, text).expect("write");
        let error = connector.connect(&id("a", 1), &volume).await.expect_err(list);
        assert_eq!(error.class, ErrorClass::Busy, "{error}");
        assert!(error.message.contains("node-1 has the volume") && error.message.contains("nodes/node-1"), "{error}");
        assert_eq!(connector.list().await.expect("list"), [], "{list}: it left a connection");
        assert!(!pool.directory("pvc-1").join("writer.json").exists(), "{list}: it left a writer");
        let reader = Volume { read_only: true, ..volume.clone() };
        let error = connector.connect(&id("r", 1), &reader).await.expect_err("the node writes");
        assert_eq!(error.class, ErrorClass::Busy, "{error}");
    }
    fs::remove_file(nodes.join("node-1")).expect("the node is gone for good");
    connector.connect(&id("a", 1), &volume).await.expect("nobody has it");
}
