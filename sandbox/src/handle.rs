//! Starts and drives a sandbox from a test, the demo or the command line.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! let sandbox = sandbox::Sandbox::start("test", sandbox::handle::Options::default()).await?;
//! let seen = sandbox.enter("dpu-1").args(["ovs-vsctl", "show"]).output().await?;
//! assert!(seen.status.success());
//! sandbox.power("dpu-1", "off").await?;
//! sandbox.down().await
//! # }
//! ```

use std::convert::Infallible;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::args;
use crate::cluster::servers;
use crate::layout::Layout;
use crate::supervisor::process::{Listed, ProcessSpec, State};
use crate::supervisor::{self, Ready, control};

/// Every step of a start has a limit of its own; this one has room for building the outside programs, once.
const START_LIMIT: Duration = Duration::from_secs(1800);
const RERACK_LIMIT: Duration = Duration::from_secs(60);

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    pub nodes: Vec<String>,
    pub servers: Vec<String>,
    /// Memory of each virtual server, in MiB.
    pub server_memory_mib: u32,
    pub server_vcpus: u32,
    /// Servers that are not of the kind `standby`, and their kind.
    pub personalities: Vec<(String, String)>,
    /// Servers take their disks from a target on their DPU, by vfio-user.
    pub vfio_user: bool,
    /// Let it outlive this process, until `sandbox down`.
    pub keep: bool,
    /// The `sandbox` program; without it, the one beside the running test or program.
    pub program: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            nodes: names(&["dpu-1", "dpu-2", "node-1"]),
            servers: names(&["server-1", "server-2"]),
            server_memory_mib: 512,
            server_vcpus: 1,
            personalities: Vec::new(),
            vfio_user: false,
            keep: false,
            program: None,
        }
    }
}

/// A running sandbox. One that this process started ends with it, however this process ends.
pub struct Sandbox {
    layout: Layout,
    ready: Ready,
    /// Its standard input is the lifeline: the supervisor ends when that is closed.
    supervisor: Option<Child>,
}

