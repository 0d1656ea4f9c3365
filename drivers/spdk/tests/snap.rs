//! Disks by NVIDIA SNAP, on the fake: its calls are checked against what is known of their shape, and it misbehaves as SNAP was described to do.

#[expect(dead_code, reason = "each test program uses a part of it")]
mod target;

use async_trait::async_trait;
use planner::exposure::{ExposureId, FunctionKind, Presence, Slot};
use ports::conformance::{Sleep, emulation};
use ports::emulation::{Backend, DiskFunction};
use ports::{Emulation, ErrorClass};
use sandbox::spdk::Fake;
use sandbox::spdk::faults::Fault;
use sandbox::spdk::world::{Host, SerialName, World};
use spdk::names;
use spdk::snap::{Config, SnapEmulation};
use std::time::Duration;
use target::{HOT_PLUG, Lab, Over, disk, fake};

const MIB: u64 = 1 << 20;
const NQN: &str = "nqn.2026-01.io.metalplane:host";
const SERIAL: &str = "MPABCDEFGH1234567890";
const FUNCTION: &str = "MT2328XZ17DFNVMES0D0F2";
const PORTS: u32 = 3;

struct Bench(Lab<Fake>);

impl Bench {
    fn new(over: Over) -> Bench {
        let lab = fake(over);
        lab.target.with(|world| {
            world.outside.functions.push(FUNCTION.to_owned());
            world.outside.dpu.ports = PORTS as usize;
        });
        Bench(lab)
    }

    /// Whose controller is there, as an agent has it that has just started.
    async fn backed() -> Bench {
        let bench = Bench::new(Over::File);
        bench.emulation().recover(&[], false).await.expect("a controller without namespaces");
        bench
    }

    fn emulation(&self) -> SnapEmulation {
        let config = Config { nqn: NQN.to_owned(), serial: SERIAL.to_owned(), hot_plug: HOT_PLUG, switch_ports: PORTS };
        SnapEmulation::new(self.0.target.socket(), config, self.0.folder.path().join("state"))
    }

    async fn disk(&self, number: u32, slot: Slot) -> DiskFunction {
        disk(number, 1, slot, self.0.new_backend(MIB).await)
    }

    fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        self.0.target.with(act)
    }

    /// Number, disk, and whether the host has it, on the first function.
    fn namespaces(&self) -> Vec<(u64, String, bool)> {
        self.with(|world| {
            let all = world.snap.subsystems.get(NQN).into_iter().flat_map(|subsystem| &subsystem.namespaces);
            all.map(|(nsid, ns)| (*nsid, ns.bdev.clone(), ns.shown_by.is_some())).collect()
        })
    }

    fn resumes(&self) -> usize {
        self.0.target.calls().iter().filter(|call| *call == "nvme_controller_resume").count()
    }

    fn is_clean(&self) {
        assert_eq!(self.0.target.violations(), Vec::<String>::new());
    }
}

#[async_trait]
impl Sleep for Bench {
    async fn sleep(&self, time: Duration) {
        self.0.sleep(time).await;
    }
}

#[async_trait]
impl emulation::Bench for Bench {
    async fn connect(&self) -> Box<dyn Emulation> {
        Box::new(self.emulation())
    }

    async fn backend(&self, size_bytes: u64) -> Backend {
        self.0.new_backend(size_bytes).await
    }

    async fn grow(&self, backend: &Backend, size_bytes: u64) {
        // What is over memory in the target would grow by itself.
        if let Backend::Path(_) = backend {
            emulation::Bench::grow(&self.0, backend, size_bytes).await;
        }
    }

    /// A namespace needs nobody's consent to leave.
    async fn let_host_release(&self) {}

    async fn has_device(&self, _: &str) -> Option<bool> {
        None
    }

    async fn restart(&self) -> bool {
        if self.0.over == Over::Bdev {
            // Its memory ends with it.
            return false;
        }
        self.0.target.kill();
        self.0.target.revive().is_ok()
    }
}

#[tokio::test]
async fn the_fake_conforms() {
    for over in [Over::File, Over::Bdev] {
        for old in [false, true] {
            let bench = Bench::new(over);
            bench.with(|world| world.outside.is_old = old);
            emulation::run(&bench).await;
            bench.is_clean();
        }
    }
}

