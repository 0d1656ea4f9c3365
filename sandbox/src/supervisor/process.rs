//! The process table: every process of a sandbox is an entry here, and a child of the supervisor.
//!
//! Nothing is restarted by itself, but an Open vSwitch that an assertion of its own has ended: a process that ends stays ended and can be
//! seen to have ended, so a test that kills a process sees what the rest does about it. A process is started through `sandbox launch`, which enters its
//! namespaces and its control group and asks the kernel to kill it when the supervisor dies.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::sync::watch;

use crate::cluster::cgroup::Cgroups;
use crate::layout::{CONTROL_PLANE, Layout};
use crate::whole;

/// A process that is killed ends at once, but its turn must come.
const KILL_LIMIT: Duration = Duration::from_secs(60);

/// One that cannot start says so by its end; this is for one that hangs, and has room for a machine that is all emulated.
const START_LIMIT: Duration = Duration::from_secs(600);

/// How often is looked whether a process has come as far as is waited for: so often at first, and at least so often.
const LOOK_FIRST: Duration = Duration::from_millis(50);
const LOOK_AT_LEAST: Duration = Duration::from_secs(1);

/// What to run. `name` is `<group>/<name>`; `enter` names the node (or `cp`) whose namespaces it runs in.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    pub name: String,
    pub argv: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub enter: Option<String>,
    /// How long it may take to end after SIGTERM.
    #[serde(default = "default_grace")]
    pub grace_seconds: u64,
}

fn default_grace() -> u64 {
    5
}

impl ProcessSpec {
    pub fn new(name: impl Into<String>, argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            name: name.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            enter: None,
            grace_seconds: default_grace(),
        }
    }

    pub fn enter(mut self, node: &str) -> Self {
        self.enter = Some(node.to_owned());
        self
    }

    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    fn group(&self) -> Result<&str> {
        let simple = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) && part != ".."
        };
        match self.name.split_once('/') {
            Some((group, rest)) if simple(group) && simple(rest) => Ok(group),
            _ => bail!("process name {:?}: write <group>/<name>", self.name),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum State {
    Running { pid: i32 },
    Exited { how: String },
}

/// One line of `{"op":"list"}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listed {
    pub name: String,
    #[serde(flatten)]
    pub state: State,
    pub log: PathBuf,
}

struct Entry {
    spec: ProcessSpec,
    order: u64,
    state: watch::Receiver<State>,
}

/// A process as a later supervisor needs it, to end it and nothing else.
#[derive(Serialize, Deserialize)]
pub struct Recorded {
    pub pid: i32,
    pub start_time: u64,
}

#[derive(Default)]
struct Entries {
    by_name: BTreeMap<String, Entry>,
    started: u64,
}

/// Cheap to clone: all clones are one table.
#[derive(Clone)]
pub struct Table {
    layout: Layout,
    cgroups: Cgroups,
    /// Environment that every process gets: where the outside programs are.
    base_env: Arc<BTreeMap<String, String>>,
    entries: Arc<Mutex<Entries>>,
}

impl Table {
    pub fn new(layout: Layout, cgroups: Cgroups, base_env: BTreeMap<String, String>) -> Result<Self> {
        let table = Self { layout, cgroups, base_env: Arc::new(base_env), entries: Arc::new(Mutex::default()) };
        table.record()?;
        Ok(table)
    }

