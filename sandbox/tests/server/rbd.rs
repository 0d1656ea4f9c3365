//! A virtual server on Ceph RBD images: volumes of ceph-csi's, made by hand, that QEMU opens itself, or an SPDK target.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ::ceph::{Cluster, Clusters, DRIVER, Direct, Noted};
use planner::exposure::{Bus, ExposureId, FunctionKind, Limits, Slot};
use ports::emulation::{Backend, DiskFunction};
use ports::volume::Volume;
use ports::{Emulation, VolumeConnector};
use qemu::QemuEmulation;
use sandbox::args::cache_folder;
use sandbox::ceph::{CLUSTER, Lab, MIB, POOL, Programs, USER};
use sandbox::guest::{self, Kind};
use sandbox::server::vfio_user;
use sandbox::spdk::real;
use serde_json::{Value, json};
use spdk::SpdkEmulation;
use spdk::door::Door;
use spdk::host::Host;
use spdk::volumes::{SpdkConnector, rbd as spdk_rbd};

use crate::support::{BOOT, Server, missing_for_boot, one_at_a_time, skip, wait_for};

const SOON: Duration = Duration::from_secs(90);

/// A Ceph with a golden image, its snapshot, a clone of that, and an empty image; all as `rbd` makes them.
async fn lab(programs: &Programs) -> Lab {
    let golden = tokio::task::spawn_blocking(|| guest::image(Kind::Tiny, &cache_folder()));
    let golden = golden.await.expect("no panic").expect("the guest image").display().to_string();
    let lab = Lab::of(programs).await.expect("Ceph starts");
    let steps: [&[&str]; 5] = [
        &["import", "--no-progress", &golden, "golden"],
        &["snap", "create", "golden@s"],
        &["snap", "protect", "golden@s"],
        &["clone", "golden@s", "boot"],
        &["create", "--size", "64", "data"],
    ];
    for step in steps {
        rbd(&lab, step).await;
    }
    lab
}

fn clusters(lab: &Lab) -> Clusters {
    let cluster = Cluster { user: USER.to_owned(), config_file: lab.config_file() };
    Clusters::new(BTreeMap::from([(CLUSTER.to_owned(), cluster)])).with_environment(lab.environment())
}

async fn rbd(lab: &Lab, words: &[&str]) -> String {
    lab.ceph.run("rbd", words).await.expect("it does")
}

/// As a PersistentVolume that an administrator made of an image.
fn volume(image: &str) -> Volume {
    let attributes = [("clusterID", CLUSTER), ("pool", POOL), ("staticVolume", "true"), ("imageFeatures", "layering")];
    Volume {
        driver: DRIVER.to_owned(),
        handle: image.to_owned(),
        attributes: attributes.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..Volume::default()
    }
}

fn id(uid: &str) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch: 1 }
}

fn disk(uid: &str, bus: Bus, slot: Slot, backend: Backend) -> DiskFunction {
    let uuid = uuid::Uuid::new_v4().to_string();
    let read_only = slot == Slot::Seed;
    DiskFunction { id: id(uid), bus, slot, serial: uid.to_owned(), uuid, backend, limits: Limits::default(), read_only }
}

