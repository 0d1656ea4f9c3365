//! What a DPU's target must withstand, against the fake: it is killed during any call, a connection is lost behind any request,
//! it is full, a disk under a logical volume store is lost. The driver behind each is a new one, as after an agent's restart. At the
//! end the host and the storage see what they would have seen without: the same places, UUIDs and host identities.

#[expect(dead_code, reason = "each test program uses a part of it")]
mod storage;
#[expect(dead_code, reason = "each test program uses a part of it")]
mod target;

use planner::exposure::{Bus, ExposureId, FunctionKind, Presence, Slot};
use ports::emulation::{Backend, DiskFunction};
use ports::volume::Volume;
use ports::{Emulation, ErrorClass, VolumeConnector};
use sandbox::spdk::{Fake, faults::Fault};
use spdk::door::{Door, Fabric};
use spdk::host::Host;
use spdk::vhost::VhostEmulation;
use spdk::volumes::{SpdkConnector, local::Local, nvmeof::NvmeOf};
use spdk::{SpdkEmulation, names};
use std::collections::BTreeSet;
use target::{HOT_PLUG, Lab, Over, disk, fake};

const MIB: u64 = 1 << 20;
const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:5f0c1c9e-58a4-4b1c-9a63-0123456789ab";
const NQN: &str = "nqn.2026-01.io.metalplane:host";
/// More than any fault costs.
const ROUNDS: usize = 40;

/// Every fault at every call; those that end the target at two calls, too: the next one is killed while all is brought back.
async fn each_fault(mut one: impl AsyncFnMut(&dyn Fn(&Fake), &str) -> bool) {
    let mut runs = 0;
    for fault in Fault::all() {
        let kills = matches!(fault, Fault::KilledBefore | Fault::KilledAfter);
        for again in [None, Some(2), Some(7)].into_iter().filter(|again| again.is_none() || kills) {
            for call in 0.. {
                let inject = |fake: &Fake| {
                    fake.inject(call, fault.clone());
                    if let Some(later) = again {
                        fake.inject(call + later, fault.clone());
                    }
                };
                runs += 1;
                // Beyond the last call nothing more can befall.
                if !one(&inject, &format!("{fault:?} at call {call}, and again after {again:?}")).await {
                    break;
                }
            }
        }
    }
    assert!(runs > 100, "only {runs} runs");
}

/// What an agent does until the host has these and no others.
async fn bring(emulation: &dyn Fn() -> Box<dyn Emulation>, wanted: &[&DiskFunction], size_bytes: u64, when: &str) {
    for _ in 0..ROUNDS {
        let emulation = emulation();
        let Ok(listed) = emulation.list().await else { continue };
        let find = |id: &ExposureId| listed.iter().find(|exposure| exposure.id == *id);
        let mut done = true;
        for stray in listed.iter().filter(|exposure| !wanted.iter().any(|disk| disk.id == exposure.id)) {
            done = false;
            drop(emulation.hide(&stray.id, FunctionKind::Disk).await);
        }
        for disk in wanted {
            match find(&disk.id) {
                None => drop(emulation.expose_disk(disk).await),
                Some(exposure) if exposure.presence != Presence::Present => {}
                Some(exposure) if exposure.size_bytes.is_some_and(|size| size != size_bytes) => {
                    drop(emulation.resize_disk(&disk.id, size_bytes).await);
                }
                Some(_) => continue,
            }
            done = false;
        }
        if done {
            return;
        }
    }
    panic!("{when}: it is not so after {ROUNDS} rounds");
}

/// What hosts see of the target: place, UUID and disk of each namespace, and who is let in. There is a door to it.
fn seen(fake: &Fake, nqn: &str, when: &str) -> (Vec<(u64, String, String)>, BTreeSet<String>) {
    fake.with(|world| {
        let subsystem = world.nvmf.subsystems.get(nqn).unwrap_or_else(|| panic!("{when}: no subsystem"));
        assert_eq!(subsystem.listeners.len(), 1, "{when}: a host finds no way in");
        let shown = subsystem.namespaces.iter().map(|(nsid, ns)| (*nsid, ns.uuid.clone(), ns.bdev.clone()));
        (shown.collect(), subsystem.hosts.clone())
    })
}

