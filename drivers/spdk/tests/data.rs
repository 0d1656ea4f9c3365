//! The way of the data, on a real target: what a host writes to the disk that the driver presents is what the volume holds; and what
//! becomes of a disk whose storage is lost while its host writes.

#[expect(dead_code, reason = "each test program uses a part of it")]
mod storage;
#[expect(dead_code, reason = "each test program uses a part of it")]
mod target;

use planner::exposure::FunctionKind;
use planner::exposure::Slot;
use ports::emulation::{Backend, DiskFunction};
use ports::{Emulation, VolumeConnector};
use sandbox::spdk::operations::{Operator, file};
use sandbox::spdk::real as installed;
use serde_json::{Value, json};
use spdk::SpdkEmulation;
use spdk::door::{Door, Fabric};
use spdk::host::Host;
use spdk::volumes::{SpdkConnector, nvmeof::NvmeOf};
use std::time::{Duration, Instant};
use target::{HOT_PLUG, Lab, disk, real};

const SIZE_BYTES: u64 = 16 << 20;
const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:5f0c1c9e-58a4-4b1c-9a63-0123456789ab";

/// How a host reaches the controller.
fn attach(lab: &Lab<installed::Target>) -> Value {
    attach_by(&lab.host().nqn, &lab.door)
}

fn attach_by(nqn: &str, door: &Door) -> Value {
    let mut params = json!({"name": "Host", "subnqn": nqn, "hostnqn": HOST_NQN});
    let place = match door {
        Door::VfioUser { folder } => json!({"trtype": "VFIOUSER", "traddr": folder}),
        Door::Fabric { listen, .. } => json!({
            "trtype": "TCP", "adrfam": "IPv4", "traddr": listen.ip(), "trsvcid": listen.port().to_string(),
        }),
    };
    params.as_object_mut().expect("an object").extend(place.as_object().expect("an object").clone());
    json!({"method": "bdev_nvme_attach_controller", "params": params})
}

async fn arrives(lab: Lab<installed::Target>, program: std::path::PathBuf) {
    let backend = lab.new_backend(SIZE_BYTES).await;
    let Backend::Path(path) = &backend else { panic!("{backend:?} is no file") };
    let path = path.clone();
    let emulation = lab.emulation();
    emulation.expose_disk(&disk(1, 1, Slot::Boot, backend)).await.expect("expose");
    let operator = Operator { program, folder: lab.folder.path().to_owned(), cores: "0x1" };
    let written = operator.run(&attach(&lab), "Hostn1", &["--workload=write-pattern", "--seed=7"]).await;
    assert_eq!(written.expect("the host writes").operations, SIZE_BYTES / 4096);
    let check =
        async |seed: &str| operator.run(&file("volume", &path), "volume", &["--workload=check-pattern", seed]).await;
    check("--seed=7").await.expect("the volume holds it");
    check("--seed=8").await.expect_err("another pattern is told from it");
    operator.run(&attach(&lab), "Hostn1", &["--workload=check-pattern", "--seed=7"]).await.expect("the host reads it");
    let counted = emulation.statistics().await.expect("statistics");
    assert_eq!(counted[0].written.bytes, SIZE_BYTES, "{counted:?}");
    assert!(counted[0].read.bytes >= SIZE_BYTES, "{counted:?}");
}

async fn lab(test: &str) -> Option<(Lab<installed::Target>, std::path::PathBuf)> {
    let program = installed::own_target().inspect_err(|missing| eprintln!("SKIP {test}: {missing}")).ok()?;
    Some((real(test, "nvmf_tgt").await?, program))
}

#[tokio::test]
async fn what_a_real_host_writes_by_vfio_user_arrives() {
    let Some((lab, program)) = lab("what_a_real_host_writes_by_vfio_user_arrives").await else { return };
    arrives(lab, program).await;
}

#[tokio::test]
async fn what_a_real_host_writes_over_tcp_arrives() {
    let Some((lab, program)) = lab("what_a_real_host_writes_over_tcp_arrives").await else { return };
    let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a socket");
    let listen = socket.local_addr().expect("its address");
    drop(socket);
    let door = Door::Fabric { fabric: Fabric::Tcp, listen, host_nqn: HOST_NQN.to_owned() };
    arrives(Lab { door, ..lab }, program).await;
}

/// What the fake is held to by `a_disk_goes_whose_storage_is_lost_under_a_write` (withstand.rs): the target does not take a namespace
/// away while what its host has asked waits for the storage.
#[tokio::test]
async fn a_disk_goes_whose_real_storage_is_lost_under_a_write() {
    const TEST: &str = "a_disk_goes_whose_real_storage_is_lost_under_a_write";
    let Ok(program) = installed::own_target().inspect_err(|missing| eprintln!("SKIP {TEST}: {missing}")) else {
        return;
    };
    let Some(mut lab) = storage::Lab::real(TEST, 1).await else { return };
    let volume = lab.nvme_volume("lost", SIZE_BYTES).await;
    let connector = SpdkConnector::new(lab.dpu().socket(), NvmeOf);
    let id = storage::id("lost", 1);
    let backend = connector.connect(&id, &volume).await.expect("connect").backend;
    let (nqn, door) = ("nqn.2026-01.io.metalplane:host", Door::VfioUser { folder: lab.path("vfio-user") });
    let host = Host { nqn: nqn.to_owned(), serial: "MPHOST1".to_owned(), door: door.clone(), hot_plug: HOT_PLUG };
    let emulation = SpdkEmulation::new(lab.dpu().socket(), host, lab.path("state")).expect("a driver");
    let function = DiskFunction { id: id.clone(), ..disk(1, 1, Slot::HotPlug, backend) };
    emulation.expose_disk(&function).await.expect("expose");
    let operator = Operator { program, folder: lab.path(""), cores: "0x1" };
    let writing = tokio::spawn(async move {
        let words = ["--workload=random-write", "--seconds=40"];
        operator.run(&attach_by(nqn, &door), "Hostn3", &words).await
    });
    let start = Instant::now();
    while emulation.statistics().await.expect("statistics").first().is_none_or(|disk| disk.written.operations == 0) {
        assert!(start.elapsed() < storage::LIMIT, "the host does not write");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    lab.kill_storage().await;
    // As an agent does it, which tries again.
    let lost = Instant::now();
    while let Err(error) = emulation.hide(&id, FunctionKind::Disk).await {
        assert!(lost.elapsed() < storage::LIMIT, "the disk does not go: {error}");
    }
    assert!(emulation.list().await.expect("list").is_empty());
    connector.disconnect(&id).await.expect("disconnect");
    let ended = writing.await.expect("it runs");
    assert!(ended.is_err(), "what the host asked of a lost disk was done: {ended:?}");
}
