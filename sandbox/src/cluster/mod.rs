//! How a sandbox comes up: networks, storage, control plane and nodes, as much of it at once as can be.

pub mod cgroup;
pub mod control_plane;
pub mod holder;
pub mod images;
pub mod kubelet;
pub mod launch;
pub mod leftover;
pub mod network;
pub mod node;
pub mod openvswitch;
pub mod ovn;
pub mod pki;
pub mod pool;
pub mod relay;
pub mod servers;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::args;
use crate::layout::{API_ADDRESS, API_PORT, CONTROL_PLANE, Layout, NodeId, OUTSIDE};
use crate::outside;
use crate::programs::Programs;
use crate::supervisor::process::Table;
use cgroup::Cgroups;
use relay::Dialer;

/// A sandbox that is coming up or is up: what every step needs.
pub struct Site {
    pub layout: Layout,
    pub programs: Programs,
    pub cgroups: Cgroups,
    pub table: Table,
    pub nodes: Vec<NodeId>,
    pub servers: Vec<String>,
    pub dialer: Dialer,
    pub progress: Progress,
    /// One at a time may change a node's power.
    power: BTreeMap<String, Mutex<()>>,
}

/// Says on stderr what was reached, and when.
pub struct Progress {
    start: Instant,
}

impl Progress {
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    pub fn step(&self, what: impl AsRef<str>) {
        eprintln!("[{:6.1} s] {}", self.start.elapsed().as_secs_f64(), what.as_ref());
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Site {
    /// Makes what is not a process: networks, keys, storage.
    pub async fn prepare(
        layout: Layout,
        args: &args::Run,
        programs: Programs,
        cgroups: Cgroups,
        progress: Progress,
    ) -> Result<Self> {
        // `--nodes=` and `--servers=` are how to have none.
        let named = args.nodes.iter().filter(|name| !name.is_empty());
        let nodes = named.map(|name| NodeId::parse(name)).collect::<Result<Vec<_>>>()?;
        let servers: Vec<String> = args.servers.iter().filter(|name| !name.is_empty()).cloned().collect();
        let table = Table::new(layout.clone(), cgroups.clone(), programs.environment())?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no free loopback port")?;
        pki::write(&layout, &nodes, listener.local_addr()?.port())?;
        let bare: Vec<String> = servers.iter().filter(|server| args.is_bare(server)).cloned().collect();
        let made = network::create(&layout, &programs, &nodes, &servers, &bare);
        tokio::try_join!(made, pool::create(&layout, args.pool_gib))?;
        let dialer = Dialer::new(&layout.netns_file(CONTROL_PLANE))?;
        relay::serve(listener, dialer.clone(), (API_ADDRESS, API_PORT).into());
        progress.step("networks, keys and storage pool made");
        let power = nodes.iter().map(|node| (node.name.clone(), Mutex::new(()))).collect();
        let site = Self { layout, programs, cgroups, table, nodes, servers, dialer, progress, power };
        site.write_enter(CONTROL_PLANE, None)?;
        site.write_enter(OUTSIDE, None)?;
        Ok(site)
    }

    /// Starts everything and returns when all nodes are Ready, and pods are taken.
    pub async fn start(&self, args: &args::Run) -> Result<()> {
        images::write_pause(&self.layout, &self.programs)?;
        let boots = futures::future::try_join_all(self.nodes.iter().map(|node| node::boot(self, node)));
        let (_, _, boots, ()) = tokio::try_join!(
            control_plane::start(self),
            ovn::start_central(self),
            boots,
            servers::write_configs(self, args)
        )?;
        let joins = self.nodes.iter().zip(&boots).map(|(node, boot_id)| node::join(self, node, boot_id));
        tokio::try_join!(futures::future::try_join_all(joins), servers::start(self))?;
        control_plane::takes_pods(self).await
    }

    pub fn node(&self, name: &str) -> Result<&NodeId> {
        let known = || self.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
        self.nodes
            .iter()
            .find(|node| node.name == name)
            .with_context(|| format!("no node {name:?}; known: {}", known()))
    }

    pub async fn power_off(&self, node: &NodeId) -> Result<()> {
        let _one_at_a_time = self.power[&node.name].lock().await;
        node::power_off(self, node).await
    }

    /// Starts a node that is off and returns when it is Ready; nothing happens to one that is on.
    pub async fn power_on(&self, node: &NodeId) -> Result<()> {
        let _one_at_a_time = self.power[&node.name].lock().await;
        if self.table.pid(&node::holder(node)).is_some() {
            return Ok(());
        }
        let boot_id = node::boot(self, node).await?;
        node::join(self, node, &boot_id).await
    }

    pub async fn kubectl<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<String> {
        let mut command = Command::new(self.programs.kubernetes_program("kubectl"));
        command.arg("--kubeconfig").arg(self.layout.kubeconfig()).args(args);
        outside::finish(command, None).await
    }

    /// Runs a command inside a node to its end.
    pub async fn in_node<A: AsRef<OsStr>>(&self, node: &NodeId, args: impl IntoIterator<Item = A>) -> Result<String> {
        self.in_node_within(node, args, Duration::from_secs(60)).await
    }

    /// The same for one that may take longer than most.
    pub async fn in_node_within<A: AsRef<OsStr>>(
        &self,
        node: &NodeId,
        args: impl IntoIterator<Item = A>,
        limit: Duration,
    ) -> Result<String> {
        let mut command = Command::new(self.layout.enter(&node.name));
        command.args(args).envs(self.programs.environment());
        outside::finish_within(command, None, limit).await
    }

    /// Writes the script that runs a command inside a node, or in the control plane's network.
    fn write_enter(&self, node: &str, holder: Option<i32>) -> Result<()> {
        let path = self.layout.enter(node);
        let mut words = vec!["exec nsenter".to_owned(), format!("--net={}", self.layout.netns_file(node).display())];
        words.extend(holder.map(|pid| format!("--mount=/proc/{pid}/ns/mnt --uts=/proc/{pid}/ns/uts")));
        // Whoever runs it need not have found, or unpacked, what this sandbox did.
        let environment = self.programs.environment();
        let programs = environment.get("PATH").map(String::as_str).unwrap_or_default();
        let mut exports = String::new();
        if let Some(folders) = environment.get("LD_LIBRARY_PATH") {
            exports += &format!("export LD_LIBRARY_PATH={folders}\n");
        }
        // The control plane's: a node has no business with OVN's databases.
        for (name, value) in ovn::environment(&self.layout).into_iter().filter(|_| node == CONTROL_PLANE) {
            exports += &format!("export {name}={value}\n");
        }
        let text = format!(
            "#!/bin/sh\n# Runs a command inside {node} of sandbox {}. Written anew at each start of the node.\n\
             export PATH=\"{programs}:$PATH\"\n{exports}{} -- \"$@\"\n",
            self.layout.name,
            words.join(" "),
        );
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // Renamed into place: somebody may be about to run the old one.
        let part = path.with_extension("part");
        std::fs::write(&part, text)
            .and_then(|()| std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o755)))
            .and_then(|()| std::fs::rename(&part, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Words of a command line of different string types.
fn words<const N: usize>(words: [&OsStr; N]) -> Vec<OsString> {
    words.into_iter().map(OsStr::to_owned).collect()
}
