//! The file pool from both sides, on a real XFS: the CSI driver publishes volumes to nodes, an agent connects them for
//! machines. A volume has one client.

#[path = "../../csi/tests/fixture/mod.rs"]
mod fixture;

use csi::pool::{Handle, Limits, Pool, Range};
use file::FileConnector;
use fixture::Mounted;
use planner::exposure::ExposureId;
use ports::volume::Volume;
use ports::{ErrorClass, PortError, VolumeConnector};
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
    _mounted: Mounted,
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
        Some(Site { pool, connector, volume, handle, _mounted: mounted })
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
