//! The driver against a real QEMU.

mod machine;

use planner::exposure::{Bus, ExposureId, FunctionKind, Limits, Slot};
use ports::{
    Emulation, ErrorClass,
    conformance::emulation::{self, Bench},
    emulation::{DiskFunction, NicFunction},
};
use qemu::{QemuEmulation, names, qmp::Qmp};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::net::UnixListener;

const UID: &str = "9c7a0d3e-2f57-4b0a-8f5d-0d7c1f0f2b6e";

fn id(epoch: u64) -> ExposureId {
    ExposureId { uid: UID.to_owned(), epoch }
}

async fn disk(machine: &machine::Machine, epoch: u64) -> DiskFunction {
    DiskFunction {
        id: id(epoch),
        bus: Bus::NVMe,
        slot: Slot::Boot,
        serial: "MP0123456789ABCDEF".to_owned(),
        uuid: UID.to_owned(),
        backend: machine.backend(1 << 20).await,
        read_only: false,
        limits: Limits::default(),
    }
}

#[tokio::test]
async fn qemu_conforms() {
    let Some(machine) = machine::start("qemu_conforms").await else { return };
    emulation::run(&machine).await;
}

#[tokio::test]
async fn an_interrupted_expose_is_finished() {
    let Some(machine) = machine::start("an_interrupted_expose_is_finished").await else { return };
    let stale = machine.file(4 << 20).await;
    let node = names::node(UID);
    let file = json!({"driver": "file", "filename": stale});
    machine.command("blockdev-add", json!({"driver": "raw", "node-name": node, "file": file})).await;

    let emulation = machine.emulation();
    emulation.expose_disk(&disk(&machine, 2).await).await.expect("expose over a node that was left");
    let listed = emulation.list().await.expect("list");
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((&listed[0].id, listed[0].size_bytes), (&id(2), Some(1 << 20)), "the stale file was exposed");
}

#[tokio::test]
async fn an_interrupted_expose_of_a_nic_is_finished() {
    let Some(machine) = machine::start("an_interrupted_expose_of_a_nic_is_finished").await else { return };
    let mac = "02:6d:70:00:00:01".to_owned();
    let nic = NicFunction { id: id(1), mac, mtu: 1500, device: "mp-rep".to_owned() };
    let tap = json!({"type": "tap", "id": names::netdev(&nic.id, &nic.device), "ifname": nic.device,
        "script": "no", "downscript": "no"});
    machine.command("netdev_add", tap).await;
    let emulation = machine.emulation();
    emulation.expose_nic(&nic).await.expect("expose over a back end that was left");
    let listed = emulation.list().await.expect("list");
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].representor.as_deref(), Some("mp-rep"));
    assert_eq!(machine.has_device("mp-rep").await, Some(true));
}

#[tokio::test]
async fn list_deletes_what_has_no_device() {
    let Some(machine) = machine::start("list_deletes_what_has_no_device").await else { return };
    let node = names::node(UID);
    let file = json!({"driver": "file", "filename": machine.file(1 << 20).await});
    machine.command("blockdev-add", json!({"driver": "raw", "node-name": node, "file": file})).await;
    let tap = json!({"type": "tap", "id": names::netdev(&id(1), "mp-left"), "ifname": "mp-left", "script": "no",
        "downscript": "no"});
    machine.command("netdev_add", tap).await;
    assert_eq!(machine.has_device("mp-left").await, Some(true));

    assert_eq!(machine.emulation().list().await.expect("list"), []);
    let nodes = machine.command("query-named-block-nodes", json!({"flat": true})).await;
    assert_eq!(nodes, json!([]), "the node is still there");
    assert_eq!(machine.has_device("mp-left").await, Some(false), "the tap is still there");
}

