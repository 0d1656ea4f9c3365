//! The fence of NVMe over fabrics: against the fake, and against real targets where SPDK is installed.

#[expect(dead_code, reason = "each test program uses a part of it")]
mod storage;

use async_trait::async_trait;
use planner::exposure::ExposureId;
use ports::conformance::fence::{Bench, Session, suite};
use ports::emulation::Backend;
use ports::fence::Admission;
use ports::volume::Volume;
use ports::{ErrorClass, PortError, StorageFence, VolumeConnector};
use sandbox::spdk::faults::Fault;
use sandbox::spdk::{Disk, real};
use serde_json::{Value, json};
use spdk::fence::NvmeFence;
use spdk::volumes::{SpdkConnector, nvmeof::NvmeOf};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use storage::{Lab, MIB, Target, id};

/// Two DPUs and a storage node.
struct Site {
    lab: Lab,
    opened: AtomicU32,
}

impl Site {
    fn new(lab: Lab) -> Site {
        Site { lab, opened: AtomicU32::new(0) }
    }

    fn fence(&self) -> NvmeFence {
        NvmeFence::new(BTreeMap::from([self.lab.place()]))
    }

    fn connector(&self, dpu: u8) -> SpdkConnector<NvmeOf> {
        SpdkConnector::new(self.lab.dpus[usize::from(dpu) - 1].socket(), NvmeOf)
    }

    /// In whose target the bdev is; none: it has gone with the fence.
    async fn owner(&self, bdev: &str) -> Option<&Target> {
        for dpu in &self.lab.dpus {
            let all = dpu.call("bdev_get_bdevs", Value::Null).await;
            if all.as_array().is_some_and(|all| all.iter().any(|one| one["name"] == bdev)) {
                return Some(dpu);
            }
        }
        None
    }
}

/// What an emulator has open.
enum Open {
    Fake(Disk),
    Real(Host),
}

/// A subsystem of the DPU's target shows the bdev to a host, which is a program that writes over NVMe/TCP.
struct Host {
    program: PathBuf,
    config: PathBuf,
    target: PathBuf,
    nqn: String,
}

/// A write that is not done by then waits for a path that has been lost.
const WRITE: Duration = Duration::from_secs(15);
const BLOCK: usize = 512;