fn over_tcp() -> Door {
    let listen = std::net::SocketAddr::from(([127, 0, 0, 1], storage::free_port()));
    Door::Fabric { fabric: Fabric::Tcp, listen, host_nqn: HOST_NQN.to_owned() }
}

fn nvme(lab: &Lab<Fake>) -> Box<dyn Emulation> {
    Box::new(lab.emulation())
}

async fn a_host_keeps_what_it_sees(lab: impl Fn() -> Lab<Fake>) {
    each_fault(async |inject, when| {
        let lab = lab();
        let boot = disk(1, 1, Slot::Boot, lab.new_backend(MIB).await);
        let gone = disk(2, 1, Slot::HotPlug, lab.new_backend(MIB).await);
        let data = disk(3, 1, Slot::HotPlug, lab.new_backend(MIB).await);
        inject(&lab.target);
        let emulation = || nvme(&lab);
        // One after the other, so that each has the same place in every run.
        bring(&emulation, &[&boot], MIB, when).await;
        bring(&emulation, &[&boot, &gone], MIB, when).await;
        bring(&emulation, &[&boot, &gone, &data], MIB, when).await;
        for disk in [&boot, &gone, &data] {
            ports::conformance::emulation::Bench::grow(&lab, &disk.backend, 2 * MIB).await;
        }
        bring(&emulation, &[&boot, &gone, &data], 2 * MIB, when).await;
        bring(&emulation, &[&boot, &data], 2 * MIB, when).await;
        let places = [(&boot, names::BOOT_NSID), (&data, names::FIRST_HOT_PLUG_NSID + 1)];
        let expected = places.map(|(disk, nsid)| (u64::from(nsid), disk.uuid.clone(), names::bdev(&disk.id)));
        let (shown, hosts) = seen(&lab.target, &lab.host().nqn, when);
        assert_eq!(shown, expected, "{when}");
        let fabric = matches!(lab.door, Door::Fabric { .. });
        assert_eq!(hosts.iter().map(String::as_str).collect::<Vec<_>>(), if fabric { vec![HOST_NQN] } else { vec![] });
        assert_eq!(lab.target.with(|world| world.bdevs.len()), 2, "{when}");
        assert_eq!(lab.target.violations(), Vec::<String>::new(), "{when}");
        !lab.target.has_faults()
    })
    .await;
}

#[tokio::test]
async fn a_host_on_the_bus_keeps_what_it_sees() {
    a_host_keeps_what_it_sees(|| fake(Over::File)).await;
}

#[tokio::test]
async fn a_host_over_a_fabric_keeps_what_it_sees() {
    a_host_keeps_what_it_sees(|| Lab { door: over_tcp(), ..fake(Over::File) }).await;
}

#[tokio::test]
async fn a_virtual_machine_keeps_its_sockets() {
    each_fault(async |inject, when| {
        let lab = fake(Over::File);
        let virtio = |number, slot, backend| DiskFunction { bus: Bus::VirtioBlk, ..disk(number, 1, slot, backend) };
        let boot = virtio(1, Slot::Boot, lab.new_backend(MIB).await);
        let data = virtio(2, Slot::HotPlug, lab.new_backend(MIB).await);
        inject(&lab.target);
        let emulation = || -> Box<dyn Emulation> {
            let socket = lab.target.socket();
            Box::new(VhostEmulation::new(socket, HOT_PLUG))
        };
        bring(&emulation, &[&boot, &data], MIB, when).await;
        let sockets = || {
            lab.target.with(|world| world.vhost.iter().map(|(n, c)| (n.clone(), c.bdev.clone())).collect::<Vec<_>>())
        };
        let shown = |name: &str, disk: &DiskFunction| (name.to_owned(), Some(names::bdev(&disk.id)));
        let own = names::bdev(&data.id);
        assert_eq!(sockets(), [shown(&own, &data), shown("mp-boot", &boot)], "{when}");
        bring(&emulation, &[&boot], MIB, when).await;
        assert_eq!(sockets(), [shown("mp-boot", &boot)], "{when}");
        assert_eq!(lab.target.with(|world| world.bdevs.len()), 1, "{when}");
        assert_eq!(lab.target.violations(), Vec::<String>::new(), "{when}");
        !lab.target.has_faults()
    })
    .await;
}

/// A DPU whose target connects a volume and presents it.
struct Chain {
    lab: storage::Lab,
    volume: Volume,
    id: ExposureId,
}

