//! A virtual server on a Ceph RBD image that QEMU opens itself: the volume is one of ceph-csi's, made by hand.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ::ceph::{Cluster, Clusters, DRIVER, Direct};
use planner::exposure::{Bus, ExposureId, FunctionKind, Slot};
use ports::emulation::DiskFunction;
use ports::volume::Volume;
use ports::{Emulation, VolumeConnector};
use qemu::QemuEmulation;
use sandbox::ceph::{Ceph, POOL, Programs};
use sandbox::guest::{self, Kind};
use serde_json::json;

use crate::support::{BOOT, Server, missing_for_boot, one_at_a_time, skip, wait_for};

const SOON: Duration = Duration::from_secs(90);
const MIB: u64 = 1 << 20;
const USER: &str = "metalplane";

/// As a PersistentVolume that an administrator made of an image.
fn volume(image: &str) -> Volume {
    let attributes = [("clusterID", "c"), ("pool", POOL), ("staticVolume", "true"), ("imageFeatures", "layering")];
    Volume {
        driver: DRIVER.to_owned(),
        handle: image.to_owned(),
        attributes: attributes.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..Volume::default()
    }
}

fn clusters(ceph: &Ceph) -> Clusters {
    let cluster = Cluster { user: USER.to_owned(), config_file: ceph.config_file() };
    Clusters::new(BTreeMap::from([("c".to_owned(), cluster)])).with_environment(ceph.programs().environment().clone())
}

fn id(uid: &str) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch: 1 }
}

async fn present(connector: &Direct, slots: &QemuEmulation, image: &str, uid: &str, slot: Slot) {
    let id = id(uid);
    let connection = connector.connect(&id, &volume(image)).await.expect("connect");
    let disk = DiskFunction {
        bus: if slot == Slot::Boot { Bus::NVMe } else { Bus::VirtioBlk },
        slot,
        serial: uid.to_owned(),
        uuid: "0b5c9a4e-9f0e-4f8e-8a53-6a1c6f0f8b11".to_owned(),
        backend: connection.backend,
        read_only: false,
        id,
    };
    slots.expose_disk(&disk).await.expect("present");
}

/// A golden image, its snapshot and a clone of it, and an empty image; all as `rbd` makes them.
async fn images(ceph: &Ceph, golden: &Path) {
    let golden = golden.display().to_string();
    let steps: [&[&str]; 5] = [
        &["import", "--no-progress", &golden, "golden"],
        &["snap", "create", "golden@s"],
        &["snap", "protect", "golden@s"],
        &["clone", "golden@s", "boot"],
        &["create", "--size", "64", "data"],
    ];
    for step in steps {
        ceph.run("rbd", step).await.expect("an image");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_boots_from_a_clone_in_ceph() {
    const NAME: &str = "a_server_boots_from_a_clone_in_ceph";
    if let Some(reason) = missing_for_boot() {
        return skip(NAME, &reason);
    }
    let programs = match Programs::find().await {
        Ok(programs) => programs,
        Err(error) => return skip(NAME, &format!("no Ceph: {error:#}")),
    };
    let Some(module) = programs.qemu_module().await else {
        return skip(NAME, "QEMU has no module for RBD (package qemu-block-extra)");
    };
    let golden = tokio::task::spawn_blocking(|| guest::image(Kind::Tiny, &sandbox::args::cache_folder()));
    let golden = golden.await.expect("no panic").expect("the guest image");
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().expect("a folder");
    let ceph = Ceph::start(&programs, folder.path()).await.expect("Ceph starts");
    ceph.user(USER).await.expect("a user");
    images(&ceph, &golden).await;

    let mut server = Server::start_with("standby", &module, |_| json!({}));
    crate::support::seed(&server.path("seed.img"), "i-1", "52:54:00:aa:00:01", "10.99.0.2/24");
    server.slots().seed(&server.path("seed.img"));
    let connector = Direct::new(clusters(&ceph), folder.path().join("dpu")).looking_again_after(Duration::ZERO);
    let slots = QemuEmulation::new(server.path("slots.sock"));
    present(&connector, &slots, "boot", "root", Slot::Boot).await;
    assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": ["Boot0001", "Boot0003"] })), 200);
    assert_eq!(server.redfish.reset("On"), 204);
    server.console("MP-BOOT i-1 guest-i-1", BOOT);

    present(&connector, &slots, "data", "data", Slot::HotPlug).await;
    server.console("=131072", SOON);
    ceph.run("rbd", ["resize", "--no-progress", "--size", "96", "data"]).await.expect("grown");
    let listed = connector.list().await.expect("list");
    let data = listed.iter().find(|connection| connection.id == id("data")).expect("it is connected");
    assert_eq!(data.size_bytes, 96 * MIB, "the connector tells of it");
    slots.resize_disk(&id("data"), data.size_bytes).await.expect("grown in the host");
    server.console("=196608", SOON);

    slots.hide(&id("data"), FunctionKind::Disk).await.expect("hidden");
    let shown = async || slots.list().await.expect("list").iter().any(|exposure| exposure.id == id("data"));
    let begun = std::time::Instant::now();
    while shown().await {
        assert!(begun.elapsed() < SOON, "the host does not let go within {SOON:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    connector.disconnect(&id("data")).await.expect("disconnect");
    let watched = ceph.run("rbd", ["status", "data"]).await.expect("its watchers");
    assert!(watched.contains("Watchers: none"), "QEMU has let go of it: {watched}");

    assert_eq!(server.redfish.reset("ForceOff"), 204);
    wait_for("power Off", SOON, || (server.redfish.power() == "Off").then_some(()));
    slots.hide(&id("root"), FunctionKind::Disk).await.expect("hidden");
    connector.disconnect(&id("root")).await.expect("disconnect");
    let parent = ceph.run("rbd", ["info", "boot"]).await.expect("the clone");
    assert!(parent.contains("parent: rbd/golden@s"), "it is a clone still: {parent}");
}
