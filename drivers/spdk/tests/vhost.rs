//! Disks by vhost-user-blk: against the fake, and against a real target where SPDK is installed.

#[expect(dead_code, reason = "each test program uses a part of it")]
mod target;

use async_trait::async_trait;
use planner::exposure::{Bus, FunctionKind, Presence, Slot};
use ports::conformance::{Sleep, emulation};
use ports::emulation::{Backend, DiskFunction};
use ports::{Emulation, ErrorClass};
use sandbox::spdk::Fake;
use spdk::names;
use spdk::vhost::VhostEmulation;
use std::time::Duration;
use target::{HOT_PLUG, Lab, Over, Target, disk, fake, real};

const MIB: u64 = 1 << 20;

struct Bench<T>(Lab<T>);

impl<T: Target> Bench<T> {
    fn emulation(&self) -> VhostEmulation {
        VhostEmulation::new(self.0.target.socket(), HOT_PLUG)
    }
}

#[async_trait]
impl<T: Target> Sleep for Bench<T> {
    async fn sleep(&self, time: Duration) {
        self.0.sleep(time).await;
    }
}

#[async_trait]
impl<T: Target> emulation::Bench for Bench<T> {
    async fn connect(&self) -> Box<dyn Emulation> {
        Box::new(self.emulation())
    }

    async fn backend(&self, size_bytes: u64) -> Backend {
        self.0.new_backend(size_bytes).await
    }

    async fn grow(&self, backend: &Backend, size_bytes: u64) {
        emulation::Bench::grow(&self.0, backend, size_bytes).await;
    }

    /// No virtual machine is connected.
    async fn let_host_release(&self) {}

    async fn has_device(&self, _: &str) -> Option<bool> {
        None
    }
}

#[tokio::test]
async fn the_fake_conforms() {
    for over in [Over::File, Over::Bdev] {
        let bench = Bench(fake(over));
        emulation::run(&bench).await;
        assert_eq!(bench.0.target.violations(), Vec::<String>::new(), "{over:?}");
    }
}

#[tokio::test]
async fn a_real_target_conforms() {
    let Some(lab) = real("a_real_target_conforms", "vhost").await else { return };
    emulation::run(&Bench(lab)).await;
}

fn virtio(number: u32, slot: Slot, backend: Backend) -> DiskFunction {
    DiskFunction { bus: Bus::VirtioBlk, ..disk(number, 1, slot, backend) }
}

fn connect(fake: &Fake, socket: &str, on: bool) {
    fake.with(|world| world.vhost.get_mut(socket).expect("the socket").connected = on);
}

#[tokio::test]
async fn a_disk_leaves_when_the_virtual_machine_has_closed_it() {
    let bench = Bench(fake(Over::File));
    let (emulation, fake) = (bench.emulation(), &bench.0.target);
    let boot = virtio(1, Slot::Boot, bench.0.new_backend(MIB).await);
    let data = virtio(2, Slot::HotPlug, bench.0.new_backend(MIB).await);
    let mut seed = virtio(3, Slot::Seed, bench.0.new_backend(MIB).await);
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
async fn a_new_target_gets_the_same_sockets() {
    let bench = Bench(fake(Over::File));
    let (emulation, fake) = (bench.emulation(), &bench.0.target);
    let first = virtio(1, Slot::HotPlug, bench.0.new_backend(MIB).await);
    let second = virtio(2, Slot::HotPlug, bench.0.new_backend(MIB).await);
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
