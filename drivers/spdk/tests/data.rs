//! The way of the data, on a real target: what a host writes to the disk that the driver presents is what the volume holds.

#[expect(dead_code, reason = "each test program uses a part of it")]
mod target;

use planner::exposure::Slot;
use ports::Emulation;
use ports::emulation::Backend;
use sandbox::spdk::operations::{Operator, file};
use sandbox::spdk::real as installed;
use serde_json::{Value, json};
use spdk::door::{Door, Fabric};
use target::{Lab, disk, real};

const SIZE_BYTES: u64 = 16 << 20;
const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:5f0c1c9e-58a4-4b1c-9a63-0123456789ab";

/// How a host reaches the controller.
fn attach(lab: &Lab<installed::Target>) -> Value {
    let mut params = json!({"name": "Host", "subnqn": lab.host().nqn, "hostnqn": HOST_NQN});
    let place = match &lab.door {
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
