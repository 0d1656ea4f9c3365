//! The controller, as a process of the control plane's network, with the rights that its account has in a cluster.

use super::STUCK;
use super::relay::{About, Relay};
use crate::processes::Process;
use crate::scrape::{self, Counts, RECONCILES};
use anyhow::{Context, Result, bail};
use sandbox::cluster::ovn::SOUTH_BOUND;
use sandbox::layout::API_ADDRESS;
use sandbox::supervisor::process::{ProcessSpec, State};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tests::site::{Site, program};

/// The controller as what ships is built; else the one beside this program.
const PROGRAM: &str = "METALPLANE_BENCH_CONTROLLER";
const PORT: u16 = 8080;
/// Without a look at an object for so long it has nothing to do.
const CALM: Duration = Duration::from_secs(3);

pub struct Controller<'a> {
    site: &'a Site,
    relay: &'a Relay,
    spec: ProcessSpec,
    http: SocketAddr,
}

impl<'a> Controller<'a> {
    pub async fn prepare(site: &'a Site, relay: &'a Relay) -> Result<Self> {
        let file = std::env::var_os(PROGRAM).map(PathBuf::from).map_or_else(|| program("controller"), Ok)?;
        let mut spec = site.controller(vec![file.display().to_string()]).await?;
        let south_bound = SOUTH_BOUND.socket(site.sandbox.layout());
        spec.argv.extend([
            format!("--ovn-nb=unix:{}", relay.socket.display()),
            format!("--ovn-sb=unix:{}", south_bound.display()),
            format!("--http=0.0.0.0:{PORT}"),
        ]);
        let http = site.sandbox.forward(&format!("{API_ADDRESS}:{PORT}")).await?.parse()?;
        Ok(Self { site, relay, spec, http })
    }

    /// Returns when it has taken its token in the north-bound database; when it was started.
    pub async fn start(&self) -> Result<Instant> {
        let (first, began) = (self.relay.count(), Instant::now());
        let known = self.site.sandbox.list().await?.iter().any(|listed| listed.name == self.spec.name);
        match known {
            true => self.site.sandbox.start_process(&self.spec.name).await?,
            false => self.site.sandbox.spawn(&self.spec).await?,
        }
        self.relay.until("the controller takes its token", first, STUCK, |one| one.about == About::Token).await?;
        Ok(began)
    }

    /// The most memory that it had, in MiB.
    pub async fn stop(&self) -> Result<f64> {
        let most = self.process().await?.memory("VmHWM")?;
        self.site.sandbox.stop_process(&self.spec.name).await?;
        Ok(most)
    }

    pub async fn process(&self) -> Result<Process> {
        process(self.site, &self.spec.name).await
    }

    pub async fn counts(&self, counter: &str) -> Result<Counts> {
        Ok(Counts::of(counter, &scrape::metrics(self.http).await?))
    }

    /// Waits until it looks at nothing any more, having looked at so many VNics at least.
    pub async fn calm(&self, vnics: usize) -> Result<()> {
        let (began, mut before, mut since) = (Instant::now(), 0.0, Instant::now());
        loop {
            let looks = self.counts(RECONCILES).await?.only(|labels| labels.starts_with("controller=vnic,"));
            if looks.total() > before {
                (before, since) = (looks.total(), Instant::now());
            }
            if looks.total() >= vnics as f64 && since.elapsed() > CALM {
                return Ok(());
            }
            if began.elapsed() > STUCK {
                bail!("the controller still looks at VNics after {} s: {before} looks", STUCK.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

/// The process of the sandbox that has this name.
pub async fn process(site: &Site, name: &str) -> Result<Process> {
    let all = site.sandbox.list().await?;
    let one = all.into_iter().find(|listed| listed.name == name).with_context(|| format!("there is no {name}"))?;
    match one.state {
        State::Running { pid } => Ok(Process(pid)),
        State::Exited { how } => bail!("{name} ended: {how}: see {}", one.log.display()),
    }
}
