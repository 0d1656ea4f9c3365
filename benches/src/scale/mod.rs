//! The real controller against a real API server, with many servers whose BMCs and DPUs are simulated.
//!
//! | file | what |
//! |---|---|
//! | `inventory.rs` | servers, BMCs, DPUs, tenants with an image and a subnet each |
//! | `agents.rs` | what agents write: Leases, Dpus, attachments |
//! | `storage.rs` | what a provisioner and the volume binder write |
//! | `process.rs` | the controller, in a process of its own whose memory is its own, with the BMCs in it |
//! | `run.rs` | the machines, from all created to all ready |
//!
//! The control plane is etcd and kube-apiserver with our definitions and policies; kube-controller-manager is stopped
//! (its clients are limited to 20 requests a second), so binding is ours here. Everything shares one machine: figures are
//! of the controller *and* what it is served by.

mod agents;
mod inventory;
mod process;
mod run;
mod storage;

pub use process::controller;

use crate::Figures;
use crate::args::Scale;
use crate::stage::{Story, client, client_as};
use agents::Agents;
use anyhow::Result;
use inventory::Inventory;
use process::Controller;
use std::time::Duration;
use tests::site::Site;
use tokio::task::JoinSet;

/// Requests of one kind of simulated parts that are under way at the same time.
const AT_ONCE: usize = 32;
/// Who the agents are to the API server, which has them wait for each other as it would real ones.
const AGENTS: &str = "bench-agents";

/// As many simulated things, by number: server-1, server-2, …
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub machines: usize,
    /// Between two renewals of one agent's Lease.
    pub beat: Duration,
}

pub async fn measure(options: &Scale) -> Result<Figures> {
    let story = Story::default();
    let site = Site::without_nodes("bench-scale", &|text| story.say(text)).await?;
    let size = Size { machines: options.machines.into(), beat: Duration::from_millis(options.beat_ms.into()) };
    let measured = on(&site, &story, size).await;
    story.say("ending the cluster");
    let ended = site.down().await;
    let figures = measured?;
    ended.map(|()| figures)
}

async fn on(site: &Site, story: &Story, size: Size) -> Result<Figures> {
    for process in ["kube-controller-manager", "kube-scheduler"] {
        site.sandbox.stop_process(&format!("control-plane/{process}")).await?;
    }
    let client = client(&site.sandbox.kubeconfig()).await?;
    let inventory = Inventory { client: client.clone(), size };
    story.say(&format!("{} servers, BMCs and DPUs", size.machines));
    inventory.create(site).await?;
    let mut parts = JoinSet::new();
    let role = format!("--user={AGENTS}");
    site.kubectl(&["create", "clusterrolebinding", AGENTS, "--clusterrole=cluster-admin", &role]).await?;
    let agents = Agents::start(&client_as(&site.sandbox.kubeconfig(), Some(AGENTS)).await?, size, &mut parts);
    parts.spawn(storage::run(client.clone()));
    story.say("starting the controller");
    let mut controller = Controller::start(site, size, agents.clone(), &mut parts)?;
    let figures = tokio::select! {
        figures = run::run(story, &inventory, &agents, &controller) => figures,
        ended = controller.ended() => Err(ended),
    };
    parts.shutdown().await;
    controller.stop().await?;
    figures
}
