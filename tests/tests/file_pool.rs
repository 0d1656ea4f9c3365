//! The file pool from both sides, on a real XFS: the CSI driver publishes volumes to nodes, an agent connects them for
//! machines. A volume has one client that writes, or any number that only read.

#[path = "../../csi/tests/fixture/mod.rs"]
mod fixture;

use csi::pool::{DeleteError, Handle, Limits, Pool, Range};
use file::{FileConnector, FileFence};
use fixture::Mounted;
use planner::exposure::ExposureId;
use ports::volume::Volume;
use ports::{ErrorClass, PortError, StorageFence, VolumeConnector};
use std::sync::Barrier;
use std::time::Duration;

const NODE: &str = "node-1";
const ROUNDS: u64 = 60;

/// The pool as both have it.
struct Site {
    pool: Pool,
    connector: FileConnector,
    volume: Volume,
    handle: Handle,
    /// Unmounted last.
    mounted: Mounted,
}

impl Site {
    fn new(test: &str) -> Option<Site> {
        let mounted = Mounted::xfs(test, "320M")?;
        let pool = Pool::open("fast", &mounted.path()).expect("a pool on XFS opens");
        pool.register_node(NODE).expect("registered");
        let range = Range { required: Some(1 << 20), limit: None };
        let handle = pool.create_volume("pvc-1", range, None, &Limits::default()).expect("created").handle;
        let pools = [("fast".to_owned(), mounted.path())].into();
        let connector = FileConnector::new(pools, mounted.beside().join("connections"));
        let attributes = [("pool".to_owned(), "fast".to_owned())].into();
        let (driver, name) = (file::DRIVER.to_owned(), handle.to_string());
        let volume = Volume { driver, handle: name, attributes, ..Volume::default() };
        Some(Site { pool, connector, volume, handle, mounted })
    }

    /// Of a DPU of that name, as it boots: it remembers nothing of an earlier boot.
    fn dpu(&self, name: &str) -> FileConnector {
        FileConnector::new([("fast".to_owned(), self.mounted.path())].into(), self.mounted.beside().join(name))
    }

    fn refuses_deletion(&self, client: &str) {
        let error = self.pool.delete_volume(&self.handle).expect_err("a machine has it");
        assert!(matches!(&error, DeleteError::Machine(_)) && error.to_string().contains(client), "{error}");
    }

    fn connect(&self, epoch: u64) -> Result<(), PortError> {
        block_on(self.connector.connect(&id(epoch), &self.volume)).map(drop)
    }

    fn disconnect(&self, epoch: u64) {
        block_on(self.connector.disconnect(&id(epoch))).expect("disconnected");
    }
}

fn id(epoch: u64) -> ExposureId {
    ExposureId { uid: "5f0c1c9e-58a4".to_owned(), epoch }
}

/// In this thread, and in threads that it starts: they have its mounts.
fn block_on<T>(step: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(step)
}

#[test]
fn a_second_client_is_refused_whoever_comes_first() {
    let Some(site) = Site::new("a_second_client_is_refused_whoever_comes_first") else { return };
    site.connect(1).expect("nobody has it");
    for refused in [
        site.pool.publish_volume(&site.handle, NODE, false),
        site.pool.publish_volume(&site.handle, NODE, true),
        site.pool.stage_volume(&site.handle, NODE, false),
    ] {
        let error = refused.expect_err("a machine has it").to_string();
        assert!(error.contains("metalplane-5f0c1c9e-58a4-1"), "{error}");
    }
    site.disconnect(1);
    site.pool.publish_volume(&site.handle, NODE, false).expect("the machine gave it back");
    let error = site.connect(2).expect_err("a node has it");
    assert!(error.class == ErrorClass::Busy && error.message.contains(NODE), "{error}");
    // An unpublished node may still have it attached.
    site.pool.stage_volume(&site.handle, NODE, false).expect("its own");
    site.pool.unstage_volume(&site.handle, NODE).expect("detached");
    assert!(site.connect(2).is_err(), "published still");
    site.pool.unpublish_volume(&site.handle, Some(NODE)).expect("unpublished");
    site.connect(2).expect("the node gave it back");
}

