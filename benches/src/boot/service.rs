//! `boot`, beside the control plane. It is started as the servers that it is compared with are, by this process: what is started
//! elsewhere has another share of the processors.

use super::STUCK;
use super::files::Folder;
use super::load::measured;
use super::network::{INTERFACE, Network, Place};
use crate::processes::Process;
use crate::scrape;
use anyhow::{Context, Result, bail, ensure};
use sandbox::layout::API_ADDRESS;
use std::fs::File;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tests::site::{INVENTORY_NAMESPACE, SEEDS_NAMESPACE, Site};
use tokio::process::{Child, Command};

/// This program as what ships is built; else the one beside the running one.
const PROGRAM: &str = "METALPLANE_BENCH_BOOT";
const PROBES: u16 = 7081;
const LOOK: Duration = Duration::from_millis(5);

pub struct Service {
    namespace: String,
    argv: Vec<String>,
    probes: SocketAddr,
    running: Option<Child>,
}

impl Service {
    pub async fn prepare(site: &Site, folder: &Folder, network: &Network) -> Result<Self> {
        let argv = vec![
            measured(PROGRAM, "boot")?.display().to_string(),
            format!("--kubeconfig={}", site.sandbox.admin_kubeconfig().display()),
            format!("--address={}", Place::Boot.address()),
            format!("--interface={INTERFACE}"),
            "--agents=open".to_owned(),
            format!("--inventory-namespace={INVENTORY_NAMESPACE}"),
            format!("--seeds-namespace={SEEDS_NAMESPACE}"),
            format!("--program={}={}@{}", Folder::PROGRAM, folder.checksum, folder.program().display()),
            format!("--files={}", folder.path.display()),
            format!("--probes={API_ADDRESS}:{PROBES}"),
        ];
        let probes = site.sandbox.forward(&format!("{API_ADDRESS}:{PROBES}")).await?.parse()?;
        Ok(Self { namespace: network.namespace(Place::Boot).to_owned(), argv, probes, running: None })
    }

    /// Returns when it is ready; how long that took.
    pub async fn start(&mut self) -> Result<Duration> {
        let path = crate::root().join("target/bench/boot.log");
        let log = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).args(&self.argv).env("NO_COLOR", "1").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let began = Instant::now();
        let child = self.running.insert(command.spawn().context("start boot")?);
        // Before it listens nobody answers.
        while scrape::get(self.probes, "/readyz").await.is_err() {
            if let Some(status) = child.try_wait()? {
                bail!("boot ended: {status}: see {}", path.display());
            }
            ensure!(began.elapsed() < STUCK, "boot is not ready after {} s: see {}", STUCK.as_secs(), path.display());
            tokio::time::sleep(LOOK).await;
        }
        Ok(began.elapsed())
    }

    pub async fn stop(&mut self) -> Result<()> {
        let mut child = self.running.take().context("boot was not started")?;
        child.kill().await.context("end boot")
    }

    pub fn process(&self) -> Result<Process> {
        let pid = self.running.as_ref().and_then(Child::id).context("boot does not run")?;
        Ok(Process(i32::try_from(pid)?))
    }
}
