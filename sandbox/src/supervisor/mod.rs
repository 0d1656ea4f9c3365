//! The supervisor: `sandbox run`, the parent of every process of one sandbox, and `sandbox down`, its end.
//!
//! One supervisor per name holds a lock for as long as it lives. It first removes what a killed earlier one left, then
//! brings everything up, says so in `ready.json`, and answers its control socket until it is told to end.

pub mod control;
pub mod process;

use std::fs::{self, File, TryLockError};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::args;
use crate::cluster::cgroup::Cgroups;
use crate::cluster::{Progress, Site, control_plane, leftover, openvswitch, ovn, pki, pool, servers};
use crate::layout::{Layout, bmc_address};
use crate::preflight;
use crate::programs::Programs;
use crate::whole;

/// `ready.json`: where everything is, for whoever drives the sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    pub name: String,
    pub supervisor: u32,
    /// For the caller's own shell.
    pub kubeconfig: PathBuf,
    /// For use inside the namespaces.
    pub admin_kubeconfig: PathBuf,
    pub control_socket: PathBuf,
    pub pool: PathBuf,
    pub ovn: ReadyOvn,
    /// Folders of kubectl and of ctr.
    pub programs: Vec<PathBuf>,
    pub nodes: Vec<ReadyNode>,
    pub servers: Vec<ReadyServer>,
}

/// OVN's databases, as Metalplane's controller is told of them, and its certificate for them. In `cp` OVN's own commands find both
/// without being told.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyOvn {
    pub north_bound: String,
    pub south_bound: String,
    pub certificate: PathBuf,
    pub private_key: PathBuf,
    pub ca_cert: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyNode {
    pub name: String,
    pub dpu: bool,
    pub address: String,
    pub pod_cidr: String,
    pub enter: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyServer {
    pub name: String,
    pub bmc: String,
    pub bmc_user: String,
    pub bmc_password_file: PathBuf,
    pub slots_socket: PathBuf,
}

/// Runs a sandbox in the foreground until it is told to end.
pub async fn run(args: args::Run) -> Result<()> {
    let layout = Layout::new(&args.name.name)?;
    let progress = Progress::new();
    let _lock = lock(&layout)?
        .with_context(|| format!("sandbox {0} runs: end it with `sandbox down --name {0}`", layout.name))?;
    let end = Arc::new(Notify::new());
    watch_for_end(&args, end.clone())?;
    let found = preflight::run(args.servers.iter().any(|name| !name.is_empty())).await?;
    let programs = Programs::find(args.kubernetes.as_deref(), found).await?;
    let cgroups = Cgroups::detect()?;
    leftover::clean(&layout, &cgroups).await.context("cannot clean up after an earlier run")?;
    let _ = fs::remove_dir_all(layout.dir.join("logs"));
    fs::create_dir_all(&layout.dir).with_context(|| format!("cannot create {}", layout.dir.display()))?;
    pool::share_folder(&layout)?;
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    fs::copy(&own, layout.program()).with_context(|| format!("cannot copy {}", own.display()))?;
    progress.step("programs found, folder clean");

    let outcome = live(&layout, &args, programs, cgroups.clone(), progress, end).await;
    leftover::clean(&layout, &cgroups).await.context("cannot clean up")?;
    eprintln!("sandbox {} ended; its logs: {}", layout.name, layout.dir.join("logs").display());
    outcome
}

/// Brings everything up and returns when it is to end. A wish to end before it is up is fulfilled at once; after that
/// the processes are stopped in order.
async fn live(
    layout: &Layout,
    args: &args::Run,
    programs: Programs,
    cgroups: Cgroups,
    progress: Progress,
    end: Arc<Notify>,
) -> Result<()> {
    let site = tokio::select! {
        site = bring_up(layout, args, programs, cgroups, progress, end.clone()) => site?,
        () = end.notified() => return Ok(()),
    };
    end.notified().await;
    stop_in_order(&site).await
}

async fn bring_up(
    layout: &Layout,
    args: &args::Run,
    programs: Programs,
    cgroups: Cgroups,
    progress: Progress,
    end: Arc<Notify>,
) -> Result<Arc<Site>> {
    let site = Arc::new(Site::prepare(layout.clone(), args, programs, cgroups, progress).await?);
    control::serve(site.clone(), end)?;
    site.start(args).await?;
    tokio::spawn(openvswitch::watch(site.clone()));
    let ready = ready(&site)?;
    whole::write(&layout.ready(), serde_json::to_vec_pretty(&ready)?).context("cannot write ready.json")?;
    site.progress.step(format!("ready: export KUBECONFIG={}", layout.kubeconfig().display()));
    Ok(site)
}

/// Those who use a thing end before it: servers and what was spawned, nodes, controllers, API server, etcd.
async fn stop_in_order(site: &Site) -> Result<()> {
    let _ = fs::remove_file(site.layout.ready());
    let node_parts = ["holder", "containerd", "ovsdb-server", "ovs-vswitchd", "ovn-controller"];
    let all: Vec<String> = site.table.groups().iter().flat_map(|group| site.table.group(group)).collect();
    let control_plane = |name: &&String| name.starts_with("control-plane/");
    let lasts = |name: &&String| name.split_once('/').is_some_and(|(_, rest)| node_parts.contains(&rest));
    let first: Vec<&String> = all.iter().filter(|name| !control_plane(name) && !lasts(name)).collect();
    stop_all(site, &first).await;
    for node in &site.nodes {
        site.cgroups.kill(&site.layout.node_cgroup(&node.name)).await?;
    }
    for wave in [
        &[control_plane::CONTROLLERS, control_plane::SCHEDULER, ovn::NORTHD][..],
        &[control_plane::API_SERVER, ovn::NORTH_BOUND.process, ovn::SOUTH_BOUND.process],
        &[control_plane::ETCD],
    ] {
        stop_all(site, &all.iter().filter(|name| wave.contains(&name.as_str())).collect::<Vec<_>>()).await;
    }
    Ok(())
}

async fn stop_all(site: &Site, names: &[&String]) {
    for outcome in futures::future::join_all(names.iter().map(|name| site.table.stop(name))).await {
        if let Err(error) = outcome {
            // What does not stop is killed with its control group.
            tracing::warn!("{error:#}");
        }
    }
}

fn watch_for_end(args: &args::Run, end: Arc<Notify>) -> Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind).context("cannot watch for signals")?;
        let end = end.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                end.notify_one();
            }
        });
    }
    if args.end_with_stdin {
        let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
        let mut lifeline =
            tokio::net::unix::pipe::Receiver::from_owned_fd(stdin).context("standard input is no pipe")?;
        tokio::spawn(async move {
            // A pipe can be waited for without a thread that would hold up the end of the program.
            let mut rest = [0; 64];
            while let Ok(1..) = lifeline.read(&mut rest).await {}
            end.notify_one();
        });
    }
    Ok(())
}