#[tokio::test]
async fn a_departed_disk_is_closed_without_a_call() {
    let Some(machine) = machine::start("a_departed_disk_is_closed_without_a_call").await else { return };
    let emulation = machine.emulation();
    emulation.expose_disk(&disk(&machine, 1).await).await.expect("expose");
    emulation.hide(&id(1), FunctionKind::Disk).await.expect("hide");
    machine.let_host_release().await;
    let started = Instant::now();
    // Nothing but the event may make the driver do it.
    while machine.command("query-named-block-nodes", json!({"flat": true})).await != json!([]) {
        assert!(started.elapsed() < Duration::from_secs(90), "the node was not deleted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_nic_loses_its_traffic_before_the_host_lets_go() {
    let Some(machine) = machine::start("a_nic_loses_its_traffic_before_the_host_lets_go").await else { return };
    let emulation = machine.emulation();
    let mac = "02:6d:70:00:00:01".to_owned();
    let nic = NicFunction { id: id(1), mac, mtu: 1500, device: "mp-rep".to_owned() };
    emulation.expose_nic(&nic).await.expect("expose");
    emulation.hide(&nic.id, FunctionKind::Nic).await.expect("hide");
    assert_eq!(emulation.list().await.expect("list").len(), 1, "the host has not let go");
    assert_eq!(machine.has_device("mp-rep").await, Some(false));
    let again = emulation.expose_nic(&nic).await.expect_err("it is still leaving");
    assert_eq!(again.class, ErrorClass::Busy, "{again}");
}

/// What is left of it would make the next NIC of that name look as if its link were up.
#[tokio::test]
async fn what_tells_of_a_link_goes_with_its_nic() {
    let Some(machine) = machine::start("what_tells_of_a_link_goes_with_its_nic").await else { return };
    let emulation = machine.emulation();
    let mac = "02:6d:70:00:00:01".to_owned();
    let nic = NicFunction { id: id(1), mac, mtu: 1500, device: "mp-rep".to_owned() };
    let objects = async || {
        let listed = machine.command("qom-list", json!({"path": "/objects"})).await;
        let names = listed.as_array().expect("a list").iter().filter_map(|entry| entry["name"].as_str());
        names.filter(|name| name.starts_with("link-")).map(str::to_owned).collect::<Vec<_>>()
    };
    emulation.expose_nic(&nic).await.expect("expose");
    emulation.set_link(&nic.id, true).await.expect("up");
    assert_eq!(objects().await, [names::link(&nic.id)]);
    emulation.hide(&nic.id, FunctionKind::Nic).await.expect("hide");
    machine.let_host_release().await;
    let started = Instant::now();
    while !emulation.list().await.expect("list").is_empty() {
        assert!(started.elapsed() < Duration::from_secs(90), "the NIC stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(objects().await, [""; 0]);
}

#[tokio::test]
async fn the_driver_reconnects() {
    let Some(mut machine) = machine::start("the_driver_reconnects").await else { return };
    let emulation = machine.emulation();
    emulation.expose_disk(&disk(&machine, 1).await).await.expect("expose");
    machine.power_cycle().await;
    // The first call may meet the old connection's end; no command is sent twice, so it reports that.
    if let Err(e) = emulation.list().await {
        assert_eq!(e.class, ErrorClass::Unreachable, "{e}");
    }
    assert_eq!(emulation.list().await.expect("list on a new connection"), []);
    machine.kill().await;
    let e = emulation.capabilities().await.expect_err("QEMU is gone");
    assert_eq!(e.class, ErrorClass::Unreachable, "{e}");
    assert!(e.message.contains("slots.sock"), "it names the socket: {e}");
}

#[tokio::test]
async fn silence_is_unreachable_within_the_limit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("silent.sock");
    let _listener = UnixListener::bind(&socket).expect("listen");
    let started = Instant::now();
    let e = Qmp::new(&socket, Duration::from_millis(300)).execute("query-status", json!({})).await;
    assert!(e.is_err_and(|e| e.to_string().contains("no QMP greeting")));
    assert!(started.elapsed() < Duration::from_secs(60));

    let absent = QemuEmulation::new(folder.path().join("absent.sock")).list().await.expect_err("no socket");
    assert_eq!(absent.class, ErrorClass::Unreachable, "{absent}");
}