    /// Starts a process. One that ended is started again; one that runs is an error.
    pub fn start(&self, spec: ProcessSpec) -> Result<i32> {
        let name = spec.name.clone();
        if let Some(State::Running { pid }) = self.state(&name) {
            bail!("{name} runs already (process {pid})");
        }
        let mut child = self.command(&spec)?.spawn().with_context(|| format!("cannot start {name}"))?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).context("the process ended at once")?;
        let (sender, state) = watch::channel(State::Running { pid });
        let table = self.clone();
        let log = self.layout.log(&name);
        {
            let mut entries = self.entries();
            entries.started += 1;
            let order = entries.started;
            entries.by_name.insert(name.clone(), Entry { spec, order, state });
        }
        self.record()?;
        tokio::spawn(async move {
            let how = match child.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => format!("unknown: {error}"),
            };
            tracing::debug!(process = name, how, log = %log.display(), "ended");
            sender.send_replace(State::Exited { how });
            if let Err(error) = table.record() {
                tracing::warn!("{error:#}");
            }
        });
        Ok(pid)
    }

    /// Starts a process again that ran before.
    pub fn start_again(&self, name: &str) -> Result<i32> {
        let spec = self.entries().by_name.get(name).map(|entry| entry.spec.clone());
        self.start(spec.with_context(|| self.unknown(name))?)
    }

    /// SIGTERM, and SIGKILL to its process group when it does not end in its time.
    pub async fn stop(&self, name: &str) -> Result<()> {
        let (grace, mut state) = {
            let entries = self.entries();
            let entry = entries.by_name.get(name).with_context(|| self.unknown(name))?;
            (Duration::from_secs(entry.spec.grace_seconds), entry.state.clone())
        };
        let State::Running { pid } = *state.borrow() else { return Ok(()) };
        signal(pid, Signal::SIGTERM, false)?;
        let ended = state.wait_for(|state| matches!(state, State::Exited { .. }));
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::info!(process = name, "did not end within {} s of SIGTERM: killed", grace.as_secs());
            self.kill(name).await?;
        }
        Ok(())
    }

    /// SIGKILL to its process group.
    pub async fn kill(&self, name: &str) -> Result<()> {
        let mut state = self.entries().by_name.get(name).with_context(|| self.unknown(name))?.state.clone();
        let State::Running { pid } = *state.borrow() else { return Ok(()) };
        signal(pid, Signal::SIGKILL, true)?;
        let ended = state.wait_for(|state| matches!(state, State::Exited { .. }));
        tokio::time::timeout(KILL_LIMIT, ended).await.with_context(|| {
            format!("{name} (process {pid}) did not end within {} s of SIGKILL", KILL_LIMIT.as_secs())
        })??;
        Ok(())
    }

    pub fn state(&self, name: &str) -> Option<State> {
        self.entries().by_name.get(name).map(|entry| entry.state.borrow().clone())
    }

    pub fn pid(&self, name: &str) -> Option<i32> {
        match self.state(name) {
            Some(State::Running { pid }) => Some(pid),
            _ => None,
        }
    }

    pub fn list(&self) -> Vec<Listed> {
        let entries = self.entries();
        let listed = entries.by_name.iter().map(|(name, entry)| Listed {
            name: name.clone(),
            state: entry.state.borrow().clone(),
            log: self.layout.log(name),
        });
        listed.collect()
    }

    /// Names of the processes of a group, in the order in which they were started first to last.
    pub fn group(&self, group: &str) -> Vec<String> {
        let entries = self.entries();
        let prefix = format!("{group}/");
        let mut found: Vec<_> = entries.by_name.iter().filter(|(name, _)| name.starts_with(&prefix)).collect();
        found.sort_by_key(|(_, entry)| entry.order);
        found.into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// Names of all groups.
    pub fn groups(&self) -> Vec<String> {
        let entries = self.entries();
        let mut groups: Vec<String> =
            entries.by_name.keys().filter_map(|name| name.split_once('/')).map(|(group, _)| group.to_owned()).collect();
        groups.dedup();
        groups
    }

    /// Polls `probe` until it says true, after a tenth of the time that it has taken already: a probe may be a program, and
    /// keep a slow machine from what it is waiting for. Ends early, with the log's last lines, when the process has ended.
    pub async fn until<F: Future<Output = bool>>(
        &self,
        process: &str,
        what: &str,
        mut probe: impl FnMut() -> F,
    ) -> Result<()> {
        let began = tokio::time::Instant::now();
        let deadline = began + START_LIMIT;
        loop {
            if probe().await {
                return Ok(());
            }
            let log = self.layout.log(process);
            if let Some(State::Exited { how }) = self.state(process) {
                bail!("{process} ended ({how}) before {what}; log {}:\n{}", log.display(), last_lines(&log));
            }
            if tokio::time::Instant::now() > deadline {
                bail!(
                    "{process}: not {what} within {} s; log {}:\n{}",
                    START_LIMIT.as_secs(),
                    log.display(),
                    last_lines(&log)
                );
            }
            tokio::time::sleep((began.elapsed() / 10).clamp(LOOK_FIRST, LOOK_AT_LEAST)).await;
        }
    }

    fn command(&self, spec: &ProcessSpec) -> Result<Command> {
        let group = spec.group()?;
        if spec.argv.is_empty() {
            bail!("process {}: argv is empty", spec.name);
        }
        let log = self.layout.log(&spec.name);
        if let Some(folder) = log.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let log = OpenOptions::new().create(true).append(true).open(&log)?;
        let node = spec.enter.as_deref().filter(|node| *node != CONTROL_PLANE);
        // What runs in a node loses power with it, whatever it is called.
        let cgroup = self.cgroups.prepare_leaf(&self.layout.node_cgroup(node.unwrap_or(group)))?;
        let mut command = Command::new(self.layout.program());
        command.arg("launch").arg("--cgroup").arg(cgroup);
        if let Some(enter) = &spec.enter {
            command.arg("--netns").arg(self.layout.netns_file(enter));
        }
        if let Some(node) = node {
            let pid =
                self.pid(&format!("{node}/holder")).with_context(|| format!("{}: node {node} is not up", spec.name))?;
            command.arg("--node-of").arg(pid.to_string());
        }
        command.arg("--").args(&spec.argv);
        // A folder of the caller's login, and no node has it: containerd's shim would write what a pod is to execute there.
        command.env_remove("XDG_RUNTIME_DIR").envs(self.base_env.iter()).envs(&spec.env).process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    fn record(&self) -> Result<()> {
        let mut running: Vec<Recorded> = Vec::new();
        for entry in self.entries().by_name.values() {
            if let State::Running { pid } = *entry.state.borrow() {
                running.extend(start_time(pid).map(|start_time| Recorded { pid, start_time }));
            }
        }
        let path = self.layout.processes();
        whole::write(&path, serde_json::to_vec(&running)?).with_context(|| format!("cannot write {}", path.display()))
    }

    fn unknown(&self, name: &str) -> String {
        format!("no process {name:?}; known: {}", self.entries().by_name.keys().cloned().collect::<Vec<_>>().join(", "))
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the process was started, in clock ticks since boot: with its id, its identity.
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses that may hold anything; the 22nd is the start time.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn signal(pid: i32, signal: Signal, whole_group: bool) -> Result<()> {
    let sent = if whole_group { killpg(Pid::from_raw(pid), signal) } else { kill(Pid::from_raw(pid), signal) };
    match sent {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => bail!("cannot send {signal} to process {pid}: {error}"),
    }
}

fn last_lines(log: &std::path::Path) -> String {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_process_looks_for_the_folder_of_the_callers_login() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("SKIP no_process_looks_for_the_folder_of_the_callers_login: needs root");
            return;
        }
        let layout = Layout::new(&format!("login{}", std::process::id())).expect("a name");
        std::fs::create_dir_all(&layout.dir).expect("a folder");
        let cgroups = Cgroups::detect().expect("control groups");
        let table = Table::new(layout.clone(), cgroups.clone(), BTreeMap::new()).expect("a table");
        let command = table.command(&ProcessSpec::new("node-1/containerd", ["containerd"]));
        cgroups.remove(&layout.cgroup()).await.expect("its group goes");
        std::fs::remove_dir_all(&layout.dir).expect("the folder goes");
        let command = command.expect("a command");
        let mut changed = command.as_std().get_envs();
        assert!(changed.any(|change| change == ("XDG_RUNTIME_DIR".as_ref(), None)), "kept: {command:?}");
    }
}