impl Chain {
    async fn over_nvme() -> Chain {
        let lab = storage::Lab::fake(1);
        let volume = lab.nvme_volume("volume-0", MIB).await;
        Chain { lab, volume, id: storage::id("5f0c1c9e-58a4-4b1c-9a63-000000000001", 3) }
    }

    fn fake(&self) -> &Fake {
        self.lab.dpu().fake()
    }

    fn emulation(&self) -> SpdkEmulation {
        let host = Host {
            nqn: NQN.to_owned(),
            serial: "MPHOST1".to_owned(),
            door: Door::VfioUser { folder: self.lab.path("vfio-user") },
            hot_plug: HOT_PLUG,
        };
        SpdkEmulation::new(self.lab.dpu().socket(), host, self.lab.path("state")).expect("a driver")
    }

    fn connector(&self) -> Box<dyn VolumeConnector> {
        Box::new(SpdkConnector::new(self.lab.dpu().socket(), NvmeOf))
    }

    fn function(&self, backend: Backend) -> DiskFunction {
        DiskFunction { id: self.id.clone(), uuid: self.id.uid.clone(), ..disk(1, 1, Slot::HotPlug, backend) }
    }

    /// One look and one step of an agent; whether all is so.
    async fn step(&self, connector: &dyn VolumeConnector, size_bytes: Option<u64>) -> bool {
        let emulation = self.emulation();
        let (Ok(held), Ok(listed)) = (connector.list().await, emulation.list().await) else { return false };
        let shown = listed.iter().find(|exposure| exposure.id == self.id);
        match (size_bytes, shown, held.is_empty()) {
            (Some(size), shown, _) => {
                let Ok(connection) = connector.connect(&self.id, &self.volume).await else { return false };
                match shown {
                    Some(there) if there.presence != Presence::Present => {}
                    Some(there) if there.size_bytes == Some(size) && connection.size_bytes == size => return true,
                    Some(_) => drop(emulation.resize_disk(&self.id, size).await),
                    None => drop(emulation.expose_disk(&self.function(connection.backend)).await),
                }
            }
            (None, Some(_), _) => drop(emulation.hide(&self.id, FunctionKind::Disk).await),
            (None, None, false) => drop(connector.disconnect(&self.id).await),
            (None, None, true) => return true,
        }
        false
    }

    async fn bring(&self, connector: &dyn Fn() -> Box<dyn VolumeConnector>, size_bytes: Option<u64>, when: &str) {
        for _ in 0..ROUNDS {
            if self.step(connector().as_ref(), size_bytes).await {
                return;
            }
        }
        panic!("{when}: it is not so after {ROUNDS} rounds");
    }
}

#[tokio::test]
async fn a_volume_of_a_storage_node_stays_the_grants_own() {
    each_fault(async |inject, when| {
        let chain = Chain::over_nvme().await;
        let connector = || chain.connector();
        inject(chain.fake());
        chain.bring(&connector, Some(MIB), when).await;
        chain.lab.grow_nvme(&chain.volume, 2 * MIB).await;
        chain.bring(&connector, Some(2 * MIB), when).await;
        let (shown, _) = seen(chain.fake(), NQN, when);
        let first = u64::from(names::FIRST_HOT_PLUG_NSID);
        assert_eq!(shown, [(first, chain.id.uid.clone(), names::bdev(&chain.id))], "{when}");
        let hosts = chain.fake().with(|world| {
            let ways =
                world.initiator.controllers.iter().flat_map(|(name, ways)| ways.iter().map(move |way| (name, way)));
            ways.map(|(name, way)| (names::parse_connection(name), way.host.clone())).collect::<Vec<_>>()
        });
        let identity = connector().identity(&chain.id);
        assert_eq!(hosts, [(Some(chain.id.clone()), identity)], "{when}");
        chain.bring(&connector, None, when).await;
        let left = chain.fake().with(|world| (world.bdevs.len(), world.initiator.controllers.len()));
        assert_eq!(left, (0, 0), "{when}");
        chain.lab.assert_harmless();
        !chain.fake().has_faults()
    })
    .await;
}

