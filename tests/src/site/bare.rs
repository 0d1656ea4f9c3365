//! A cluster without Metalplane's own workloads: the API server, the charts and their policies. What would run is up to the caller.

use super::{Agents, Site, install};
use anyhow::Result;
use sandbox::Sandbox;
use sandbox::handle::Options;

impl Site {
    pub async fn without_nodes(name: &str, say: &dyn Fn(&str)) -> Result<Self> {
        Self::without_workloads(name, &[], say).await
    }

    /// The nodes are chassis of OVN, as ever.
    pub async fn without_workloads(name: &str, nodes: &[&str], say: &dyn Fn(&str)) -> Result<Self> {
        say("starting the cluster");
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        let options = Options { nodes, servers: Vec::new(), ..Options::default() };
        let sandbox = Sandbox::start(name, options).await?;
        let site = Self { sandbox, helm: install::helm().await?, agents: Agents::Process, spdk: None, ceph: None };
        say("installing the snapshot API and Metalplane's charts with helm");
        site.definitions().await?;
        let off = ["controller", "agent", "csi"].map(|part| format!("--set={part}.enabled=false"));
        site.chart("metalplane", &off).await?;
        Ok(site)
    }
}
