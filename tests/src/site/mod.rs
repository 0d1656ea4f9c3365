//! A sandbox with Metalplane on it.

mod bare;
mod ceph;
mod golden;
mod groups;
mod images;
mod install;
mod inventory;
mod life;
mod netboot;
mod netns;
mod ovn;
mod perl;
mod ping;
mod pod;
mod probe;
mod processes;
mod release;
mod replicas;
mod server;
mod spdk;
mod tcp;
mod upgrade;
mod vm;

use anyhow::{Context, Result, bail};
use sandbox::Sandbox;
use sandbox::handle::Options;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::Instant;

pub use ceph::Ceph;
pub use images::release;
pub use install::tools;
pub use life::{Frozen, OUT_OF_SERVICE};
pub use netboot::{InstallerCd, POOL, bare};
pub use netns::{LISTEN, Netns, SEND, Talk, Way, addresses, by_first_address};
pub use ovn::Row;
pub use perl::Perl;
pub use pod::{ORDINARY_NODE, Pod};
pub use probe::{Place, Probe};
pub use replicas::{Answered, BootClient};
pub use sandbox::guest::Kind as GuestKind;
pub use server::{Action, Server};
pub use spdk::{POOL_CLASS, Storage};
pub use tcp::{serve, tcp};
pub use vm::Vm;

/// Where the controller, the agents and the CSI driver run.
pub const SYSTEM_NAMESPACE: &str = "metalplane-system";
pub const INVENTORY_NAMESPACE: &str = "metalplane-inventory";
pub const SEEDS_NAMESPACE: &str = "metalplane-seeds";
pub const STORAGE_CLASS: &str = "metalplane-file";
/// Our own driver's volumes, as if only kubelet could connect them. Who needs it applies [`HELD_MANIFEST`].
pub const HELD_CLASS: &str = "held";
pub const HELD_MANIFEST: &str = "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: held}
provisioner: csi.metalplane.io
parameters: {pool: default, connector: kubelet}
allowVolumeExpansion: true
volumeBindingMode: Immediate
";

/// How controller and agents run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agents {
    /// As users run them: a Deployment and a DaemonSet.
    DaemonSet,
    /// As plain processes with the same identities, for debugging.
    Process,
}

pub struct Site {
    pub sandbox: Sandbox,
    helm: PathBuf,
    pub agents: Agents,
    /// The storage node, where the disks are presented by SPDK.
    pub spdk: Option<Storage>,
    /// The cluster whose images the machines may have.
    pub ceph: Option<Ceph>,
}

impl Site {
    /// Starts a sandbox and installs everything; `say` gets a line per step.
    pub async fn start(name: &str, options: Options, agents: Agents, say: &dyn Fn(&str)) -> Result<Self> {
        say(&format!("starting the cluster: control plane and the nodes {}", options.nodes.join(", ")));
        let sandbox = Sandbox::start(name, options).await?;
        say("the cluster is up; building helm from its pinned module (minutes at the first time, then cached)");
        let site = Self { sandbox, helm: install::helm().await?, agents, spdk: None, ceph: None };
        site.install(say).await?;
        Ok(site)
    }

    /// Uses a site that an earlier run left (`make demo KEEP=1`).
    pub async fn connect(name: &str) -> Result<Self> {
        let sandbox = Sandbox::connect(name).await?;
        Ok(Self { sandbox, helm: install::helm().await?, agents: Agents::DaemonSet, spdk: None, ceph: None })
    }

    pub async fn down(self) -> Result<()> {
        self.sandbox.down().await
    }

    /// kubectl as administrator; what it prints.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        run(self.sandbox.kubectl(), args, None).await
    }

    pub async fn apply(&self, yaml: &str) -> Result<String> {
        run(self.sandbox.kubectl(), &["apply", "-f", "-"], Some(yaml)).await
    }

    /// The same, of what names no namespace in this one.
    pub async fn apply_in(&self, namespace: &str, yaml: &str) -> Result<String> {
        run(self.sandbox.kubectl(), &["apply", "-n", namespace, "-f", "-"], Some(yaml)).await
    }

    /// Deletes the objects of a manifest that are there.
    pub async fn delete(&self, yaml: &str) -> Result<String> {
        let args = ["delete", "--ignore-not-found", "--timeout=120s", "-f", "-"];
        run(self.sandbox.kubectl(), &args, Some(yaml)).await
    }

    /// `kubectl get ARGS -o json`; `None` when the object does not exist.
    pub async fn get(&self, args: &[&str]) -> Result<Option<Value>> {
        let mut all = vec!["get", "--ignore-not-found", "-o", "json"];
        all.extend(args);
        let text = self.kubectl(&all).await?;
        if text.trim().is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&text)?)) }
    }

    /// Our command line, as a user runs it.
    pub async fn bmctl(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(images::bmctl()?);
        command.env("KUBECONFIG", self.sandbox.kubeconfig());
        run(command, args, None).await
    }

    /// What the API server says to a manifest, without anything being changed.
    pub async fn dry_run(&self, yaml: &str) -> Result<String> {
        let args = ["apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-"];
        run(self.sandbox.kubectl(), &args, Some(yaml)).await
    }

    /// A command inside a node.
    pub async fn enter(&self, node: &str, args: &[&str]) -> Result<String> {
        run(self.sandbox.enter(node), args, None).await
    }
}

/// A program of the workspace, beside the running one (tests are in `deps`, one below).
pub fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.with_context(|| format!("no `{name}` beside {}: cargo build --workspace", own.display()))
}

/// Asks `check` again and again until it gives a value. The error names what was awaited and what was last seen.
pub async fn until<T>(
    awaited: &str,
    limit: Duration,
    mut check: impl AsyncFnMut() -> Result<Result<T, String>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match check().await? {
            Ok(value) => return Ok(value),
            Err(seen) if Instant::now() > deadline => {
                bail!("{awaited}: not within {} s; last seen: {seen}", limit.as_secs())
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Runs a command to its end; fails with what it said.
async fn run(mut command: Command, args: &[&str], input: Option<&str>) -> Result<String> {
    let shown = format!("{} {}", command.as_std().get_program().to_string_lossy(), args.join(" "));
    command.args(args).stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start `{shown}`"))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(text.as_bytes()).await?;
    }
    let output = tokio::time::timeout(Duration::from_secs(300), child.wait_with_output())
        .await
        .with_context(|| format!("`{shown}` did not end within 300 s"))??;
    if !output.status.success() {
        bail!("`{shown}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The process ids of the guests that run in this sandbox.
pub fn running_guests(site: &Site) -> Result<Vec<String>> {
    running_guests_in(&site.sandbox.layout().dir.display().to_string())
}

/// Of those servers whose state is below this folder.
fn running_guests_in(folder: &str) -> Result<Vec<String>> {
    let below = format!("{folder}/");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        // A process may end while we look: then it is none.
        let Ok(words) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let words = String::from_utf8_lossy(&words).into_owned();
        // A QEMU that was unpacked is started by its loader.
        if words.contains("qemu-system") && words.contains("pflash") && words.contains(&below) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(found)
}