/// The storage lets this DPU in no more, as a fence leaves it, while the host has a write on its way: the disk goes all the same.
#[tokio::test]
async fn a_disk_goes_whose_storage_is_lost_under_a_write() {
    each_fault(async |inject, when| {
        let chain = Chain::over_nvme().await;
        let connector = || chain.connector();
        chain.bring(&connector, Some(MIB), when).await;
        chain.lab.refuse_all(&chain.volume);
        assert!(!chain.fake().open(&names::bdev(&chain.id)).write(1).expect("asked"), "it arrived: {when}");
        inject(chain.fake());
        chain.bring(&connector, None, when).await;
        let left = chain.fake().with(|world| (world.bdevs.len(), world.initiator.controllers.len()));
        assert_eq!(left, (0, 0), "{when}");
        chain.lab.assert_harmless();
        !chain.fake().has_faults()
    })
    .await;
}

/// Which calls of presenting a disk change something.
async fn changing_calls() -> Vec<String> {
    let lab = fake(Over::File);
    let disk = disk(1, 1, Slot::Boot, lab.new_backend(MIB).await);
    lab.emulation().expose_disk(&disk).await.expect("expose");
    let all: BTreeSet<_> = lab.target.calls().into_iter().filter(|call| !call.contains("get")).collect();
    all.into_iter().collect()
}

#[tokio::test]
async fn a_full_target_says_so_and_takes_the_disk_when_there_is_room() {
    let methods = changing_calls().await;
    assert!(methods.iter().any(|method| method == "nvmf_subsystem_add_ns"), "{methods:?}");
    for method in methods {
        for (code, words) in [(-12, "Cannot allocate memory"), (-28, "No space left on device")] {
            let when = format!("{method}: {words}");
            let lab = fake(Over::File);
            let disk = disk(1, 1, Slot::Boot, lab.new_backend(MIB).await);
            lab.target.inject_for(&method, Fault::Refused { code, message: words.to_owned() });
            for _ in 0..3 {
                let full = lab.emulation().expose_disk(&disk).await.expect_err("it is full");
                assert_eq!(full.class, ErrorClass::Busy, "{when}: {full}");
                assert!(full.message.contains(words), "{when}: {full}");
                let listed = lab.emulation().list().await.expect("list");
                let present = listed.iter().any(|exposure| exposure.presence == Presence::Present);
                assert!(!present, "{when}: it is said to be there");
            }
            lab.target.forget_faults();
            bring(&|| nvme(&lab), &[&disk], MIB, &when).await;
            let (shown, _) = seen(&lab.target, &lab.host().nqn, &when);
            assert_eq!(shown, [(u64::from(names::BOOT_NSID), disk.uuid.clone(), names::bdev(&disk.id))], "{when}");
            assert_eq!(lab.target.violations(), Vec::<String>::new(), "{when}");
        }
    }
}

/// The disk under a logical volume store goes, with the store and all that stands on it; and it comes back.
#[tokio::test]
async fn a_store_on_a_lost_disk_takes_its_volumes_along_and_brings_them_back() {
    let lab = storage::Lab::fake(1);
    let volume = lab.lvol_volume("volume-0", MIB).await;
    let chain = Chain { lab, volume, id: storage::id("5f0c1c9e-58a4-4b1c-9a63-000000000001", 1) };
    let connector = || -> Box<dyn VolumeConnector> { Box::new(SpdkConnector::new(chain.lab.dpu().socket(), Local)) };
    chain.bring(&connector, Some(MIB), "at first").await;
    let before = seen(chain.fake(), NQN, "at first");
    chain.fake().with(|world| world.vanish("volume-0-own-name"));
    assert_eq!(chain.emulation().list().await.expect("list").len(), 0, "the host has lost it");
    let refused = connector().connect(&chain.id, &chain.volume).await.expect_err("it is not there");
    assert_eq!(refused.class, ErrorClass::NotFound, "{refused}");
    assert!(refused.message.contains("lvs0/volume-0"), "it names the volume: {refused}");
    // What is asked to go is gone, and nothing of it is left.
    chain.emulation().hide(&chain.id, FunctionKind::Disk).await.expect("hide");
    connector().disconnect(&chain.id).await.expect("disconnect");
    assert_eq!(chain.fake().with(|world| world.bdevs.len()), 0);
    chain.lab.lvol_volume("volume-0", MIB).await;
    chain.bring(&connector, Some(MIB), "again").await;
    assert_eq!(seen(chain.fake(), NQN, "again"), before);
    chain.lab.assert_harmless();
}
