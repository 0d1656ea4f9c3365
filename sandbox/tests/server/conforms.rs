//! The virtual server behind the shipped drivers: its BMC and its slots socket keep what the ports promise.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{Namespace, Server, images, missing_for_boot, one_at_a_time, skip};
use async_trait::async_trait;
use planner::host::{Lack, MediaUrl, PowerAction};
use ports::conformance::{Sleep, bmc, emulation};
use ports::emulation::Backend;
use ports::{Bmc, Emulation};
use qemu::QemuEmulation;
use redfish::{RedfishBmc, RedfishConfig, Secret};
use sandbox::server::personality::{self, Personality};
use serde_json::{Value, json};

/// What a BMC finds in its server's own folder.
const IMAGES: [&str; 2] = ["first.iso", "second.iso"];

/// A virtual server, its power as it is.
pub struct Bench {
    pub server: Server,
    /// A boot order is the firmware's after the next POST only.
    pub order_is_pending: bool,
    personality: &'static Personality,
    /// Of the server that it reads images from.
    images: u16,
    namespace: Option<Namespace>,
    files: AtomicU32,
}

impl Bench {
    /// `extra` adds to the server's description.
    pub fn start(personality: &str, extra: impl FnOnce(&Path) -> Value) -> Bench {
        let server = Server::start(personality, |folder| {
            for image in IMAGES {
                std::fs::write(folder.join(image), "CD001").expect("write an image");
            }
            extra(folder)
        });
        let images = images::serve(server.folder.path());
        let personality = personality::by_name(personality).expect("a personality");
        let files = AtomicU32::new(0);
        Bench { server, order_is_pending: false, personality, images, namespace: None, files }
    }

    fn redfish(&self) -> RedfishConfig {
        let address = std::fs::read_to_string(self.server.path("ready")).expect("the BMC's address");
        let port = address.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        let mut config = RedfishConfig::new("127.0.0.1", "admin", Secret::new("s3cret"));
        config.port = port.expect("a port");
        config
    }

    pub fn bmc(&self) -> RedfishBmc {
        RedfishBmc::new(self.redfish()).expect("a client")
    }
}

#[async_trait]
impl Sleep for Bench {
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl bmc::Bench for Bench {
    fn abilities(&self) -> bmc::Abilities {
        // Without a disk no guest runs that could obey.
        let settles_within = Duration::from_secs(60);
        let has_drive = self.personality.drive.is_some();
        let lacks = if has_drive { BTreeSet::new() } else { [Lack::VirtualMedia].into() };
        let order_is_pending = self.order_is_pending;
        bmc::Abilities { lacks, override_ends: true, order_is_pending, guest_obeys: false, settles_within }
    }

    async fn connect(&self) -> Box<dyn Bmc> {
        Box::new(self.bmc())
    }

    async fn with_wrong_password(&self) -> Option<(Box<dyn Bmc>, String)> {
        let wrong = "guessed".to_owned();
        let config = RedfishConfig { password: Secret::new(&wrong), ..self.redfish() };
        Some((Box::new(RedfishBmc::new(config).expect("a client")), wrong))
    }

    async fn absent(&self) -> Option<Box<dyn Bmc>> {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let config = RedfishConfig { port: free.expect("a free port").port(), ..self.redfish() };
        Some(Box::new(RedfishBmc::new(config).expect("a client")))
    }

    fn images(&self) -> [MediaUrl; 2] {
        IMAGES.map(|image| MediaUrl::parse(&format!("http://127.0.0.1:{}/{image}", self.images)).expect("a URL"))
    }
}

#[async_trait]
impl emulation::Bench for Bench {
    async fn connect(&self) -> Box<dyn Emulation> {
        Box::new(QemuEmulation::new(self.server.path("slots.sock")))
    }

    async fn backend(&self, size_bytes: u64) -> Backend {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path: PathBuf = self.server.path(&format!("disk-{number}.raw"));
        std::fs::File::create(&path).and_then(|file| file.set_len(size_bytes)).expect("make a backend");
        Backend::Path(path)
    }

    async fn grow(&self, backend: &Backend, size_bytes: u64) {
        let path = backend.path().expect("a backend of this bench is a file");
        let file = std::fs::OpenOptions::new().write(true).open(path);
        file.and_then(|file| file.set_len(size_bytes)).expect("grow a backend");
    }

    /// The firmware does not answer the ports' attention buttons; without power the host has nothing left to release.
    async fn let_host_release(&self) {
        if self.server.redfish.power() == "Off" {
            return;
        }
        for (action, state) in [(PowerAction::ForceOff, "Off"), (PowerAction::On, "On")] {
            self.bmc().power(action).await.unwrap_or_else(|e| panic!("{action:?}: {e}"));
            self.server.wait_for_power(state, crate::support::BOOT);
        }
    }

    async fn has_device(&self, name: &str) -> Option<bool> {
        Some(self.namespace.as_ref()?.run(&format!("ip link show dev {name}")))
    }
}

/// A server whose QEMU and taps are in a network namespace of their own.
fn start(test: &str) -> Option<Bench> {
    if let Some(reason) = missing_for_boot() {
        skip(test, &reason);
        return None;
    }
    let mut namespace = None;
    let mut bench = Bench::start("standby", |folder| {
        namespace = Namespace::make(&folder.join("enter"));
        if namespace.is_some() { json!({ "enter": folder.join("enter") }) } else { json!({}) }
    });
    if namespace.is_none() {
        skip(test, "a network namespace cannot be made; run as root");
        return None;
    }
    bench.namespace = namespace;
    Some(bench)
}

#[tokio::test]
async fn the_bmc_conforms() {
    let _turn = one_at_a_time();
    let Some(bench) = start("the_bmc_conforms") else { return };
    bmc::run(&bench).await;
}

#[tokio::test]
async fn the_slots_conform_off_and_on() {
    let _turn = one_at_a_time();
    let Some(bench) = start("the_slots_conform_off_and_on") else { return };
    emulation::run(&bench).await;
    bench.bmc().power(PowerAction::On).await.expect("power on");
    bench.server.wait_for_power("On", crate::support::BOOT);
    emulation::run(&bench).await;
}
