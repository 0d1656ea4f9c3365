//! Disks by vhost-user-blk: against the fake, and against a real target where SPDK is installed.

#[expect(dead_code, reason = "each test program uses a part of it")]
mod target;

use async_trait::async_trait;
use planner::exposure::{Bus, ExposureId, FunctionKind, Limits, Presence, Slot};
use ports::conformance::{Sleep, emulation};
use ports::emulation::{Backend, DiskFunction};
use ports::{Emulation, ErrorClass};
use sandbox::spdk::{Fake, real};
use serde_json::json;
use spdk::names;
use spdk::vhost::VhostEmulation;
use std::time::Duration;
use target::{HOT_PLUG, Lab, Over, Target, disk, fake};
use tempfile::TempDir;
use tokio::sync::Mutex;

const MIB: u64 = 1 << 20;

/// A target whose disks a virtual machine can open.
#[async_trait]
trait Hosted: Target {
    /// One that runs.
    type Machine: Send + Sync;

    async fn boot(&self, socket: &str) -> Self::Machine;
    async fn end(&self, machine: Self::Machine);
}

#[async_trait]
impl Hosted for Fake {
    type Machine = String;

    async fn boot(&self, socket: &str) -> String {
        connect(self, socket, true);
        socket.to_owned()
    }

    async fn end(&self, socket: String) {
        connect(self, &socket, false);
    }
}

/// SPDK's own vhost-user client, in a process of its own.
#[async_trait]
impl Hosted for real::Target {
    type Machine = (real::Target, TempDir);

    async fn boot(&self, socket: &str) -> Self::Machine {
        let folder = tempfile::tempdir().expect("a folder");
        let program = real::program("vhost").expect("it was found before");
        let machine = real::Target::start(&program, folder.path()).await.expect("the machine starts");
        let disk = self.socket().with_file_name(socket);
        let attach = json!({"name": "vm", "trtype": "user", "traddr": disk, "dev_type": "blk"});
        real::ask(machine.socket(), "bdev_virtio_attach_controller", attach).await.expect("the machine opens its disk");
        (machine, folder)
    }

    async fn end(&self, (mut machine, _folder): Self::Machine) {
        machine.kill().await.expect("the machine ends");
    }
}

struct Bench<T: Hosted> {
    lab: Lab<T>,
    machines: Mutex<Vec<T::Machine>>,
}

impl<T: Hosted> Bench<T> {
    fn new(lab: Lab<T>) -> Self {
        Self { lab, machines: Mutex::default() }
    }

    fn emulation(&self) -> VhostEmulation {
        VhostEmulation::new(self.lab.target.socket(), HOT_PLUG)
    }
}

#[async_trait]
impl<T: Hosted> Sleep for Bench<T> {
    async fn sleep(&self, time: Duration) {
        self.lab.sleep(time).await;
    }
}

#[async_trait]
impl<T: Hosted> emulation::Bench for Bench<T> {
    async fn connect(&self) -> Box<dyn Emulation> {
        Box::new(self.emulation())
    }

    async fn backend(&self, size_bytes: u64) -> Backend {
        self.lab.new_backend(size_bytes).await
    }

    async fn grow(&self, backend: &Backend, size_bytes: u64) {
        emulation::Bench::grow(&self.lab, backend, size_bytes).await;
    }

    async fn let_host_open(&self, id: &ExposureId) {
        let machine = self.lab.target.boot(&names::bdev(id)).await;
        self.machines.lock().await.push(machine);
    }

    async fn let_host_release(&self) {
        for machine in std::mem::take(&mut *self.machines.lock().await) {
            self.lab.target.end(machine).await;
        }
    }

    async fn has_device(&self, _: &str) -> Option<bool> {
        None
    }
}

#[tokio::test]
async fn the_fake_conforms() {
    for over in [Over::File, Over::Bdev] {
        let bench = Bench::new(fake(over));
        emulation::run(&bench).await;
        assert_eq!(bench.lab.target.violations(), Vec::<String>::new(), "{over:?}");
    }
}

#[tokio::test]
async fn a_real_target_conforms() {
    let Some(lab) = target::real("a_real_target_conforms", "vhost").await else { return };
    emulation::run(&Bench::new(lab)).await;
}