#[tokio::test]
async fn the_static_function_is_backed_before_any_machine() {
    let bench = Bench::new(Over::File);
    let emulation = bench.emulation();
    assert!(emulation.list_by_kind().await.awaits_recovery);
    let boot = bench.disk(1, Slot::Boot).await;
    let early = emulation.expose_disk(&boot).await.expect_err("nothing is presented by itself before");
    assert_eq!(early.class, ErrorClass::Busy, "{early}");
    for _ in 0..3 {
        emulation.recover(&[], false).await.expect("a controller");
    }
    assert_eq!(bench.resumes(), 1, "a second resume is an error");
    assert!(!emulation.list_by_kind().await.awaits_recovery);
    bench.with(World::start_host);
    bench.is_clean();
}

#[tokio::test]
async fn an_idle_function_keeps_its_controller() {
    let bench = Bench::backed().await;
    let (emulation, boot) = (bench.emulation(), bench.disk(1, Slot::Boot).await);
    emulation.expose_disk(&boot).await.expect("expose");
    assert_eq!(bench.namespaces(), [(1, names::bdev(&boot.id), true)]);
    emulation.hide(&boot.id, FunctionKind::Disk).await.expect("hide");
    assert_eq!(bench.namespaces(), []);
    bench.with(World::start_host);
    let again = bench.disk(2, Slot::Boot).await;
    emulation.expose_disk(&again).await.expect("on the controller that is there");
    assert_eq!(bench.resumes(), 1);
    bench.is_clean();
}

/// A service that restarts under its host: the host has lost nothing, and was shown no half.
#[tokio::test]
async fn a_restart_under_the_host_is_recovered_at_once() {
    let bench = Bench::backed().await;
    let emulation = bench.emulation();
    let disks = [bench.disk(1, Slot::Boot).await, bench.disk(2, Slot::Seed).await, bench.disk(3, Slot::HotPlug).await];
    for disk in &disks {
        emulation.expose_disk(disk).await.expect("expose");
    }
    bench.with(World::start_host);
    let late = bench.disk(4, Slot::HotPlug).await;
    emulation.expose_disk(&late).await.expect("while the host runs");
    let found = bench.with(|world| world.host_found());
    assert_eq!(found.iter().map(|(_, all)| all.len()).collect::<Vec<_>>(), [3, 1], "{found:?}");
    bench.0.target.kill();
    bench.0.target.revive().expect("revive");

    let emulation = bench.emulation();
    assert!(emulation.list_by_kind().await.awaits_recovery);
    assert_eq!(emulation.list().await, Ok(Vec::new()));
    let all: Vec<DiskFunction> = disks.iter().chain([&late]).cloned().collect();
    emulation.recover(&all, false).await.expect("recover");
    emulation.recover(&all, false).await.expect("and again");
    assert_eq!(bench.with(|world| world.host_found()), found, "each where it was");
    assert_eq!(emulation.list().await.expect("list").len(), 4);
    bench.is_clean();
}

/// Its storage no longer exists, for example: that is its own misfortune, and not its host's.
#[tokio::test]
async fn a_disk_that_is_refused_for_good_keeps_no_other_from_its_host() {
    for refused in [2, 3] {
        let bench = Bench::backed().await;
        let disks = [bench.disk(1, Slot::Boot).await, bench.disk(2, Slot::HotPlug).await];
        for disk in &disks {
            bench.emulation().expose_disk(disk).await.expect("expose");
        }
        bench.with(World::start_host);
        let late = bench.disk(3, Slot::HotPlug).await;
        bench.emulation().expose_disk(&late).await.expect("while the host runs");
        let all: Vec<DiskFunction> = disks.into_iter().chain([late]).collect();
        bench.0.target.kill();
        let Backend::Path(path) = &all[refused - 1].backend else { panic!("a file is behind it") };
        std::fs::remove_file(path).expect("its storage");
        bench.0.target.revive().expect("revive");

        let emulation = bench.emulation();
        let error = emulation.recover(&all, false).await.expect_err("one is refused");
        assert_ne!(error.class, ErrorClass::Unreachable, "{error}");
        assert!(emulation.list_by_kind().await.awaits_recovery, "the refused disk holds the others back");
        emulation.recover(&all, true).await.expect("without the refused disk");
        let left: Vec<ExposureId> = emulation.list().await.expect("list").into_iter().map(|one| one.id).collect();
        assert!(left.contains(&all[0].id) && left.contains(&all[4 - refused].id), "{refused}: {left:?}");
        assert!(!left.contains(&all[refused - 1].id), "{refused}: {left:?}");
        // The host misses what it had on its first function, and nothing else.
        let missed = bench.0.target.violations();
        assert_eq!(missed.len(), usize::from(refused == 2), "{missed:?}");
    }
}