/// What a disk on an image goes through while the host runs, and the boot from a clone before it.
async fn whole_life(
    lab: &Lab,
    server: &mut Server,
    connector: &impl VolumeConnector,
    slots: &impl Emulation,
    hot_plug: Bus,
) {
    let boot = connector.connect(&id("root"), &volume("boot")).await.expect("connect");
    slots.expose_disk(&disk("root", Bus::NVMe, Slot::Boot, boot.backend)).await.expect("present");
    assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": ["Boot0001", "Boot0003"] })), 200);
    assert_eq!(server.redfish.reset("On"), 204);
    server.console("MP-BOOT i-1 guest-i-1", BOOT);

    let data = connector.connect(&id("data"), &volume("data")).await.expect("connect");
    slots.expose_disk(&disk("data", hot_plug, Slot::HotPlug, data.backend)).await.expect("present");
    server.console("=131072", SOON);
    rbd(lab, &["resize", "--no-progress", "--size", "96", "data"]).await;
    until("the connector tells of the growth", async || {
        let listed = connector.list().await.expect("list");
        listed.iter().any(|connection| connection.id == id("data") && connection.size_bytes == 96 * MIB)
    })
    .await;
    slots.resize_disk(&id("data"), 96 * MIB).await.expect("grown in the host");
    server.console("=196608", SOON);

    slots.hide(&id("data"), FunctionKind::Disk).await.expect("hidden");
    until("the host lets go", async || {
        slots.list().await.expect("list").iter().all(|exposure| exposure.id != id("data"))
    })
    .await;
    connector.disconnect(&id("data")).await.expect("disconnect");
    let watched = rbd(lab, &["status", "data"]).await;
    assert!(watched.contains("Watchers: none"), "nobody has it open: {watched}");

    assert_eq!(server.redfish.reset("ForceOff"), 204);
    wait_for("power Off", SOON, || (server.redfish.power() == "Off").then_some(()));
    slots.hide(&id("root"), FunctionKind::Disk).await.expect("hidden");
    connector.disconnect(&id("root")).await.expect("disconnect");
    let clone = rbd(lab, &["info", "boot"]).await;
    assert!(clone.contains("parent: rbd/golden@s"), "it is a clone still: {clone}");
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < SOON, "{what}: not within {SOON:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// `None`, with the reason on stderr, where Ceph or what boots a guest is missing.
async fn programs(test: &str) -> Option<Programs> {
    if let Some(reason) = missing_for_boot() {
        skip(test, &reason);
        return None;
    }
    Programs::find().await.inspect_err(|error| skip(test, &format!("no Ceph: {error:#}"))).ok()
}

fn seed(server: &Server) {
    crate::support::seed(&server.path("seed.img"), "i-1", "52:54:00:aa:00:01", "10.99.0.2/24");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_boots_from_a_clone_in_ceph() {
    const NAME: &str = "a_server_boots_from_a_clone_in_ceph";
    let Some(programs) = programs(NAME).await else { return };
    let Some(module) = programs.qemu_module().await else {
        return skip(NAME, "this QEMU has no client of Ceph (package qemu-block-extra)");
    };
    let _turn = one_at_a_time();
    let lab = lab(&programs).await;
    let mut server = Server::start_with("standby", &module, |_| json!({}));
    seed(&server);
    server.slots().seed(&server.path("seed.img"));
    let connector = Direct::new(clusters(&lab), lab.path("dpu")).looking_again_after(Duration::ZERO);
    let slots = QemuEmulation::new(server.path("slots.sock"));
    whole_life(&lab, &mut server, &connector, &slots, Bus::VirtioBlk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_boots_from_a_clone_in_ceph_by_spdk() {
    const NAME: &str = "a_server_boots_from_a_clone_in_ceph_by_spdk";
    let program = match real::program("nvmf_tgt") {
        Ok(program) => program,
        Err(missing) => return skip(NAME, &missing),
    };
    let Some(programs) = programs(NAME).await else { return };
    let own = match vfio_user::qemu(&cache_folder()).await {
        Ok(own) => own,
        Err(error) => return skip(NAME, &format!("{error:#}")),
    };
    let _turn = one_at_a_time();
    let target_folder = tempfile::tempdir().expect("a folder");
    let target = real::Target::start(&program, target_folder.path()).await.expect("the target starts");
    let methods = real::ask(target.socket(), "rpc_get_methods", Value::Null).await.expect("its methods");
    if !methods.as_array().is_some_and(|all| all.iter().any(|one| one == "bdev_rbd_create")) {
        return skip(NAME, "this SPDK was built without --with-rbd");
    }
    let lab = lab(&programs).await;
    let mut server = Server::start("standby", |folder| json!({ "vfioUser": folder.join("vfio-user"), "qemu": own }));
    seed(&server);
    let known = spdk_rbd::Cluster { user: USER.to_owned(), config_file: lab.config_file() };
    let images = SpdkConnector::new(target.socket(), spdk_rbd::Rbd::new(BTreeMap::from([(CLUSTER.to_owned(), known)])));
    let connector = Noted::new(images, clusters(&lab), lab.path("dpu")).looking_again_after(Duration::ZERO);
    let host = Host {
        nqn: "nqn.2026-01.io.metalplane:dpu:test".to_owned(),
        serial: "MP-TEST-1".to_owned(),
        door: Door::VfioUser { folder: server.path("vfio-user") },
        hot_plug: 4,
    };
    let slots = SpdkEmulation::new(target.socket(), host, lab.path("spdk")).expect("the driver");
    let file = disk("seed", Bus::NVMe, Slot::Seed, Backend::Path(server.path("seed.img")));
    slots.expose_disk(&file).await.expect("present");
    whole_life(&lab, &mut server, &connector, &slots, Bus::NVMe).await;
}
