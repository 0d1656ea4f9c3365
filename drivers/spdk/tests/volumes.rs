//! The connectors, kind by kind: against the fake, and against a real target where SPDK is installed.

#[expect(dead_code, reason = "each test program uses a part of it")]
mod storage;

use async_trait::async_trait;
use ports::conformance::volume::{Bench, suite};
use ports::emulation::Backend;
use ports::volume::{Connection, Volume};
use ports::{ErrorClass, VolumeConnector};
use sandbox::spdk::faults::Fault;
use spdk::names;
use spdk::rpc::methods::bdev::{AioCreate, GetBdevs, RaidCreate, RaidDelete, RaidLevel};
use spdk::rpc::{self, Rpc};
use spdk::volumes::{SpdkConnector, Storage, iscsi::Iscsi, local::Local, nvmeof::NvmeOf, rbd::Rbd};
use std::path::Path;
use std::time::{Duration, Instant};
use storage::{LIMIT, Lab, MIB, id};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Nvme,
    Aio,
    Uring,
    Malloc,
    Lvol,
    Iscsi,
    Rbd,
}

struct Kind<S> {
    lab: Lab,
    of: Of,
    storage: fn() -> S,
}

impl<S: Storage> Kind<S> {
    fn connector(&self) -> SpdkConnector<S> {
        SpdkConnector::new(self.lab.dpu().socket(), (self.storage)())
    }

    async fn make(&self, name: &str, number: u8, size_bytes: u64) -> Volume {
        match self.of {
            Of::Nvme => self.lab.nvme_volume(name, size_bytes).await,
            Of::Aio => self.lab.file_volume("aio", name, size_bytes),
            Of::Uring => self.lab.file_volume("uring", name, size_bytes),
            Of::Malloc => self.lab.malloc_volume(name, size_bytes).await,
            Of::Lvol => self.lab.lvol_volume(name, size_bytes).await,
            Of::Iscsi => self.lab.iscsi_volume(number.into(), size_bytes).await,
            Of::Rbd => self.lab.rbd_volume(name, size_bytes),
        }
    }
}

