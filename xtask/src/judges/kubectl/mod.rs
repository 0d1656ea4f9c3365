//! The real kubectl, as a user and as an administrator would use it, against a real control plane with our definitions
//! and policies: a scripted session of which each step is counted.
//!
//! | module | what is asked |
//! |---|---|
//! | [`fields`] | `explain` describes every field of every kind |
//! | [`tables`] | `get` shows every kind within 80 columns |
//! | [`refusals`] | what is wrong is refused with its path and what to write; what is immutable says so |
//! | [`life`] | apply, wait, describe, patch, server-side apply, selectors, delete |
//! | [`policies`] | what an agent's token may do, and what only the controller may |
//! | [`inventory`] | what the controller alone writes at a Hardware, what others write there, what the account of `boot` may |
//! | [`plugin`] | `kubectl bm`, and its completion |
//!
//! No controller runs in that session: what it would write is written by hand, so that each step has one outcome. Last, on a whole
//! site, a machine's life by kubectl and what kubectl shows of it, as controller and agents write it (`end_to_end/{life,shown}.rs`).

mod fields;
mod inventory;
mod life;
mod plugin;
mod policies;
mod refusals;
mod session;
mod tables;

use super::{Bench, Judge, Verdict, Word, on_site};
use crate::go;
use crate::test;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use session::Session;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const JUDGE: Judge = Judge { name: "kubectl", run };

/// The tests of the whole site.
const LIVE: &str = "life::";
const SANDBOX: &str = "judge-kubectl";
/// The programs of Kubernetes may have to be built first.
const READY_WITHIN: Duration = Duration::from_secs(1200);

fn run(bench: &Bench) -> Result<Verdict> {
    build(bench.root)?;
    let helm = go::build(go::script(bench.root, "helm"))?.join("helm");
    let site = ControlPlane::start(bench)?;
    let mut session = Session::new(&bench.folder, &site.kubectl, &site.kubeconfig)?;
    install(bench.root, &helm, &mut session)?;
    life::begin(bench.root, &mut session)?;
    tables::run(&mut session)?;
    fields::run(&mut session)?;
    refusals::run(&mut session);
    policies::run(&mut session)?;
    inventory::run(&mut session);
    plugin::run(bench.root, &mut session)?;
    life::end(&mut session);
    site.end()?;
    let wrong = session.wrong();
    let word = if wrong.is_empty() { Word::Pass } else { Word::Fail };
    let all = session.steps();
    let by_hand = Verdict { word, done: all - wrong.len(), all, reason: wrong.join("; ") };
    Ok(by_hand.and(on_site::run(bench, LIVE, &[])?))
}

/// Our own programs: the sandbox, and bmctl, which is the plug-in.
fn build(root: &Path) -> Result<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let status = cargo.current_dir(root).args(["build", "--quiet", "-p", "sandbox", "-p", "bmctl"]).status();
    let status = status.context("run cargo")?;
    ensure!(status.success(), "cargo build: {status} (its output is above)");
    Ok(())
}

/// A program of the workspace: beside this one.
fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("find the folder of this program")?;
    let path = own.with_file_name(name);
    ensure!(path.is_file(), "{} is missing", path.display());
    Ok(path)
}

/// Definitions and policies as a user installs them, without the programs.
fn install(root: &Path, helm: &Path, session: &mut Session) -> Result<()> {
    let charts = root.join("charts");
    let without = ["controller.enabled", "agent.enabled", "csi.enabled", "filePool.enabled"];
    let without = without.map(|value| format!("{value}=false"));
    // For the rights of its account: nothing runs, for there is no node.
    let boot = ["boot.enabled=true", "boot.addresses={192.0.2.1}"].map(str::to_owned);
    for (chart, values) in [("metalplane-crds", vec![]), ("metalplane", [&without[..], &boot].concat())] {
        let mut command = Command::new(helm);
        command.args(["upgrade", "--install", chart]).arg(charts.join(chart));
        command.args(["--namespace", "metalplane-system", "--create-namespace"]);
        command.args(values.iter().map(|value| format!("--set={value}")));
        let said = session.other(command, &format!("helm upgrade --install {chart} charts/{chart}"))?;
        ensure!(said.code == 0, "the chart {chart}: {}", said.all());
    }
    let crds = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"];
    let said = session.say(&crds, None);
    ensure!(said.code == 0, "{}", said.all());
    Ok(())
}

/// A control plane without nodes; it ends with this value, however that ends.
struct ControlPlane {
    supervisor: Child,
    kubectl: PathBuf,
    kubeconfig: PathBuf,
}

impl ControlPlane {
    fn start(bench: &Bench) -> Result<Self> {
        let own = program("sandbox")?;
        let mut command = if test::needs_sudo() { Command::new("sudo") } else { Command::new(&own) };
        if test::needs_sudo() {
            command
                .arg("env")
                .args(["PATH", "HOME"].map(|name| format!("{name}={}", std::env::var(name).unwrap_or_default())));
            command.arg(&own);
        }
        let log = fs::File::create(bench.folder.join("sandbox.log")).context("make the sandbox's log")?;
        command.args(["run", "--name", SANDBOX, "--nodes=", "--servers=", "--end-with-stdin"]);
        let started = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn();
        let mut supervisor = started.context("start the sandbox")?;
        let path = PathBuf::from("/var/tmp/metalplane").join(SANDBOX).join("ready.json");
        let began = Instant::now();
        loop {
            if let Some(status) = supervisor.try_wait().context("watch the sandbox")? {
                let log = bench.folder.join("sandbox.log");
                anyhow::bail!("the sandbox did not start ({status}): see {}", log.display());
            }
            // What an earlier run left has another supervisor's number, or another's parent under sudo.
            let ready = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
            let ours = |ready: &Value| test::needs_sudo() || ready["supervisor"] == supervisor.id();
            if let Some(ready) = ready.filter(ours) {
                let text = |value: &Value| value.as_str().map(PathBuf::from).context("ready.json lacks a path");
                let kubectl = text(&ready["programs"][0])?.join("kubectl");
                return Ok(Self { supervisor, kubectl, kubeconfig: text(&ready["kubeconfig"])? });
            }
            ensure!(began.elapsed() < READY_WITHIN, "the sandbox was not ready within {} s", READY_WITHIN.as_secs());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Its standard input is its lifeline.
    fn end(mut self) -> Result<()> {
        drop(self.supervisor.stdin.take());
        let status = self.supervisor.wait().context("wait for the sandbox to end")?;
        ensure!(status.success(), "the sandbox ended with {status}");
        Ok(())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}