fn virtio(number: u32, slot: Slot, backend: Backend) -> DiskFunction {
    DiskFunction { bus: Bus::VirtioBlk, ..disk(number, 1, slot, backend) }
}

fn connect(fake: &Fake, socket: &str, on: bool) {
    fake.with(|world| world.vhost.get_mut(socket).expect("the socket").connected = on);
}

#[tokio::test]
async fn a_disk_leaves_when_the_virtual_machine_has_closed_it() {
    let bench = Bench::new(fake(Over::File));
    let (emulation, fake) = (bench.emulation(), &bench.lab.target);
    let boot = virtio(1, Slot::Boot, bench.lab.new_backend(MIB).await);
    let data = virtio(2, Slot::HotPlug, bench.lab.new_backend(MIB).await);
    let mut seed = virtio(3, Slot::Seed, bench.lab.new_backend(MIB).await);
    seed.read_only = true;
    for disk in [&boot, &data, &seed] {
        emulation.expose_disk(disk).await.expect("expose");
    }
    let sockets = fake.with(|world| world.vhost.iter().map(|(name, c)| (name.clone(), c.readonly)).collect::<Vec<_>>());
    let hot_plugged = names::bdev(&data.id);
    let expected = [(hot_plugged.as_str(), false), ("mp-boot", false), ("mp-seed", true)];
    assert_eq!(sockets, expected.map(|(name, readonly)| (name.to_owned(), readonly)));

    connect(fake, &hot_plugged, true);
    emulation.hide(&data.id, FunctionKind::Disk).await.expect("hide");
    let presence = async || {
        let all = emulation.list().await.expect("list");
        all.into_iter().find(|exposure| exposure.id == data.id).map(|exposure| exposure.presence)
    };
    assert_eq!(presence().await, Some(Presence::Leaving));
    let refused = emulation.expose_disk(&data).await.expect_err("it is leaving");
    assert_eq!(refused.class, ErrorClass::Busy, "{refused}");
    connect(fake, &hot_plugged, false);
    assert_eq!(presence().await, None);
    let left = fake.with(|world| world.bdevs.len());
    assert_eq!(left, 2, "its bdev ends with it");
    assert_eq!(fake.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn other_limits_wait_for_the_virtual_machine() {
    let bench = Bench::new(fake(Over::File));
    let emulation = bench.emulation();
    let iops = |number| Limits { iops: Some(number), ..Limits::default() };
    let data = DiskFunction { limits: iops(2000), ..virtio(1, Slot::HotPlug, bench.lab.new_backend(MIB).await) };
    emulation.expose_disk(&data).await.expect("expose");
    emulation.limit_disk(&data.id, &iops(2000)).await.expect("it has them");
    let refused = emulation.limit_disk(&data.id, &iops(3000)).await.expect_err("nobody has it open");
    assert_eq!(refused.class, ErrorClass::Busy, "{refused}");
    assert!(refused.to_string().contains("until a virtual machine opens it"), "{refused}");
    connect(&bench.lab.target, &names::bdev(&data.id), true);
    emulation.limit_disk(&data.id, &iops(3000)).await.expect("now it can");
}

#[tokio::test]
async fn a_new_target_gets_the_same_sockets() {
    let bench = Bench::new(fake(Over::File));
    let (emulation, fake) = (bench.emulation(), &bench.lab.target);
    let first = virtio(1, Slot::HotPlug, bench.lab.new_backend(MIB).await);
    let second = virtio(2, Slot::HotPlug, bench.lab.new_backend(MIB).await);
    for disk in [&first, &second] {
        emulation.expose_disk(disk).await.expect("expose");
    }
    let places = || fake.with(|world| world.vhost.iter().map(|(n, c)| (n.clone(), c.bdev.clone())).collect::<Vec<_>>());
    let before = places();
    fake.kill();
    fake.revive().expect("a new target");
    for _ in 0..2 {
        // The first call finds the old connection broken.
        if emulation.list().await.is_ok_and(|all| all.is_empty()) {
            break;
        }
    }
    // In the other order: each has its own.
    for disk in [&second, &first] {
        emulation.expose_disk(disk).await.expect("expose");
    }
    assert_eq!(places(), before);
}