fn ready(site: &Site) -> Result<Ready> {
    let node = |node: &crate::layout::NodeId| ReadyNode {
        name: node.name.clone(),
        dpu: node.is_dpu(),
        address: node.address().to_string(),
        pod_cidr: node.pod_cidr(),
        enter: site.layout.enter(&node.name),
    };
    let server = |server: &String| {
        let dir = site.layout.server_dir(server);
        anyhow::Ok(ReadyServer {
            name: server.clone(),
            bmc: format!("https://{}", bmc_address(server)?),
            bmc_user: servers::BMC_USER.into(),
            bmc_password_file: dir.join("bmc-password"),
            slots_socket: servers::slots_socket(&dir),
        })
    };
    Ok(Ready {
        name: site.layout.name.clone(),
        supervisor: std::process::id(),
        kubeconfig: site.layout.kubeconfig(),
        admin_kubeconfig: site.layout.admin_kubeconfig(),
        control_socket: site.layout.control_socket(),
        pool: site.layout.pool(),
        ovn: ReadyOvn {
            north_bound: ovn::NORTH_BOUND.readers_remote(),
            south_bound: ovn::SOUTH_BOUND.readers_remote(),
            certificate: site.layout.pki().join(format!("{}.crt", pki::OVN_CLIENT)),
            private_key: site.layout.pki().join(format!("{}.key", pki::OVN_CLIENT)),
            ca_cert: site.layout.pki().join(format!("{}.crt", pki::OVN_AUTHORITY)),
        },
        programs: vec![site.programs.kubernetes.clone(), site.programs.containerd.clone()],
        nodes: site.nodes.iter().map(node).collect(),
        servers: site.servers.iter().map(server).collect::<Result<_>>()?,
    })
}

/// The lock of the sandbox's supervisor, or nothing when one runs. It is beside the folder, which is emptied.
fn lock(layout: &Layout) -> Result<Option<File>> {
    fs::create_dir_all(Layout::root()).context("cannot create the folder of all sandboxes")?;
    let path = Layout::root().join(format!("{}.lock", layout.name));
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Ends a sandbox: asks its supervisor, cleans up when there is none, and shows what is left.
pub async fn down(name: &args::Name) -> Result<()> {
    let layout = Layout::new(&name.name)?;
    let cgroups = Cgroups::detect()?;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let mut asked = false;
    let _lock = loop {
        if let Some(lock) = lock(&layout)? {
            break lock;
        }
        asked = asked || control::request(&layout, &json!({"op": "down"})).await.is_ok();
        if tokio::time::Instant::now() > deadline {
            let hint = if asked { "it was told to end" } else { "its control socket does not answer" };
            bail!("the supervisor of sandbox {} did not end within 60 s ({hint})", layout.name);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    leftover::clean(&layout, &cgroups).await?;
    let remains = leftover::remains(&layout, &cgroups).await?;
    if !remains.is_empty() {
        bail!("sandbox {}: still there: {}", layout.name, remains.join(", "));
    }
    println!(
        "sandbox {}: nothing is left: no process, network namespace, mount, loop device or control group",
        layout.name
    );
    Ok(())
}