#[test]
fn readers_share_a_volume_and_keep_writers_out() {
    let Some(site) = Site::new("readers_share_a_volume_and_keep_writers_out") else { return };
    let reads = Volume { read_only: true, ..site.volume.clone() };
    let [one, two] =
        ["one", "two"].map(|name| (site.dpu(name), ExposureId { uid: format!("reader-{name}"), epoch: 1 }));
    for (dpu, id) in [&one, &two] {
        block_on(dpu.connect(id, &reads)).expect("of readers there may be many");
        site.refuses_deletion("reader-one");
    }
    let error = site.connect(1).expect_err("its readers would see it change");
    assert!(error.class == ErrorClass::Busy && error.message.contains("reads the volume"), "{error}");
    site.pool.publish_volume(&site.handle, NODE, false).expect_err("nor does a node write beside them");
    site.pool.publish_volume(&site.handle, NODE, true).expect("a node may read");
    site.pool.unpublish_volume(&site.handle, Some(NODE)).expect("unpublished");
    // The second boots, and has forgotten what it had by the time it is taken back.
    block_on(one.0.disconnect(&one.1)).expect("disconnected");
    assert!(site.connect(1).is_err(), "the other reads still");
    block_on(site.dpu("two anew").disconnect(&two.1)).expect("disconnected");
    site.connect(1).expect("nobody reads any more");
    let error = block_on(one.0.connect(&one.1, &reads)).expect_err("it is written");
    assert!(error.class == ErrorClass::Busy && error.message.contains("writes the volume"), "{error}");
    site.disconnect(1);
    site.pool.publish_volume(&site.handle, NODE, false).expect("free");
    let error = block_on(one.0.connect(&one.1, &reads)).expect_err("the node writes it");
    assert!(error.class == ErrorClass::Busy && error.message.contains(NODE), "{error}");
    site.pool.unpublish_volume(&site.handle, Some(NODE)).expect("unpublished");
    site.pool.delete_volume(&site.handle).expect("nobody has it");
}

#[test]
fn what_a_dpu_that_went_down_had_is_free_once_it_is_dismissed() {
    let Some(site) = Site::new("what_a_dpu_that_went_down_had_is_free_once_it_is_dismissed") else { return };
    let fence = FileFence::new([("fast".to_owned(), site.mounted.path())].into());
    let dismiss =
        |id: &ExposureId| block_on(fence.dismiss(&site.volume, &fence.fence_identity(id))).expect("dismissed");
    site.connect(3).expect("connect");
    dismiss(&id(2));
    site.refuses_deletion("metalplane-5f0c1c9e-58a4-3");
    for _ in 0..2 {
        dismiss(&id(3));
    }
    assert_eq!(site.connect(3).expect_err("it is over").class, ErrorClass::Unauthorized);
    let (reads, reader) = (Volume { read_only: true, ..site.volume.clone() }, id(1));
    block_on(site.dpu("one").connect(&reader, &reads)).expect("connect");
    site.refuses_deletion("metalplane-5f0c1c9e-58a4-1");
    dismiss(&reader);
    site.pool.delete_volume(&site.handle).expect("nobody has it");
}

#[test]
fn of_a_pod_and_a_machine_that_ask_at_once_one_is_refused() {
    let Some(site) = Site::new("of_a_pod_and_a_machine_that_ask_at_once_one_is_refused") else { return };
    let both = Barrier::new(2);
    let mut pods = 0;
    for epoch in 1..=ROUNDS {
        let (published, connected) = std::thread::scope(|scope| {
            let pod = scope.spawn(|| {
                both.wait();
                // Who comes first moves from the one to the other.
                std::thread::sleep(Duration::from_micros(100 * epoch));
                site.pool.publish_volume(&site.handle, NODE, false)
            });
            both.wait();
            let connected = site.connect(epoch);
            (pod.join().expect("no panic"), connected)
        });
        let story = format!("round {epoch}: {published:?}, {connected:?}");
        assert_ne!(published.is_ok(), connected.is_ok(), "{story}");
        pods += u64::from(published.is_ok());
        site.pool.unpublish_volume(&site.handle, Some(NODE)).expect("unpublished");
        site.disconnect(epoch);
    }
    eprintln!("the pod came first in {pods} of {ROUNDS} rounds");
}
