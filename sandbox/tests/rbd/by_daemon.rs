//! By a `qemu-storage-daemon`, with a QEMU as the host that writes.

use super::lab::clusters;
use async_trait::async_trait;
use ceph::{CephFence, Noted};
use planner::exposure::ExposureId;
use ports::conformance::fence::{self, Session};
use ports::conformance::volume;
use ports::emulation::{Backend, NbdExport};
use ports::volume::Volume;
use ports::{StorageFence, VolumeConnector};
use qemu::images::{Cluster, ImageDaemon};
use qemu::qmp::{Qmp, QmpError};
use sandbox::ceph::{CLUSTER, Lab, MIB, Programs, StorageDaemon, USER};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

type Connector = Noted<ImageDaemon>;

/// What is not there by then does not come.
const SOON: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// A write that is not done by then is refused in some other way.
const WRITE: Duration = Duration::from_secs(20);
const NODE: &str = "disk";

/// Two DPUs.
struct Site {
    lab: Lab,
    dpus: Vec<StorageDaemon>,
    /// What the names of a suite's images begin with.
    images: &'static str,
    opened: AtomicU32,
}

impl Site {
    async fn start(test: &str, dpus: usize) -> Option<Site> {
        let skip = |missing: &str| eprintln!("SKIP {test}: {missing}");
        let programs = Programs::find().await.inspect_err(|error| skip(&format!("no Ceph: {error:#}"))).ok()?;
        let Some(module) = programs.qemu_module().await else {
            skip("this QEMU has no client of Ceph (package qemu-block-extra)");
            return None;
        };
        let lab = Lab::of(&programs).await.expect("Ceph starts");
        let mut all = Vec::new();
        for number in 1..=dpus {
            let socket = lab.path(&format!("dpu-{number}.sock"));
            all.push(StorageDaemon::start(&socket, &module).await.expect("the daemon starts"));
        }
        Some(Site { lab, dpus: all, images: "volume", opened: AtomicU32::new(0) })
    }

    fn noted(&self, dpu: usize) -> Connector {
        let known = Cluster { user: USER.to_owned(), config_file: self.lab.config_file() };
        let images = ImageDaemon::new(self.dpus[dpu - 1].socket(), BTreeMap::from([(CLUSTER.to_owned(), known)]));
        let sessions = self.lab.path(&format!("sessions-{dpu}"));
        Noted::new(images, clusters(&self.lab), sessions).looking_again_after(Duration::ZERO)
    }

    async fn host(&self, backend: &Backend) -> Host {
        let Backend::Nbd(export) = backend else { panic!("{backend:?} is no export") };
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        Host::of(export, &self.lab.path(&format!("host-{number}.sock"))).await
    }
}

/// A QEMU that has the disk's blocks open, as the host's has while the host runs.
struct Host {
    qmp: Qmp,
    process: Child,
}

impl Host {
    async fn of(export: &NbdExport, socket: &Path) -> Host {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-machine", "none", "-nodefaults", "-display", "none", "-qmp"]);
        command.arg(format!("unix:{},server=on,wait=off", socket.display()));
        let process = command.stdin(Stdio::null()).kill_on_drop(true).spawn().expect("QEMU starts");
        let (host, begun) = (Host { qmp: Qmp::new(socket, WRITE), process }, Instant::now());
        while host.qmp.execute("query-status", json!({})).await.is_err() {
            assert!(begun.elapsed() < SOON, "QEMU does not answer within {SOON:?}");
            tokio::time::sleep(LOOK).await;
        }
        let server = json!({"type": "unix", "path": export.socket});
        // As the emulation does it, which waits for no lost server.
        let disk =
            json!({"driver": "nbd", "node-name": NODE, "server": server, "export": export.name, "reconnect-delay": 0});
        host.qmp.execute("blockdev-add", disk).await.expect("opened");
        host
    }

    async fn io(&self, command: &str) -> Result<Value, QmpError> {
        let line = format!("qemu-io {NODE} \"{command}\"");
        self.qmp.execute("human-monitor-command", json!({"command-line": line})).await
    }
}

#[async_trait]
impl Session for Host {
    async fn write(&self, byte: u8) {
        // What became of it shows at the storage.
        let _ = self.io(&format!("write -P {byte} 0 512")).await;
    }