/// Every kind of fault at every call of a recovery, with the driver restarted behind each; refusals differ in their words alone.
#[tokio::test]
async fn a_recovery_survives_every_fault_at_every_call() {
    let refused = |fault: &Fault| matches!(fault, Fault::Refused { .. });
    let kinds = Fault::all();
    let one = kinds.iter().find(|fault| refused(fault));
    for fault in kinds.iter().filter(|fault| !refused(fault)).chain(one) {
        for call in 0.. {
            let bench = Bench::backed().await;
            let when = format!("{fault:?} at call {call}");
            let disks = [bench.disk(1, Slot::Boot).await, bench.disk(2, Slot::HotPlug).await];
            for disk in &disks {
                bench.emulation().expose_disk(disk).await.expect("expose");
            }
            bench.with(World::start_host);
            let late = bench.disk(3, Slot::HotPlug).await;
            bench.emulation().expose_disk(&late).await.expect("while the host runs");
            let all: Vec<DiskFunction> = disks.iter().chain([&late]).cloned().collect();
            let found = bench.with(|world| world.host_found());
            bench.0.target.kill();
            bench.0.target.revive().expect("revive");
            bench.0.target.inject(call, fault.clone());
            for attempt in 0.. {
                assert!(attempt < 20, "{when}: not recovered");
                let emulation = bench.emulation();
                let done = emulation.recover(&all, false).await.is_ok();
                if done && matches!(emulation.list().await, Ok(listed) if listed.len() == 3) {
                    break;
                }
            }
            assert_eq!(bench.with(|world| world.host_found()), found, "{when}");
            assert_eq!(bench.0.target.violations(), Vec::<String>::new(), "{when}");
            if bench.0.target.has_faults() {
                break;
            }
        }
    }
}

#[tokio::test]
async fn what_comes_once_the_host_runs_is_a_function_of_its_own() {
    let bench = Bench::backed().await;
    let emulation = bench.emulation();
    let boot = bench.disk(1, Slot::Boot).await;
    emulation.expose_disk(&boot).await.expect("expose");
    bench.with(World::start_host);
    let data = bench.disk(2, Slot::HotPlug).await;
    emulation.expose_disk(&data).await.expect("expose");
    assert_eq!(bench.namespaces().len(), 1, "nothing is attached under a running host");
    let presence = async |id: &ExposureId| {
        let listed = emulation.list().await.expect("list");
        listed.iter().find(|exposure| exposure.id == *id).map(|exposure| exposure.presence)
    };
    assert_eq!(presence(&data.id).await, Some(Presence::Present));
    let vuid = bench.with(|world| world.outside.dpu.plugged.keys().next().cloned()).expect("a function");

    emulation.hide(&data.id, FunctionKind::Disk).await.expect("hide");
    assert_eq!(presence(&data.id).await, Some(Presence::Leaving), "the host has it");
    emulation.hide(&data.id, FunctionKind::Disk).await.expect("hide again");
    bench.with(|world| world.release_function(&vuid));
    assert_eq!(presence(&data.id).await, None);
    let left = bench.with(|world| (world.outside.dpu.plugged.len(), world.snap.subsystems.len(), world.bdevs.len()));
    assert_eq!(left, (0, 1, 1), "the port, the subsystem and the bdev are free again");
    bench.is_clean();
}

#[tokio::test]
async fn ports_of_the_switch_are_shared_with_others() {
    let bench = Bench::backed().await;
    let emulation = bench.emulation();
    bench.with(|world| {
        world.start_host();
        world.outside.dpu.ports_taken = 2;
    });
    emulation.expose_disk(&bench.disk(1, Slot::HotPlug).await).await.expect("the last port");
    let full = emulation.expose_disk(&bench.disk(2, Slot::HotPlug).await).await.expect_err("virtio-net has the others");
    assert!(full.class == ErrorClass::Busy && full.message.contains("PCIe switch"), "{full}");
    bench.with(World::stop_host);
    let before_start = bench.disk(3, Slot::HotPlug).await;
    emulation.expose_disk(&before_start).await.expect("a namespace needs none");
    bench.is_clean();
}

#[tokio::test]
async fn an_older_snap_without_hot_plug_gets_namespaces() {
    let bench = Bench::new(Over::File);
    bench.with(|world| world.outside.dpu.lacks_hot_plug = true);
    let emulation = bench.emulation();
    emulation.recover(&[], false).await.expect("a controller");
    assert_eq!(emulation.capabilities().await.map(|all| all.switch_ports), Ok(0));
    bench.with(World::start_host);
    emulation.expose_disk(&bench.disk(1, Slot::HotPlug).await).await.expect("expose");
    assert_eq!(bench.namespaces().len(), 1);
    bench.is_clean();
}

