//! By an SPDK target.

use super::lab::{clusters, free_port};
use async_trait::async_trait;
use ceph::{CephFence, Noted};
use planner::exposure::ExposureId;
use ports::conformance::fence::{self, Session};
use ports::conformance::{volume, writer};
use ports::emulation::Backend;
use ports::volume::Volume;
use ports::{StorageFence, VolumeConnector};
use sandbox::ceph::{CLUSTER, Lab, MIB, USER};
use sandbox::spdk::real;
use serde_json::{Value, json};
use spdk::volumes::SpdkConnector;
use spdk::volumes::rbd::{self, Rbd};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

type Connector = Noted<SpdkConnector<Rbd>>;

/// What is not seen by then does not come.
const SOON: Duration = Duration::from_secs(60);
/// A write that is not done by then is refused in some other way.
const WRITE: Duration = Duration::from_secs(20);
const BLOCK: usize = 512;

/// As the target has it.
fn known(lab: &Lab) -> BTreeMap<String, rbd::Cluster> {
    let cluster = rbd::Cluster { user: USER.to_owned(), config_file: lab.config_file() };
    BTreeMap::from([(CLUSTER.to_owned(), cluster)])
}

/// Two DPUs.
struct Site {
    lab: Lab,
    dpus: Vec<real::Target>,
    opened: AtomicU32,
}

impl Site {
    async fn start(test: &str, dpus: usize) -> Option<Site> {
        let skip = |missing: &str| eprintln!("SKIP {test}: {missing}");
        let find = |name| real::program(name).inspect_err(|missing| skip(missing)).ok();
        let (program, _) = (find("spdk_tgt")?, find("spdk_dd")?);
        let lab = Lab::start(test).await?;
        let mut all = Vec::new();
        for number in 1..=dpus {
            let folder = lab.path(&format!("dpu-{number}"));
            std::fs::create_dir(&folder).expect("a folder");
            all.push(real::Target::start(&program, &folder).await.expect("the target starts"));
        }
        let methods = real::ask(all[0].socket(), "rpc_get_methods", Value::Null).await.expect("its methods");
        if !methods.as_array().is_some_and(|all| all.iter().any(|one| one == "bdev_rbd_create")) {
            skip("this SPDK was built without --with-rbd");
            return None;
        }
        Some(Site { lab, dpus: all, opened: AtomicU32::new(0) })
    }

    fn noted(&self, dpu: usize) -> Connector {
        let inner = SpdkConnector::new(self.dpus[dpu - 1].socket(), Rbd::new(known(&self.lab)));
        let sessions = self.lab.path(&format!("sessions-{dpu}"));
        Noted::new(inner, clusters(&self.lab), sessions).looking_again_after(Duration::ZERO)
    }
}

/// A subsystem of the DPU's target shows the bdev to a host, which is a program that writes over NVMe/TCP.
struct Host {
    program: PathBuf,
    config: PathBuf,
    target: PathBuf,
    nqn: String,
}

impl Host {
    async fn of(target: &Path, bdev: &str, folder: &Path, number: u32) -> Host {
        let ask = async |method: &str, params: Value| {
            real::ask(target, method, params).await.unwrap_or_else(|error| panic!("{method}: {error:#}"))
        };
        let nqn = format!("nqn.2026-01.test:host-{number}");
        if ask("nvmf_get_transports", Value::Null).await == json!([]) {
            ask("nvmf_create_transport", json!({"trtype": "TCP"})).await;
        }
        ask("nvmf_create_subsystem", json!({"nqn": nqn, "serial_number": "H", "allow_any_host": true})).await;
        ask("nvmf_subsystem_add_ns", json!({"nqn": nqn, "namespace": {"bdev_name": bdev}})).await;
        let address =
            json!({"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": free_port().to_string()});
        ask("nvmf_subsystem_add_listener", json!({"nqn": nqn, "listen_address": address})).await;
        let mut attach = address;
        (attach["name"], attach["subnqn"]) = ("H".into(), nqn.as_str().into());
        let attach = json!({"method": "bdev_nvme_attach_controller", "params": attach});
        let config = folder.join(format!("host-{number}.json"));
        let text = json!({"subsystems": [{"subsystem": "bdev", "config": [attach]}]}).to_string();
        std::fs::write(&config, text).expect("written");
        let program = real::program("spdk_dd").expect("it was found before");
        Host { program, config, target: target.to_owned(), nqn }
    }
}

