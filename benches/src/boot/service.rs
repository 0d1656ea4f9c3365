//! `boot`, as a process of the control plane's network.

use super::STUCK;
use super::files::Folder;
use super::load::measured;
use super::network::{INTERFACE, Place};
use crate::processes::Process;
use crate::scrape;
use anyhow::{Context, Result, bail, ensure};
use sandbox::layout::API_ADDRESS;
use sandbox::supervisor::process::{ProcessSpec, State};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tests::site::{INVENTORY_NAMESPACE, SEEDS_NAMESPACE, Site};

/// This program as what ships is built; else the one beside the running one.
const PROGRAM: &str = "METALPLANE_BENCH_BOOT";
const NAME: &str = "control-plane/boot";
const PROBES: u16 = 7081;
const LOOK: Duration = Duration::from_millis(5);

pub struct Service<'a> {
    site: &'a Site,
    spec: ProcessSpec,
    probes: SocketAddr,
}

impl<'a> Service<'a> {
    pub async fn prepare(site: &'a Site, folder: &Folder) -> Result<Self> {
        let argv = [
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
        let spec = ProcessSpec::new(NAME, argv).enter("cp").env("NO_COLOR", "1");
        let probes = site.sandbox.forward(&format!("{API_ADDRESS}:{PROBES}")).await?.parse()?;
        Ok(Self { site, spec, probes })
    }

    /// Returns when it is ready; how long that took.
    pub async fn start(&self) -> Result<Duration> {
        let known = self.site.sandbox.list().await?.iter().any(|listed| listed.name == NAME);
        let began = Instant::now();
        match known {
            true => self.site.sandbox.start_process(NAME).await?,
            false => self.site.sandbox.spawn(&self.spec).await?,
        }
        loop {
            // Before it listens nobody answers.
            if scrape::get(self.probes, "/readyz").await.is_ok() {
                return Ok(began.elapsed());
            }
            self.process().await?;
            ensure!(began.elapsed() < STUCK, "boot is not ready after {} s", STUCK.as_secs());
            tokio::time::sleep(LOOK).await;
        }
    }

    pub async fn stop(&self) -> Result<()> {
        self.site.sandbox.stop_process(NAME).await
    }

    /// An error if it has ended.
    pub async fn process(&self) -> Result<Process> {
        let all = self.site.sandbox.list().await?;
        let one = all.into_iter().find(|listed| listed.name == NAME).context("boot was not started")?;
        match one.state {
            State::Running { pid } => Ok(Process(pid)),
            State::Exited { how } => bail!("boot ended: {how}: see {}", one.log.display()),
        }
    }
}