impl Sandbox {
    /// Starts a sandbox and returns when it is ready.
    pub async fn start(name: &str, options: Options) -> Result<Self> {
        let layout = Layout::new(name)?;
        let program = match options.program {
            Some(program) => program,
            None => find_program()?,
        };
        let mut command = Command::new(&program);
        command
            .args(["run", "--name", name, "--nodes", &options.nodes.join(","), "--servers", &options.servers.join(",")])
            .args(["--server-memory-mib", &options.server_memory_mib.to_string()])
            .args(["--server-vcpus", &options.server_vcpus.to_string()])
            .process_group(0); // a Ctrl-C is this process's to handle
        for (server, kind) in &options.personalities {
            command.arg(format!("--personality={server}={kind}"));
        }
        if options.vfio_user {
            command.arg("--vfio-user");
        }
        let mut said = None;
        if options.keep {
            // Beside the folder, which is emptied at the start.
            said = Some(says_into(&mut command, &Layout::root().join(format!("{name}.out")))?);
            command.stdin(Stdio::null());
        } else {
            command.arg("--end-with-stdin").stdin(Stdio::piped());
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let own = child.id();
        let deadline = tokio::time::Instant::now() + START_LIMIT;
        loop {
            let ended = child.try_wait()?;
            if let Some(said) = &mut said {
                pass_on(said)?;
            }
            if let Some(status) = ended {
                bail!(
                    "sandbox {name} did not start ({status}): see its messages above and {}/logs",
                    layout.dir.display()
                );
            }
            // An earlier run may have left its file: ours has our supervisor's id.
            if let Ok(ready) = read_ready(&layout)
                && Some(ready.supervisor) == own
            {
                return Ok(Self { layout, ready, supervisor: Some(child) });
            }
            if tokio::time::Instant::now() > deadline {
                bail!(
                    "sandbox {name} was not ready within {} s: see {}/logs",
                    START_LIMIT.as_secs(),
                    layout.dir.display()
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Uses a sandbox that somebody else started and ends.
    pub async fn connect(name: &str) -> Result<Self> {
        let layout = Layout::new(name)?;
        control::request(&layout, &json!({"op": "list"})).await?;
        let ready = read_ready(&layout)?;
        Ok(Self { layout, ready, supervisor: None })
    }

    /// Everything that `ready.json` says.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Administrator's kubeconfig for this process.
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig()
    }

    /// Administrator's kubeconfig for processes inside the sandbox.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.layout.admin_kubeconfig()
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A command that runs its arguments inside a node, or in the control plane's network (`cp`).
    pub fn enter(&self, node: &str) -> Command {
        Command::new(self.layout.enter(node))
    }

    /// kubectl as administrator.
    pub fn kubectl(&self) -> Command {
        let program = self.ready.programs.first().map(|folder| folder.join("kubectl")).unwrap_or("kubectl".into());
        let mut command = Command::new(program);
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// One request to the control socket; see [`control`].
    pub async fn request(&self, request: Value) -> Result<Value> {
        control::request(&self.layout, &request).await
    }

    pub async fn list(&self) -> Result<Vec<Listed>> {
        let mut answer = self.request(json!({"op": "list"})).await?;
        Ok(serde_json::from_value(answer["processes"].take())?)
    }

    pub async fn start_process(&self, process: &str) -> Result<()> {
        self.request(json!({"op": "start", "process": process})).await.map(drop)
    }

    pub async fn stop_process(&self, process: &str) -> Result<()> {
        self.request(json!({"op": "stop", "process": process})).await.map(drop)
    }

    pub async fn kill_process(&self, process: &str) -> Result<()> {
        self.request(json!({"op": "kill", "process": process})).await.map(drop)
    }

    /// Starts a new process that ends with the sandbox.
    pub async fn spawn(&self, process: &ProcessSpec) -> Result<()> {
        self.request(json!({"op": "spawn", "process": process})).await.map(drop)
    }

    /// Switches a DPU `on` or `off`. `on` returns when its node is Ready again.
    pub async fn power(&self, dpu: &str, state: &str) -> Result<()> {
        self.request(json!({"op": "power", "dpu": dpu, "state": state})).await.map(drop)
    }

    /// Puts a server of another kind (see [`crate::server::personality`]) in the place of one that nobody uses. It is off.
    pub async fn rerack(&self, server: &str, kind: &str) -> Result<()> {
        let process = servers::process_name(server);
        self.stop_process(&process).await?;
        servers::change_kind(&self.layout, server, kind).await?;
        self.start_process(&process).await?;
        let ready = self.layout.server_dir(server).join("ready");
        let deadline = tokio::time::Instant::now() + RERACK_LIMIT;
        while !ready.exists() {
            if tokio::time::Instant::now() > deadline {
                bail!("{server} was not ready as {kind} within {} s: see its log", RERACK_LIMIT.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Imports an image into every node that lacks it.
    pub async fn load_image(&self, tar: &Path) -> Result<()> {
        self.request(load_image_request(tar, None)?).await.map(drop)
    }

    /// Imports an image into those of `nodes` that lack it.
    pub async fn load_image_on(&self, tar: &Path, nodes: &[&str]) -> Result<()> {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        self.request(load_image_request(tar, Some(nodes))?).await.map(drop)
    }

    /// A loopback address of this machine that leads to `to` in the control plane's network.
    pub async fn forward(&self, to: &str) -> Result<String> {
        let answer = self.request(json!({"op": "forward", "to": to})).await?;
        answer["address"].as_str().map(str::to_owned).context("the supervisor gave no address")
    }

    /// Ends the sandbox and returns when nothing of it is left.
    pub async fn down(mut self) -> Result<()> {
        let Some(mut supervisor) = self.supervisor.take() else {
            // Another process's child cannot be waited for; its lock can, and what it left is looked for.
            return supervisor::down(&args::Name { name: self.layout.name }).await;
        };
        self.request(json!({"op": "down"})).await?;
        let status = tokio::time::timeout(Duration::from_secs(60), supervisor.wait())
            .await
            .with_context(|| format!("the supervisor of {} did not end within 60 s", self.layout.name))??;
        if !status.success() {
            bail!("the supervisor of {} ended with {status}", self.layout.name);
        }
        Ok(())
    }
}

/// A program that stays writes into a file: with its caller's output, whoever reads that would wait for its end. What it
/// says meanwhile can be read from the answer.
fn says_into(command: &mut Command, path: &Path) -> Result<File> {
    let folder = path.parent().context("a file has a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    command.stdout(file.try_clone()?).stderr(file);
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// What was said since the last time.
fn pass_on(said: &mut File) -> Result<()> {
    std::io::copy(said, &mut std::io::stderr()).context("cannot pass on what the sandbox says").map(drop)
}

fn read_ready(layout: &Layout) -> Result<Ready> {
    let path = layout.ready();
    let bytes = std::fs::read(&path).with_context(|| format!("sandbox {} is not ready", layout.name))?;
    serde_json::from_slice(&bytes).with_context(|| format!("cannot read {}", path.display()))
}

/// Tests are in `deps`, one below the programs.
fn find_program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folders = own.ancestors().skip(1).take(2);
    let mut found = folders.map(|folder| folder.join("sandbox")).filter(|file| file.is_file());
    found.next().with_context(|| format!("no `sandbox` program beside {}: cargo build -p sandbox", own.display()))
}

fn load_image_request(tar: &Path, nodes: Option<Vec<String>>) -> Result<Value> {
    let tar = tar.canonicalize().with_context(|| format!("no image file {}", tar.display()))?;
    Ok(json!({"op": "load-image", "tar": tar, "nodes": nodes}))
}

/// `sandbox status`
pub async fn print_status(name: &str, as_json: bool) -> Result<()> {
    let layout = Layout::new(name)?;
    let answer = control::request(&layout, &json!({"op": "list"})).await?;
    if as_json {
        println!("{}", serde_json::to_string_pretty(&answer)?);
        return Ok(());
    }
    let processes: Vec<Listed> = serde_json::from_value(answer["processes"].clone())?;
    let width = processes.iter().map(|process| process.name.len()).max().unwrap_or(0);
    for Listed { name, state, log } in &processes {
        let state = match state {
            State::Running { pid } => format!("running {pid}"),
            State::Exited { how } => format!("ended: {how}"),
        };
        println!("{name:width$}  {state:24}  {}", log.display());
    }
    match read_ready(&layout) {
        Ok(_) => println!("ready: export KUBECONFIG={}", layout.kubeconfig().display()),
        Err(error) => println!("{error:#}"),
    }
    Ok(())
}

/// `sandbox enter`: becomes the command.
pub fn enter(name: &str, node: &str, command: &[String]) -> Result<Infallible> {
    let script = Layout::new(name)?.enter(node);
    let error = std::process::Command::new(&script).args(command).exec();
    Err(error).with_context(|| format!("cannot run {}: is {node} of sandbox {name} up?", script.display()))
}

/// `sandbox load-image`
pub async fn print_load_image(name: &str, tar: &Path, nodes: Option<Vec<String>>) -> Result<()> {
    let answer = control::request(&Layout::new(name)?, &load_image_request(tar, nodes)?).await?;
    println!("{answer}");
    Ok(())
}

/// `sandbox power`
pub async fn power(name: &str, dpu: &str, state: &str) -> Result<()> {
    let request = json!({"op": "power", "dpu": dpu, "state": state});
    control::request(&Layout::new(name)?, &request).await.map(drop)
}

/// `sandbox control`
pub async fn print_request(name: &str, request: &str) -> Result<()> {
    let request = serde_json::from_str(request).context("the request is no JSON")?;
    println!("{}", control::request(&Layout::new(name)?, &request).await?);
    Ok(())
}

#[cfg(test)]
mod tests;
