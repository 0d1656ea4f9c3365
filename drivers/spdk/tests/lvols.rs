//! Logical volumes of an lvstore: against the fake, and against a real target where SPDK is installed.

use ports::LogicalVolumes;
use ports::conformance::lvol::suite;
use ports::lvol::Export;
use sandbox::spdk::{Fake, real};
use serde_json::json;
use spdk::lvols::SpdkLvols;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

const MIB: u64 = 1 << 20;
const CLUSTER: u64 = 4 * MIB;

fn free_address() -> SocketAddr {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.local_addr().expect("its address")
}

fn fake(folder: &Path) -> (Fake, SpdkLvols) {
    let fake = Fake::start(folder).expect("a fake target");
    fake.with(|world| world.add_lvstore("lvs0", CLUSTER, 1000));
    let store = SpdkLvols::new(fake.socket(), "lvs0", free_address());
    (fake, store)
}

#[tokio::test]
async fn the_fake_conforms() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fake, store) = fake(folder.path());
    suite(&store).await;
    assert_eq!(fake.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_real_target_conforms() {
    const NAME: &str = "a_real_target_conforms";
    let program = match real::program("nvmf_tgt") {
        Ok(program) => program,
        Err(missing) => return eprintln!("SKIP {NAME}: {missing}"),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let target = real::Target::start(&program, folder.path()).await.expect("the target starts");
    let disk = folder.path().join("disk.img");
    std::fs::File::create(&disk).and_then(|file| file.set_len(4 << 30)).expect("a disk");
    for (method, params) in [
        ("bdev_aio_create", json!({"name": "disk", "filename": disk, "block_size": 512})),
        ("bdev_lvol_create_lvstore", json!({"bdev_name": "disk", "lvs_name": "lvs0", "clear_method": "none"})),
    ] {
        real::ask(target.socket(), method, params).await.expect(method);
    }
    suite(&SpdkLvols::new(target.socket(), "lvs0", free_address())).await;
}

/// One that an administrator shows by a subsystem of his own is his.
#[tokio::test]
async fn what_another_subsystem_shows_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fake, store) = fake(folder.path());
    store.create("a", CLUSTER).await.expect("create");
    for (method, params) in [
        ("nvmf_create_subsystem", json!({"nqn": "nqn.2026-01.test:other", "allow_any_host": true})),
        ("nvmf_subsystem_add_ns", json!({"nqn": "nqn.2026-01.test:other", "namespace": {"bdev_name": "lvs0/a"}})),
    ] {
        real::ask(fake.socket(), method, params).await.expect(method);
    }
    let listed = store.list().await.expect("list");
    assert!(matches!(listed[0].export, Export::Connected(_)), "who has it is not known: {listed:?}");
    store.delete("a").await.expect_err("it is exported");
    store.withdraw("a").await.expect_err("not by us");
    assert_eq!(fake.violations(), Vec::<String>::new());
}