#[async_trait]
impl<S: Storage + 'static> Bench for Kind<S> {
    type Connector = SpdkConnector<S>;

    async fn open(&self) -> SpdkConnector<S> {
        self.connector()
    }

    async fn volume(&self, number: u8, size_bytes: u64) -> Volume {
        self.make(&format!("volume-{number}"), number, size_bytes).await
    }

    async fn missing_volume(&self) -> Volume {
        match self.of {
            Of::Nvme => {
                // A subsystem that is there, and a volume that it does not have.
                let there = self.lab.nvme_volume("other", MIB).await;
                self.lab.nvme(&there.handle, "5f0c1c9e-58a4-4b1c-9a63-0123456789ab")
            }
            Of::Aio | Of::Uring => {
                let volume = self.make("missing", 99, MIB).await;
                std::fs::remove_file(&volume.handle).expect("removed");
                volume
            }
            Of::Malloc => Lab::bdev_volume("missing"),
            Of::Lvol => Lab::bdev_volume("lvs0/missing"),
            Of::Iscsi => self.lab.lun(99),
            Of::Rbd => Lab::image("missing"),
        }
    }

    fn connects_readers(&self) -> bool {
        false
    }

    fn grows_while_connected(&self) -> bool {
        !matches!(self.of, Of::Malloc | Of::Iscsi)
    }

    async fn grow(&self, volume: &Volume, size_bytes: u64) {
        match self.of {
            Of::Nvme => self.lab.grow_nvme(volume, size_bytes).await,
            Of::Aio | Of::Uring => storage::size_file(volume.handle.as_ref(), size_bytes),
            Of::Lvol => self.lab.grow_lvol(volume, size_bytes).await,
            Of::Rbd => drop(self.lab.rbd_volume("volume-0", size_bytes)),
            Of::Malloc | Of::Iscsi => panic!("it does not grow while it is connected"),
        }
        let connector = self.connector();
        let begun = Instant::now();
        // The storage tells of it by itself.
        while connector.list().await.expect("list").iter().all(|one| one.size_bytes != size_bytes) {
            assert!(begun.elapsed() < LIMIT, "{size_bytes} bytes are not seen within {LIMIT:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn conforms<S: Storage + 'static>(of: Of, storage: fn() -> S) {
    let kind = Kind { lab: Lab::fake(1), of, storage };
    suite(&kind).await;
    kind.lab.assert_harmless();
}

fn rbd() -> Rbd {
    Rbd::new(Lab::clusters())
}

#[tokio::test]
async fn nvme_over_tcp_conforms() {
    conforms(Of::Nvme, NvmeOf::default).await;
}

#[tokio::test]
async fn what_a_dpu_has_itself_conforms() {
    for of in [Of::Aio, Of::Uring, Of::Malloc, Of::Lvol] {
        conforms(of, Local::default).await;
    }
}

#[tokio::test]
async fn iscsi_conforms() {
    conforms(Of::Iscsi, Iscsi::default).await;
}

#[tokio::test]
async fn rbd_conforms() {
    conforms(Of::Rbd, rbd).await;
}

#[tokio::test]
async fn real_nvme_over_tcp_conforms() {
    let Some(lab) = Lab::real("real_nvme_over_tcp_conforms", 1).await else { return };
    suite(&Kind { lab, of: Of::Nvme, storage: NvmeOf::default }).await;
}

#[tokio::test]
async fn real_iscsi_conforms() {
    let Some(lab) = Lab::real_iscsi("real_iscsi_conforms", "nvmf_tgt").await else { return };
    suite(&Kind { lab, of: Of::Iscsi, storage: Iscsi::default }).await;
}

#[tokio::test]
async fn what_a_real_dpu_has_itself_conforms() {
    for of in [Of::Aio, Of::Uring, Of::Malloc, Of::Lvol] {
        let Some(lab) = Lab::real("what_a_real_dpu_has_itself_conforms", 1).await else { return };
        suite(&Kind { lab, of, storage: Local::default }).await;
    }
}

/// Every fault at every call, with the connector opened anew behind each: it ends as without, or says why not.
async fn withstands<S: Storage + 'static>(of: Of, storage: fn() -> S) {
    for fault in Fault::all() {
        for call in 0.. {
            let kind = Kind { lab: Lab::fake(1), of, storage };
            let when = format!("{of:?}: {fault:?} at call {call}");
            let (volume, a) = (kind.make("volume-0", 0, MIB).await, id("a", 1));
            let fake = kind.lab.dpu().fake();
            fake.inject(call, fault.clone());
            // What an agent does: it repeats the verb until it is done. A bdev of the target's own ends with it.
            let ends_with_target = matches!(of, Of::Malloc | Of::Lvol);
            for round in 0.. {
                match kind.connector().connect(&a, &volume).await {
                    Ok(_) => break,
                    Err(error) if ends_with_target && error.class == ErrorClass::NotFound => break,
                    Err(error) => assert!(round < 20, "{when}: {error}"),
                }
            }
            for round in 0.. {
                match kind.connector().disconnect(&a).await {
                    Ok(()) => break,
                    Err(error) => assert!(round < 20, "{when}: {error}"),
                }
            }
            assert_eq!(kind.connector().list().await.unwrap_or_default(), [], "{when}");
            let left = fake.with(|world| world.bdevs.keys().filter(|name| name.starts_with("mpc-")).count());
            assert_eq!(left, 0, "{when}");
            kind.lab.assert_harmless();
            if fake.has_faults() {
                break;
            }
        }
    }
}

#[tokio::test]
async fn every_fault_at_every_call_is_survived() {
    withstands(Of::Nvme, NvmeOf::default).await;
    withstands(Of::Aio, Local::default).await;
    withstands(Of::Lvol, Local::default).await;
    withstands(Of::Iscsi, Iscsi::default).await;
    withstands(Of::Rbd, rbd).await;
}

/// The target has taken the request so late that it was sent again, and the disk came and went by the second.
async fn made_late(lab: Lab) {
    let kind = Kind { lab, of: Of::Aio, storage: Local::default };
    let (volume, a, connector) = (kind.make("volume-0", 0, MIB).await, id("a", 1), kind.connector());
    let rpc = Rpc::new(kind.lab.dpu().socket(), rpc::LIMIT);
    let comes = async || {
        let (name, filename) = (names::connection(&a), Path::new(&volume.handle));
        let late = AioCreate { name: &name, filename, block_size: 512, readonly: false };
        rpc.call(&late).await.expect("the late request");
        name
    };
    let used = connector.connect(&a, &volume).await.expect("connect");
    let bdev = |connection: &Connection| match &connection.backend {
        Backend::Bdev(bdev) => bdev.clone(),
        other => panic!("{other:?}"),
    };
    let over = bdev(&used);
    let disk = RaidCreate {
        name: &names::bdev(&a),
        raid_level: RaidLevel::Raid0,
        strip_size_kb: 4,
        base_bdevs: vec![over.as_str()],
    };
    rpc.call(&disk).await.expect("a disk on it");
    let late = comes().await;
    assert_ne!(late, over, "another name");
    assert_eq!(connector.list().await.expect("list"), std::slice::from_ref(&used), "the late one is not used");
    let there = rpc.call(&GetBdevs { name: None }).await.expect("the bdevs");
    assert!(!there.iter().any(|bdev| bdev.name == late), "and it is ended");
    rpc.call(&RaidDelete { name: &names::bdev(&a) }).await.expect("hidden");
    comes().await;
    connector.disconnect(&a).await.expect("disconnect");
    assert_eq!(connector.list().await.expect("list"), [], "both are ended");

    let late = comes().await;
    let stray = connector.list().await.expect("list");
    assert_eq!(stray.iter().map(|one| (&one.id, bdev(one))).collect::<Vec<_>>(), [(&a, late)], "nobody explains it");
    assert_ne!(over, bdev(&stray[0]), "a late request to present the first finds nothing");
    connector.disconnect(&a).await.expect("disconnect");
    assert_eq!(connector.list().await.expect("list"), []);
}

#[tokio::test]
async fn a_connection_that_is_made_late_is_ended() {
    made_late(Lab::fake(1)).await;
}

#[tokio::test]
async fn a_connection_that_a_real_target_makes_late_is_ended() {
    let Some(lab) = Lab::real("a_connection_that_a_real_target_makes_late_is_ended", 1).await else { return };
    made_late(lab).await;
}

#[tokio::test]
async fn a_connection_under_a_disk_stays() {
    let kind = Kind { lab: Lab::fake(1), of: Of::Nvme, storage: NvmeOf::default };
    let (volume, a, connector) = (kind.make("volume-0", 0, MIB).await, id("a", 1), kind.connector());
    let connection = connector.connect(&a, &volume).await.expect("connect");
    let fake = kind.lab.dpu().fake();
    let Backend::Bdev(bdev) = &connection.backend else { panic!("{connection:?}") };
    let claim = |by: Option<&str>| {
        fake.with(|world| world.bdevs.get_mut(bdev).expect("the bdev").claimed = by.map(str::to_owned));
    };
    claim(Some("a disk"));
    let refused = connector.disconnect(&a).await.expect_err("a disk stands on it");
    assert_eq!(refused.class, ErrorClass::Busy, "{refused}");
    claim(None);
    connector.disconnect(&a).await.expect("disconnect");
    kind.lab.assert_harmless();
}

#[tokio::test]
async fn a_storage_node_that_is_away_is_told_from_one_that_refuses() {
    let kind = Kind { lab: Lab::fake(1), of: Of::Nvme, storage: NvmeOf::default };
    let (volume, a, connector) = (kind.make("volume-0", 0, MIB).await, id("a", 1), kind.connector());
    let storage = kind.lab.storage.fake();
    storage.with(|world| {
        for subsystem in world.nvmf.subsystems.values_mut() {
            subsystem.allow_any_host = false;
        }
    });
    let refused = connector.connect(&a, &volume).await.expect_err("not on the list");
    assert_eq!(refused.class, ErrorClass::Unauthorized, "{refused}");
    storage.kill();
    let away = connector.connect(&a, &volume).await.expect_err("nobody is there");
    assert_eq!(away.class, ErrorClass::Unreachable, "{away}");
    assert_eq!(connector.list().await.expect("list"), [], "what failed leaves nothing behind");
}

#[tokio::test]
async fn a_lost_storage_node_leaves_the_connection_with_nothing_behind_it() {
    let kind = Kind { lab: Lab::fake(1), of: Of::Nvme, storage: NvmeOf::default };
    let (volume, a, connector) = (kind.make("volume-0", 0, MIB).await, id("a", 1), kind.connector());
    connector.connect(&a, &volume).await.expect("connect");
    kind.lab.storage.fake().kill();
    let listed = connector.list().await.expect("list");
    assert_eq!((listed.len(), listed[0].size_bytes), (1, 0), "it may still be exposed");
    let away = connector.connect(&a, &volume).await.expect_err("nothing is behind it");
    assert_eq!(away.class, ErrorClass::Unreachable, "{away}");
    connector.disconnect(&a).await.expect("disconnect");
}

#[tokio::test]
async fn a_second_way_is_used() {
    let kind = Kind { lab: Lab::fake(1), of: Of::Nvme, storage: NvmeOf::default };
    let (mut volume, a, connector) = (kind.make("volume-0", 0, MIB).await, id("a", 1), kind.connector());
    // Nobody listens at the first.
    volume.attributes.insert("targetTrAddr".to_owned(), "127.0.0.2,127.0.0.1".to_owned());
    let connection = connector.connect(&a, &volume).await.expect("by the second way");
    assert_eq!(connection.size_bytes, MIB);
    let storage = kind.lab.storage.fake();
    storage.with(|world| {
        let subsystem = world.nvmf.subsystems.values_mut().next().expect("a subsystem");
        let mut second = subsystem.listeners[0].clone();
        second["traddr"] = "127.0.0.2".into();
        subsystem.listeners.push(second);
    });
    let both = id("b", 1);
    connector.disconnect(&a).await.expect("disconnect");
    connector.connect(&both, &volume).await.expect("by both ways");
    let ways: Vec<usize> =
        kind.lab.dpu().fake().with(|world| world.initiator.controllers.values().map(Vec::len).collect());
    assert_eq!(ways, [2], "one controller");
    kind.lab.assert_harmless();
}

#[tokio::test]
async fn several_volumes_in_one_subsystem_are_refused() {
    let kind = Kind { lab: Lab::fake(1), of: Of::Nvme, storage: NvmeOf::default };
    let (volume, connector) = (kind.make("volume-0", 0, MIB).await, kind.connector());
    let more = kind.make("volume-1", 0, MIB).await;
    kind.lab.storage.fake().with(|world| {
        let second = world.nvmf.subsystems[&more.handle].namespaces[&1].clone();
        world.nvmf.subsystems.get_mut(&volume.handle).expect("a subsystem").namespaces.insert(2, second);
    });
    let refused = connector.connect(&id("a", 1), &volume).await.expect_err("which one is it?");
    assert_eq!(refused.class, ErrorClass::Invalid, "{refused}");
    assert_eq!(connector.list().await.expect("list"), []);
}

#[tokio::test]
async fn a_file_that_another_module_has_open_is_refused() {
    let kind = Kind { lab: Lab::fake(1), of: Of::Aio, storage: Local::default };
    let (volume, connector) = (kind.make("disk", 0, MIB).await, kind.connector());
    let by_ring = kind.lab.file_volume("uring", "disk", MIB);
    connector.connect(&id("a", 1), &volume).await.expect("connect");
    let refused = connector.connect(&id("b", 1), &by_ring).await.expect_err("the same file");
    assert_eq!(refused.class, ErrorClass::Conflict, "{refused}");
}
