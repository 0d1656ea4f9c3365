//! The network at scale: the controller as it ships, a real API server, OVN's own databases and northd, and one real chassis.
//!
//! | file | what |
//! |---|---|
//! | `ground.rs` | what administrators and tenants make: Vpcs, Subnets, SecurityGroups, VNics |
//! | `relay.rs` | between controller and north-bound database: every transaction, when it was answered, how large it was |
//! | `south.rs` | the south-bound database: what northd has made, what the chassis has installed |
//! | `process.rs` | the controller, in the control plane's network |
//! | `change.rs` | one change, from apply to the chassis |
//! | `run.rs` | the phases, and what is told of them |
//!
//! Ports are rows only, but for a few that are plugged on the chassis, in the Vpc whose VNics and rules are changed. What is not measured is
//! stopped: kube-controller-manager, kube-scheduler, and the node's kubelet and containers.

mod change;
mod ground;
mod process;
mod relay;
mod run;
mod south;

use crate::Figures;
use crate::args::Network;
use crate::stage::{Story, client};
use anyhow::Result;
use ground::Ground;
use process::Controller;
use relay::Relay;
use south::South;
use std::time::Duration;
use tests::site::{ORDINARY_NODE, Site};

/// Nothing that is waited for takes so long, at any size.
const STUCK: Duration = Duration::from_secs(300);
/// The only one.
const CHASSIS: &str = ORDINARY_NODE;
const STOPPED: [&str; 5] = [
    "control-plane/kube-controller-manager",
    "control-plane/kube-scheduler",
    "node-1/kubelet",
    "node-1/kube-proxy",
    "node-1/containerd",
];

/// What was measured, and on which OVN.
pub async fn measure(options: &Network) -> Result<(Figures, String)> {
    let story = Story::default();
    let site = Site::without_workloads("bench-network", &[CHASSIS], &|text| story.say(text)).await?;
    let measured = on(&site, &story, options).await;
    story.say("ending the cluster");
    let ended = site.down().await;
    let figures = measured?;
    ended.map(|()| figures)
}

async fn on(site: &Site, story: &Story, options: &Network) -> Result<(Figures, String)> {
    for process in STOPPED {
        site.sandbox.stop_process(process).await?;
    }
    let layout = site.sandbox.layout();
    let relay = Relay::listen(layout)?;
    let ground = Ground::new(client(&site.sandbox.kubeconfig()).await?);
    let south = South::follow(layout, &ground.site_uid().await?)?;
    let controller = Controller::prepare(site, &relay).await?;
    let bench = run::Bench { site, story, relay: &relay, ground: &ground, south: &south, controller: &controller };
    let figures = bench.run(options).await?;
    Ok((figures, version(site).await?))
}

/// As northd says it.
async fn version(site: &Site) -> Result<String> {
    let said = site.enter("cp", &["ovn-northd", "--version"]).await?;
    let number = said.lines().next().and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
    Ok(format!("OVN {number}"))
}
