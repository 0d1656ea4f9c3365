//! One node: a machine of its own as far as kubelet, containerd, Open vSwitch and our agent can tell.
//!
//! `boot` makes the node's `/run`, its mount namespace and what does not need the cluster; `join` starts kubelet and
//! kube-proxy and waits until this very boot of the node is Ready. Power off is `kill -9` of every process in the
//! node's control group, containers included: nothing is told, nothing gets to clean up, as when a DPU loses power.
//! The cables stay plugged: its network namespace, and what a running host has in it, outlive the node's power.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cluster::holder::HolderConfig;
use crate::cluster::{Site, images, kubelet, openvswitch, ovn, pool, servers};
use crate::layout::NodeId;
use crate::server::faults::tell_dpu_lost;
use crate::supervisor::process::ProcessSpec;

const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// What the admission of nodes does not let a kubelet say of itself: that it is a DPU.
const DPU_LABEL: &str = "node-restriction.kubernetes.io/metalplane-dpu=true";

pub fn holder(node: &NodeId) -> String {
    format!("{}/holder", node.name)
}

/// Starts the node as far as it goes without a cluster, and returns its boot id.
pub async fn boot(site: &Site, node: &NodeId) -> Result<String> {
    let dir = site.layout.node_dir(&node.name);
    site.cgroups.prepare(&site.layout.node_cgroup(&node.name))?;
    wipe(&dir.join("run"))?;
    let config = holder_config(site, node, &dir)?;
    let config_path = dir.join("holder.json");
    fs::write(&config_path, serde_json::to_vec_pretty(&config)?)?;
    start_holder(site, node, &config_path, &config.boot_id_file).await?;
    let switch = async {
        openvswitch::start(site, node).await?;
        ovn::start_chassis(site, node).await
    };
    tokio::try_join!(switch, start_containerd(site, node, &dir))?;
    site.progress.step(format!("{}: booted", node.name));
    Ok(config.boot_id)
}

/// Starts kubelet and kube-proxy and waits until the node is Ready and a chassis. The API server and OVN must serve.
pub async fn join(site: &Site, node: &NodeId, boot_id: &str) -> Result<()> {
    let dir = site.layout.node_dir(&node.name);
    let kubelet = kubelet::process(site, node, &dir)?;
    let name = kubelet.name.clone();
    site.table.start(kubelet)?;
    let resource = format!("node/{}", node.name);
    let exists = || async { site.kubectl(["get", &resource, "-o", "name"]).await.is_ok() };
    site.table.until(&name, "the node is registered", exists).await?;
    site.table.start(kubelet::proxy(site, node, &dir)?)?;
    if node.is_dpu() {
        site.kubectl(["label", "--overwrite", &resource, DPU_LABEL]).await?;
    }
    let query = r#"jsonpath={.status.nodeInfo.bootID} {.status.conditions[?(@.type=="Ready")].status}"#;
    let wanted = format!("{boot_id} True");
    let ready = || async { site.kubectl(["get", &resource, "-o", query]).await.is_ok_and(|seen| seen == wanted) };
    site.table.until(&name, "the node is Ready", ready).await?;
    ovn::chassis_connected(site, node).await?;
    site.progress.step(format!("{}: Ready", node.name));
    Ok(())
}

/// Ends every process of the node at once.
pub async fn power_off(site: &Site, node: &NodeId) -> Result<()> {
    let group = site.layout.node_cgroup(&node.name);
    let kernels = pool::loop_devices_of_kubelet(&site.layout, &node.name).await?;
    site.cgroups.kill(&group).await.with_context(|| format!("cannot switch {} off", node.name))?;
    for process in site.table.group(&node.name) {
        // Dead already; this waits until the supervisor has seen it.
        site.table.kill(&process).await?;
    }
    site.cgroups.remove(&group).await?;
    wipe(&site.layout.node_dir(&node.name).join("run"))?;
    if let Some(server) = node.server() {
        // What the DPU presented goes with it, and a running host does not survive that.
        tell_dpu_lost(&site.layout.server_dir(&server)).await?;
    }
    pool::detach(&site.layout, &kernels).await?;
    site.progress.step(format!("{}: off", node.name));
    Ok(())
}

fn holder_config(site: &Site, node: &NodeId, dir: &Path) -> Result<HolderConfig> {
    let run = dir.join("run");
    let mut binds = Vec::new();
    for (folder, at) in [("run", "/run"), ("lib", "/var/lib"), ("log", "/var/log")] {
        fs::create_dir_all(dir.join(folder))?;
        binds.push((dir.join(folder), PathBuf::from(at)));
    }
    for inner in
        ["run/lock", "run/metalplane", "run/openvswitch", "run/ovn", "lib/metalplane", "lib/openvswitch", "lib/kubelet"]
    {
        fs::create_dir_all(dir.join(inner))?;
    }
    if let Some(server) = node.server() {
        let from = site.layout.server_dir(&server).join(servers::DPU_SIDE);
        fs::create_dir_all(&from)?;
        fs::create_dir_all(run.join("metalplane-host"))?;
        binds.push((from, PathBuf::from("/run/metalplane-host")));
    }
    let machine_id = dir.join("machine-id");
    if !machine_id.exists() {
        fs::write(&machine_id, format!("{}\n", fresh_uuid()?.replace('-', "")))?;
    }
    if Path::new("/etc/machine-id").exists() {
        binds.push((machine_id, PathBuf::from("/etc/machine-id")));
    }
    Ok(HolderConfig {
        sandbox: site.layout.name.clone(),
        node: node.name.clone(),
        boot_id: fresh_uuid()?,
        binds,
        boot_id_file: run.join("metalplane/boot-id"),
    })
}

async fn start_holder(site: &Site, node: &NodeId, config: &Path, done: &Path) -> Result<()> {
    let own = site.layout.program().display().to_string();
    let mut argv = vec![own.clone(), "launch".into(), "--netns".into()];
    argv.push(site.layout.netns_file(&node.name).display().to_string());
    argv.extend(["--".into(), own, "hold".into(), "--config".into(), config.display().to_string()]);
    let name = holder(node);
    let pid = site.table.start(ProcessSpec::new(&name, argv))?;
    let is_done = || async { done.exists() };
    site.table.until(&name, "the node's mounts are made", is_done).await?;
    site.write_enter(&node.name, Some(pid))
}

async fn start_containerd(site: &Site, node: &NodeId, dir: &Path) -> Result<()> {
    let config = dir.join("containerd.toml");
    kubelet::write_containerd_config(site, node, dir, &config)?;
    let name = format!("{}/containerd", node.name);
    let argv = [site.programs.containerd_program("containerd"), "--config".into(), config.display().to_string()];
    site.table.start(ProcessSpec::new(&name, argv).enter(&node.name))?;
    let ctr = site.programs.containerd_program("ctr");
    let socket = dir.join("run").join(CONTAINERD_SOCKET.trim_start_matches("/run/"));
    let serves = || async {
        socket.exists() && site.in_node(node, [ctr.as_str(), "--connect-timeout", "2s", "version"]).await.is_ok()
    };
    site.table.until(&name, "it serves", serves).await?;
    images::load(site, node, &images::pause_tar(&site.layout)).await.map(drop)
}

fn wipe(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot wipe {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn fresh_uuid() -> Result<String> {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").context("no random UUID")?;
    Ok(uuid.trim().to_owned())
}