impl Host {
    async fn of(target: &Target, bdev: &str, folder: &Path, number: u32) -> Host {
        let nqn = format!("nqn.2026-01.test:host-{number}");
        let transports = target.call("nvmf_get_transports", Value::Null).await;
        if transports.as_array().is_some_and(Vec::is_empty) {
            target.call("nvmf_create_transport", json!({"trtype": "TCP"})).await;
        }
        let create = json!({"nqn": nqn, "serial_number": "H", "allow_any_host": true});
        target.call("nvmf_create_subsystem", create).await;
        target.call("nvmf_subsystem_add_ns", json!({"nqn": nqn, "namespace": {"bdev_name": bdev}})).await;
        let port = storage::free_port().to_string();
        let address = json!({"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port});
        target.call("nvmf_subsystem_add_listener", json!({"nqn": nqn, "listen_address": address})).await;
        let mut attach = address;
        (attach["name"], attach["subnqn"]) = ("H".into(), nqn.as_str().into());
        let attach = json!({"method": "bdev_nvme_attach_controller", "params": attach});
        let config = folder.join(format!("host-{number}.json"));
        let text = json!({"subsystems": [{"subsystem": "bdev", "config": [attach]}]}).to_string();
        std::fs::write(&config, text).expect("written");
        let program = real::program("spdk_dd").expect("the target's folder has it");
        Host { program, config, target: target.socket().to_owned(), nqn }
    }

    async fn write(&self, byte: u8) {
        let content = self.config.with_extension("block");
        std::fs::write(&content, [byte; BLOCK]).expect("written");
        let mut command = tokio::process::Command::new(&self.program);
        command.arg(format!("--if={}", content.display())).arg(format!("--json={}", self.config.display()));
        command.args(["--ob=Hn1", "--bs=512", "--count=1", "-m", "0x1", "--no-huge", "-s", "512", "--no-pci"]);
        command
            .arg("--disable-cpumask-locks")
            .arg("--no-rpc-server")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut process = command.kill_on_drop(true).spawn().expect("it starts");
        // What became of it shows at the storage.
        let _ = tokio::time::timeout(WRITE, process.wait()).await;
    }
}

#[async_trait]
impl Session for Open {
    async fn write(&self, byte: u8) {
        match self {
            Self::Fake(disk) => drop(disk.write(byte).expect("its file takes writes")),
            Self::Real(host) => host.write(byte).await,
        }
    }

    async fn close(self) {
        if let Self::Real(host) = self {
            let nqn = json!({"nqn": host.nqn});
            real::ask(&host.target, "nvmf_delete_subsystem", nqn).await.expect("deleted");
        }
    }
}

#[async_trait]
impl Bench for Site {
    type Connector = SpdkConnector<NvmeOf>;
    type Fence = NvmeFence;
    type Session = Open;

    async fn connector(&self, dpu: u8) -> SpdkConnector<NvmeOf> {
        Site::connector(self, dpu)
    }

    async fn fence(&self) -> NvmeFence {
        Site::fence(self)
    }

    async fn volume(&self, number: u8) -> Volume {
        self.lab.nvme_volume(&format!("volume-{number}"), MIB).await
    }

    async fn open(&self, _: &ExposureId, backend: &Backend) -> Option<Open> {
        let Backend::Bdev(bdev) = backend else { panic!("{backend:?} is no bdev") };
        let target = self.owner(bdev).await?;
        Some(match target {
            Target::Fake(fake) => Open::Fake(fake.open(bdev)),
            Target::Real(_) => {
                let number = self.opened.fetch_add(1, Ordering::Relaxed);
                Open::Real(Host::of(target, bdev, self.lab.folder.path(), number).await)
            }
        })
    }

    async fn first_byte(&self, volume: &Volume) -> u8 {
        std::fs::read(self.lab.nvme_file(volume)).expect("the volume's file")[0]
    }
}

#[tokio::test]
async fn the_fake_conforms() {
    let site = Site::new(Lab::fake(2));
    suite(&site).await;
    site.lab.assert_harmless();
}

#[tokio::test]
async fn real_targets_conform() {
    const NAME: &str = "real_targets_conform";
    if let Err(missing) = real::program("spdk_dd") {
        eprintln!("SKIP {NAME}: {missing}");
        return;
    }
    let Some(lab) = Lab::real(NAME, 2).await else { return };
    suite(&Site::new(lab)).await;
}

/// As the controller does it.
async fn until_done(when: &str, mut verb: impl AsyncFnMut() -> Result<(), PortError>) {
    for round in 0.. {
        match verb().await {
            Ok(()) => return,
            Err(error) => assert!(round < 20, "{when}: {error}"),
        }
    }
}

/// Every fault at every call at the storage node: the verb, repeated, ends as without, and never lets the fenced one in.
#[tokio::test]
async fn every_fault_at_every_call_is_survived() {
    // A storage node that is killed forgets its subsystems: its administrator's configuration brings them back, not we.
    let faults = || Fault::all().into_iter().filter(|f| !matches!(f, Fault::KilledBefore | Fault::KilledAfter));
    for fault in faults() {
        for call in 0.. {
            let site = Site::new(Lab::fake(2));
            let when = format!("{fault:?} at call {call}");
            let (volume, first, second) = (site.volume(0).await, id("a", 1), id("b", 2));
            let (old, new, fence) = (site.connector(1), site.connector(2), site.fence());
            let (whom, next) = (fence.fence_identity(&first), fence.fence_identity(&second));
            let node = site.lab.storage.fake();
            node.inject(call, fault.clone());
            until_done(&when, async || fence.admit(&volume, &whom).await).await;
            let connection = old.connect(&first, &volume).await.expect(&when);
            let session = site.open(&first, &connection.backend).await.expect(&when);
            until_done(&when, async || fence.fence(&volume, &whom).await).await;
            until_done(&when, async || {
                let fenced = fence.verify_fenced(&volume, &whom).await?;
                assert!(fenced, "{when}");
                Ok(())
            })
            .await;
            until_done(&when, async || fence.admit(&volume, &next).await).await;
            new.connect(&second, &volume).await.expect(&when);
            session.write(b'x').await;
            assert_eq!(site.first_byte(&volume).await, 0, "{when}");
            site.lab.assert_harmless();
            if node.has_faults() {
                break;
            }
        }
    }
}

/// Of an admission that slept, each request may still arrive, at any moment after the fence.
#[tokio::test]
async fn a_late_request_of_an_admission_lets_nobody_in() {
    let site = Site::new(Lab::fake(2));
    let (volume, first, second) = (site.volume(0).await, id("a", 1), id("b", 2));
    let (old, new, fence) = (site.connector(1), site.connector(2), site.fence());
    let (whom, next) = (fence.fence_identity(&first), fence.fence_identity(&second));
    fence.admit(&volume, &whom).await.expect("admit");
    let connection = old.connect(&first, &volume).await.expect("connect");
    let session = site.open(&first, &connection.backend).await.expect("open");
    fence.fence(&volume, &whom).await.expect("fence");
    fence.admit(&volume, &next).await.expect("admit");
    let kept = new.connect(&second, &volume).await.expect("connect");
    let (nqn, bdev, nsid) = (volume.handle.as_str(), "volume-0", 1001);
    let socket = site.lab.storage.socket();
    let namespace = json!({"nsid": nsid, "bdev_name": bdev, "no_auto_visible": true});
    let late = [
        ("nvmf_subsystem_remove_ns", json!({"nqn": nqn, "nsid": 1})),
        ("nvmf_subsystem_add_ns", json!({"nqn": nqn, "namespace": namespace})),
        ("nvmf_ns_add_host", json!({"nqn": nqn, "nsid": nsid, "host": whom})),
        ("nvmf_subsystem_add_host", json!({"nqn": nqn, "host": whom})),
    ];
    for (method, params) in late {
        // Refused or not.
        let _ = real::ask(socket, method, params).await;
        session.write(b'x').await;
        assert_eq!(site.first_byte(&volume).await, 0, "after {method}");
        assert_eq!(new.connect(&second, &volume).await.expect("the holder stays"), kept, "after {method}");
    }
    let refused = fence.admit(&volume, &whom).await.expect_err("a later epoch has it");
    assert_eq!(refused.class, ErrorClass::Conflict, "{refused}");
}

/// Whoever makes the volume's export anew lets nobody in: that is for who grants it.
#[tokio::test]
async fn a_target_that_was_started_anew_lets_in_again_whom_it_has_forgotten() {
    let site = Site::new(Lab::fake(2));
    let (volume, first, second) = (site.volume(0).await, id("a", 1), id("b", 2));
    let (old, new, fence) = (site.connector(1), site.connector(2), site.fence());
    let admission = |id| Admission { volume: volume.clone(), identity: fence.fence_identity(id) };
    let (granted, next) = ([admission(&first)], admission(&second));
    let whom = granted[0].identity.as_str();
    let is_forgotten = async || !fence.forgotten(&granted).await.expect("looked at").is_empty();
    fence.admit(&volume, whom).await.expect("admit");
    let connection = old.connect(&first, &volume).await.expect("connect");
    let session = site.open(&first, &connection.backend).await.expect("open");
    assert!(!is_forgotten().await);
    site.lab.restart_storage(&volume).await;
    assert!(is_forgotten().await);
    session.write(b'1').await;
    assert_eq!(site.first_byte(&volume).await, 0, "it is let in by nobody");
    for _ in 0..2 {
        fence.admit(&volume, whom).await.expect("again");
        assert!(!is_forgotten().await);
    }
    assert_eq!(old.connect(&first, &volume).await.expect("it is there"), connection);
    session.write(b'2').await;
    assert_eq!(site.first_byte(&volume).await, b'2', "the host's writes arrive again");

    fence.fence(&volume, whom).await.expect("fence");
    assert!(!is_forgotten().await, "who is refused is not forgotten");
    let refused = fence.admit(&volume, whom).await.expect_err("it was fenced, and nobody has the volume since");
    assert_eq!(refused.class, ErrorClass::Conflict, "{refused}");
    assert!(fence.verify_fenced(&volume, whom).await.expect("verify"));
    site.lab.restart_storage(&volume).await;
    assert!(is_forgotten().await, "the fence is forgotten, too: only the hold's record has it");
    fence.admit(&volume, &next.identity).await.expect("the next grant");
    assert!(!is_forgotten().await, "a later one has it");
    fence.admit(&volume, whom).await.expect_err("a later one has it");
    new.connect(&second, &volume).await.expect("connect");
    session.write(b'3').await;
    assert_eq!(site.first_byte(&volume).await, b'2');
    // While the target is away nobody knows.
    site.lab.storage.fake().kill();
    assert!(fence.forgotten(&[next]).await.expect("looked at").is_empty());
    site.lab.assert_harmless();
}

/// Whoever has seen the fence done rests on it, whatever an admission of the same grant was at.
#[tokio::test]
async fn a_fence_that_comes_during_an_admission_lasts() {
    let site = Site::new(Lab::fake(2));
    let (volume, fence, node) = (site.volume(0).await, site.fence(), site.lab.storage.fake());
    let before = node.calls().len();
    fence.admit(&volume, &fence.fence_identity(&id("a", 1))).await.expect("admit");
    let all = node.calls().len() - before;
    for after in 0..=all {
        let when = format!("after {after} of {all} calls");
        let whom = fence.fence_identity(&id("a", 2 + after as u64));
        let (before, admitted) = (node.calls().len(), Cell::new(false));
        let admission = async {
            // Refused or not.
            let _ = fence.admit(&volume, &whom).await;
            admitted.set(true);
        };
        let fenced = async {
            while node.calls().len() < before + after && !admitted.get() {
                tokio::task::yield_now().await;
            }
            until_done(&when, async || fence.fence(&volume, &whom).await).await;
        };
        tokio::join!(admission, fenced);
        assert!(fence.verify_fenced(&volume, &whom).await.expect("looked at"), "{when}");
        fence.admit(&volume, &whom).await.expect_err(&when);
    }
    site.lab.assert_harmless();
}

#[tokio::test]
async fn who_has_let_go_is_taken_off_the_list() {
    let site = Site::new(Lab::fake(1));
    let (volume, first, second) = (site.volume(0).await, id("a", 1), id("b", 2));
    let (connector, fence) = (site.connector(1), site.fence());
    let (whom, next) = (fence.fence_identity(&first), fence.fence_identity(&second));
    fence.admit(&volume, &whom).await.expect("admit");
    connector.connect(&first, &volume).await.expect("connect");
    connector.disconnect(&first).await.expect("disconnect");
    for _ in 0..2 {
        fence.dismiss(&volume, &whom).await.expect("dismiss");
        assert!(fence.verify_fenced(&volume, &whom).await.expect("looked at"));
    }
    fence.admit(&volume, &next).await.expect("admit");
    fence.dismiss(&volume, &whom).await.expect("late");
    connector.connect(&second, &volume).await.expect("the next one is not touched");
    let mut elsewhere = volume.clone();
    elsewhere.attributes.insert("targetTrAddr".to_owned(), "198.51.100.7".to_owned());
    fence.dismiss(&elsewhere, &whom).await.expect("a storage node that nobody named has no list");
    site.lab.assert_harmless();
}

#[tokio::test]
async fn what_cannot_be_fenced_is_said_before_anybody_is_let_in() {
    let site = Site::new(Lab::fake(1));
    let (volume, fence) = (site.volume(0).await, site.fence());
    let whom = fence.fence_identity(&id("a", 5000));
    let refused = fence.admit(&volume, &whom).await.expect_err("no room for the epoch");
    assert!(refused.message.contains("max_namespaces"), "{refused}");
    let refused = fence.admit(&volume, "nqn.2014-08.org.nvmexpress:host").await.expect_err("no identity of ours");
    assert_eq!(refused.class, ErrorClass::Invalid, "{refused}");
    let mut elsewhere = volume.clone();
    elsewhere.attributes.insert("targetTrAddr".to_owned(), "198.51.100.7".to_owned());
    let whom = fence.fence_identity(&id("a", 1));
    fence.admit(&elsewhere, &whom).await.expect("a storage node that nobody named lets in whom it likes");
    let refused = fence.fence(&elsewhere, &whom).await.expect_err("and cannot be told");
    assert_eq!(refused.class, ErrorClass::NotFound, "{refused}");
    assert!(refused.message.contains("198.51.100.7"), "{refused}");
}