#[async_trait]
impl Session for Host {
    async fn write(&self, byte: u8) {
        let content = self.config.with_extension("block");
        std::fs::write(&content, [byte; BLOCK]).expect("written");
        let mut command = tokio::process::Command::new(&self.program);
        command.arg(format!("--if={}", content.display())).arg(format!("--json={}", self.config.display()));
        command.args(["--ob=Hn1", "--bs=512", "--count=1", "-m", "0x1", "--no-huge", "-s", "512", "--no-pci"]);
        command.args(["--disable-cpumask-locks", "--no-rpc-server"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.kill_on_drop(true).spawn().expect("it starts");
        // What became of it shows at the storage.
        let _ = tokio::time::timeout(WRITE, process.wait()).await;
    }

    async fn close(self) {
        let nqn = json!({"nqn": self.nqn});
        real::ask(&self.target, "nvmf_delete_subsystem", nqn).await.expect("deleted");
    }
}

#[async_trait]
impl fence::Bench for Site {
    type Connector = Connector;
    type Fence = CephFence;
    type Session = Host;

    async fn connector(&self, dpu: u8) -> Connector {
        self.noted(dpu.into())
    }

    async fn fence(&self) -> CephFence {
        CephFence::new(clusters(&self.lab))
    }

    async fn volume(&self, number: u8) -> Volume {
        self.lab.volume(&format!("volume-{number}"), MIB).await
    }

    async fn open(&self, _: &ExposureId, backend: &Backend) -> Option<Host> {
        let Backend::Bdev(bdev) = backend else { panic!("{backend:?} is no bdev") };
        for dpu in &self.dpus {
            let all = real::ask(dpu.socket(), "bdev_get_bdevs", Value::Null).await.expect("its bdevs");
            if all.as_array().is_some_and(|all| all.iter().any(|one| one["name"] == bdev.as_str())) {
                let number = self.opened.fetch_add(1, Ordering::Relaxed);
                return Some(Host::of(dpu.socket(), bdev, &self.lab.path(""), number).await);
            }
        }
        None
    }

    async fn first_byte(&self, volume: &Volume) -> u8 {
        self.lab.first_byte(volume).await
    }
}

#[async_trait]
impl volume::Bench for Site {
    type Connector = Connector;

    async fn open(&self) -> Connector {
        self.noted(1)
    }

    async fn volume(&self, number: u8, size_bytes: u64) -> Volume {
        self.lab.volume(&format!("volume-{number}"), size_bytes).await
    }

    async fn missing_volume(&self) -> Volume {
        Lab::image("missing")
    }

    fn connects_readers(&self) -> bool {
        false
    }

    async fn grow(&self, volume: &Volume, size_bytes: u64) {
        self.lab.grow(volume, size_bytes).await;
        let (connector, begun) = (self.noted(1), Instant::now());
        // The cluster tells the target of it.
        while connector.list().await.expect("list").iter().all(|one| one.size_bytes != size_bytes) {
            assert!(begun.elapsed() < SOON, "{size_bytes} bytes are not seen within {SOON:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn volumes_of_a_real_ceph_by_a_real_target_conform() {
    const NAME: &str = "volumes_of_a_real_ceph_by_a_real_target_conform";
    let Some(site) = Site::start(NAME, 1).await else { return };
    volume::suite(&site).await;
}

#[async_trait]
impl writer::Bench for Site {
    async fn fill(&self, volume: &Volume, byte: u8) {
        let length = self.lab.read(volume).await.len();
        self.lab.fill(volume, &vec![byte; length]).await;
    }

    async fn read(&self, volume: &Volume) -> Vec<u8> {
        self.lab.read(volume).await
    }
}

#[tokio::test]
async fn images_of_a_real_ceph_are_written_through_a_real_target() {
    const NAME: &str = "images_of_a_real_ceph_are_written_through_a_real_target";
    let Some(site) = Site::start(NAME, 1).await else { return };
    writer::suite(&site).await;
}

#[tokio::test]
async fn a_real_target_is_fenced_on_a_real_ceph() {
    const NAME: &str = "a_real_target_is_fenced_on_a_real_ceph";
    let Some(site) = Site::start(NAME, 2).await else { return };
    fence::suite(&site).await;
}

/// A new process of the target connects under the same grant, and both sessions are refused with it.
#[tokio::test]
async fn a_target_that_died_connects_again_and_is_fenced() {
    const NAME: &str = "a_target_that_died_connects_again_and_is_fenced";
    let Some(mut site) = Site::start(NAME, 1).await else { return };
    let volume = site.lab.volume("v", MIB).await;
    let a = ExposureId { uid: "a".to_owned(), epoch: 1 };
    site.noted(1).connect(&a, &volume).await.expect("connect");
    site.dpus[0].kill().await.expect("killed");
    site.dpus[0].revive().await.expect("a new one");
    assert_eq!(site.noted(1).list().await.expect("list"), [], "a new target has no connections");
    let connection = site.noted(1).connect(&a, &volume).await.expect("connect");
    let host = fence::Bench::open(&site, &a, &connection.backend).await.expect("opened");
    host.write(b'1').await;
    assert_eq!(site.lab.first_byte(&volume).await, b'1');
    let fence = CephFence::new(clusters(&site.lab));
    let whom = fence.fence_identity(&a);
    fence.fence(&volume, &whom).await.expect("fence");
    assert!(fence.verify_fenced(&volume, &whom).await.expect("verify"));
    host.write(b'2').await;
    assert_eq!(site.lab.first_byte(&volume).await, b'1');
    host.close().await;
}