#[tokio::test]
async fn the_controller_has_our_serial_number_where_snap_takes_one() {
    for (name, serial) in [(SerialName::Short, SERIAL), (SerialName::Long, SERIAL), (SerialName::Absent, "MNC12")] {
        let bench = Bench::new(Over::File);
        bench.with(|world| world.outside.dpu.serial_name = name);
        let emulation = bench.emulation();
        emulation.recover(&[], false).await.expect("a controller");
        let told = emulation.boot_controller().await.expect("told").expect("known");
        assert_eq!((told.serial.as_str(), told.pci_address), (serial, None), "{name:?}");
        bench.with(World::start_host);
        let told = emulation.boot_controller().await.expect("told").expect("known");
        assert_eq!(told.pci_address.as_deref(), Some("26:00.2"));
        assert_eq!(bench.with(|world| world.outside.dpu.host), Host::Running);
        bench.is_clean();
    }
}

#[tokio::test]
async fn what_stands_in_the_way_is_named() {
    let lab = fake(Over::File);
    let plain = Bench(lab);
    let refused = plain.emulation().list().await.expect_err("plain SPDK has no such methods");
    assert!(
        refused.class == ErrorClass::Unsupported && refused.message.contains("emulation_function_list"),
        "{refused}"
    );

    let bench = Bench::backed().await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    bench.with(|world| world.outside.sees_only = Some(elsewhere.path().to_owned()));
    let hidden =
        bench.emulation().expose_disk(&bench.disk(1, Slot::Boot).await).await.expect_err("not in the container");
    assert!(hidden.message.contains("snap/providers"), "{hidden}");
    assert_eq!(bench.emulation().list().await, Ok(Vec::new()));

    let taken = Bench::new(Over::File);
    let other =
        Config { nqn: "nqn.2022-10.io.nvda.nvme:0".to_owned(), serial: "S".to_owned(), hot_plug: 1, switch_ports: 0 };
    let state = taken.0.folder.path().join("other");
    SnapEmulation::new(taken.0.target.socket(), other, state)
        .recover(&[], false)
        .await
        .expect("SNAP's own start-up file");
    let _ = taken.emulation().list().await;
    let refused = taken.emulation().list().await.expect_err("the function is another's");
    assert!(refused.class == ErrorClass::Conflict && refused.message.contains("snap_rpc_init.conf"), "{refused}");
}

/// Every fault at every call, with the driver restarted behind each: it ends as without.
#[tokio::test]
async fn every_fault_at_every_call_is_survived() {
    for fault in Fault::all() {
        for call in 0.. {
            let bench = Bench::new(Over::File);
            let when = format!("{fault:?} at call {call}");
            let (boot, data) = (bench.disk(1, Slot::Boot).await, bench.disk(2, Slot::HotPlug).await);
            bench.0.target.inject(call, fault.clone());
            bring(&bench, &[&boot, &data], &when).await;
            bring(&bench, &[&boot], &when).await;
            assert_eq!(bench.namespaces(), [(1, names::bdev(&boot.id), true)], "{when}");
            let bdevs = bench.with(|world| world.bdevs.len());
            assert_eq!((bdevs, bench.0.target.violations()), (1, Vec::new()), "{when}");
            if bench.0.target.has_faults() {
                break;
            }
        }
    }
}

/// What an agent does until it is so.
async fn bring(bench: &Bench, wanted: &[&DiskFunction], when: &str) {
    for _ in 0..40 {
        let emulation = bench.emulation();
        let listed = emulation.list_by_kind().await;
        if listed.awaits_recovery {
            let all: Vec<DiskFunction> = wanted.iter().map(|disk| (*disk).clone()).collect();
            drop(emulation.recover(&all, false).await);
            continue;
        }
        let Ok(listed) = listed.disks else { continue };
        let stray = listed.iter().find(|exposure| !wanted.iter().any(|disk| disk.id == exposure.id));
        let missing = wanted.iter().find(|disk| !listed.iter().any(|exposure| exposure.id == disk.id));
        match (stray, missing) {
            (None, None) => return,
            (Some(stray), _) => drop(emulation.hide(&stray.id, FunctionKind::Disk).await),
            (None, Some(missing)) => drop(emulation.expose_disk(missing).await),
        }
    }
    panic!("{when}: it is not so after 40 rounds");
}
