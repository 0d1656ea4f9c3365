//! Disks by NVIDIA SNAP, on the fake: its calls are checked against what is known of their shape.

#[expect(dead_code, reason = "each test program uses a part of it")]
mod target;

use async_trait::async_trait;
use planner::exposure::{FunctionKind, Slot};
use ports::conformance::{Sleep, emulation};
use ports::emulation::{Backend, DiskFunction};
use ports::{Emulation, ErrorClass};
use sandbox::spdk::Fake;
use sandbox::spdk::faults::Fault;
use spdk::names;
use spdk::snap::SnapEmulation;
use std::time::Duration;
use target::{HOT_PLUG, Lab, Over, disk, fake};

const MIB: u64 = 1 << 20;
const NQN: &str = "nqn.2026-01.io.metalplane:host";
const FUNCTION: &str = "MT2328XZ17DFNVMES0D0F2";

struct Bench(Lab<Fake>);

impl Bench {
    fn new(over: Over) -> Bench {
        let lab = fake(over);
        lab.target.with(|world| world.outside.functions.push(FUNCTION.to_owned()));
        Bench(lab)
    }

    fn emulation(&self) -> SnapEmulation {
        let state = self.0.folder.path().join("state");
        SnapEmulation::new(self.0.target.socket(), NQN.to_owned(), HOT_PLUG, state)
    }

    /// Number, disk, and whether the host has it.
    fn namespaces(&self) -> Vec<(u64, String, bool)> {
        self.0.target.with(|world| {
            let all = world.snap.subsystems.values().flat_map(|subsystem| &subsystem.namespaces);
            all.map(|(nsid, ns)| (*nsid, ns.bdev.clone(), ns.shown_by.is_some())).collect()
        })
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
}

#[tokio::test]
async fn the_fake_conforms() {
    for over in [Over::File, Over::Bdev] {
        let bench = Bench::new(over);
        emulation::run(&bench).await;
        assert_eq!(bench.0.target.violations(), Vec::<String>::new(), "{over:?}");
    }
}

#[tokio::test]
async fn an_idle_function_keeps_its_controller() {
    let bench = Bench::new(Over::File);
    let (emulation, boot) = (bench.emulation(), disk(1, 1, Slot::Boot, bench.0.new_backend(MIB).await));
    emulation.expose_disk(&boot).await.expect("expose");
    assert_eq!(bench.namespaces(), [(1, names::bdev(&boot.id), true)]);
    emulation.hide(&boot.id, FunctionKind::Disk).await.expect("hide");
    assert_eq!(bench.namespaces(), []);
    let started = bench.0.target.with(|world| {
        let all = world.snap.subsystems.values().flat_map(|subsystem| subsystem.controllers.values());
        all.map(|controller| (controller.vuid.clone(), controller.started)).collect::<Vec<_>>()
    });
    assert_eq!(started, [(FUNCTION.to_owned(), true)]);
    let again = disk(2, 1, Slot::Boot, bench.0.new_backend(MIB).await);
    emulation.expose_disk(&again).await.expect("on the controller that is there");
    assert_eq!(bench.0.target.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_dpu_without_a_function_says_so() {
    let lab = fake(Over::File);
    lab.target.with(|world| world.outside.functions.push(FUNCTION.to_owned()));
    let bench = Bench(lab);
    let boot = disk(1, 1, Slot::Boot, bench.0.new_backend(MIB).await);
    bench.0.target.with(|world| world.outside.functions.clear());
    let refused = bench.emulation().expose_disk(&boot).await.expect_err("plain SPDK has no such methods");
    assert_eq!(refused.class, ErrorClass::Unsupported, "{refused}");
}

/// Every fault at every call, with the driver restarted behind each: it ends as without.
#[tokio::test]
async fn every_fault_at_every_call_is_survived() {
    for fault in Fault::all() {
        for call in 0.. {
            let bench = Bench::new(Over::File);
            let when = format!("{fault:?} at call {call}");
            let boot = disk(1, 1, Slot::Boot, bench.0.new_backend(MIB).await);
            let data = disk(2, 1, Slot::HotPlug, bench.0.new_backend(MIB).await);
            bench.0.target.inject(call, fault.clone());
            bring(&bench, &[&boot, &data], &when).await;
            bring(&bench, &[&boot], &when).await;
            assert_eq!(bench.namespaces(), [(1, names::bdev(&boot.id), true)], "{when}");
            let bdevs = bench.0.target.with(|world| world.bdevs.len());
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
        let Ok(listed) = emulation.list().await else { continue };
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