    async fn close(mut self) {
        self.process.kill().await.expect("killed");
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
        self.lab.volume(&format!("{}-{number}", self.images), MIB).await
    }

    async fn open(&self, _: &ExposureId, backend: &Backend) -> Option<Host> {
        Some(self.host(backend).await)
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
        self.lab.volume(&format!("{}-{number}", self.images), size_bytes).await
    }

    async fn missing_volume(&self) -> Volume {
        Lab::image("missing")
    }

    fn connects_readers(&self) -> bool {
        false
    }

    fn grows_while_connected(&self) -> bool {
        false
    }

    /// QEMU takes one command after the other, from one client after the other: none comes late.
    fn hands_out_anew(&self) -> bool {
        false
    }

    async fn grow(&self, _: &Volume, _: u64) {
        panic!("it does not grow while it is connected");
    }
}

/// One cluster for all of them: it takes longer to start than they do.
#[tokio::test]
async fn volumes_and_fences_of_a_real_ceph_by_a_storage_daemon_conform() {
    const NAME: &str = "volumes_and_fences_of_a_real_ceph_by_a_storage_daemon_conform";
    let Some(mut site) = Site::start(NAME, 2).await else { return };
    volume::suite(&site).await;
    site.images = "fenced";
    fence::suite(&site).await;
    what_an_interrupted_call_left_open_is_closed(&site).await;
}

/// A new process opens the image under the same grant: the host that ran meanwhile goes on, and both sessions are refused with
/// the grant.
#[tokio::test]
async fn a_host_finds_a_new_storage_daemon_until_its_grant_is_fenced() {
    const NAME: &str = "a_host_finds_a_new_storage_daemon_until_its_grant_is_fenced";
    let Some(mut site) = Site::start(NAME, 1).await else { return };
    let volume = site.lab.volume("v", MIB).await;
    let a = ExposureId { uid: "a".to_owned(), epoch: 1 };
    let before = site.noted(1).connect(&a, &volume).await.expect("connect");
    let host = site.host(&before.backend).await;
    host.write(b'1').await;
    site.dpus[0].replace().await.expect("a new one");
    assert_eq!(site.noted(1).list().await.expect("list"), [], "a new daemon has no connections");
    let after = site.noted(1).connect(&a, &volume).await.expect("connect");
    assert_eq!(after, before, "what the host has is what is there again");
    assert_eq!(site.lab.first_byte(&volume).await, b'1', "what was written is not lost with the daemon");
    let begun = Instant::now();
    while site.lab.first_byte(&volume).await != b'2' {
        assert!(begun.elapsed() < SOON, "the host does not find the new daemon within {SOON:?}");
        host.write(b'2').await;
    }
    let fence = CephFence::new(clusters(&site.lab));
    let whom = fence.fence_identity(&a);
    fence.fence(&volume, &whom).await.expect("fence");
    assert!(fence.verify_fenced(&volume, &whom).await.expect("verify"));
    host.write(b'3').await;
    assert_eq!(site.lab.first_byte(&volume).await, b'2');
    // The daemon drops its client for it: who waits for a connection to do it again does so for ever.
    host.io("read 0 512").await.expect("a read ends, in an error");
    host.close().await;
}

/// A call that was interrupted between the two steps of a connection left the image open, and nobody knows for whom.
async fn what_an_interrupted_call_left_open_is_closed(site: &Site) {
    let volume = site.lab.volume("v", MIB).await;
    let a = ExposureId { uid: "a".to_owned(), epoch: 1 };
    let connection = site.noted(1).connect(&a, &volume).await.expect("connect");
    let Backend::Nbd(export) = connection.backend else { panic!("{:?} is no export", connection.backend) };
    let daemon = Qmp::new(site.dpus[0].socket(), WRITE);
    daemon.execute("block-export-del", json!({"id": export.name, "mode": "hard"})).await.expect("deleted");
    // It talks with one client at a time.
    drop(daemon);
    let watched = async || site.lab.ceph.run("rbd", ["status", "v"]).await.expect("its watchers");
    assert!(!watched().await.contains("Watchers: none"), "the image is open");
    site.noted(1).disconnect(&a).await.expect("disconnect");
    assert!(watched().await.contains("Watchers: none"), "nobody has it open: {}", watched().await);
}
