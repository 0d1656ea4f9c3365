//! A real SPDK, where one is installed: `SPDK_DIR` (a source folder with its build, or where it was installed to), or
//! PATH. `SPDK_TARGET` names a target of our own (`cargo xtask spdk-target`), which is then taken in place of SPDK's.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::Instant;

const FOLDER: &str = "SPDK_DIR";
const OWN_TARGET: &str = "SPDK_TARGET";
/// The programs of SPDK whose work it does.
const STANDS_FOR: [&str; 3] = ["nvmf_tgt", "spdk_tgt", "vhost"];
/// Those that make no sockets of virtual machines' disks, and know no option for their folder.
const NO_VHOST: [&str; 2] = ["nvmf_tgt", "iscsi_tgt"];
/// It takes less than a second on a machine that has nothing else to do.
const START: Duration = Duration::from_secs(120);

/// The folder that `SPDK_DIR` names; else what is missing.
pub fn folder() -> Result<PathBuf, String> {
    match std::env::var_os(FOLDER) {
        Some(folder) => Ok(folder.into()),
        None => Err(format!("{FOLDER} is set")),
    }
}

/// Our own target; else what is missing.
pub fn own_target() -> Result<PathBuf, String> {
    let program = std::env::var_os(OWN_TARGET).map(PathBuf::from);
    let program = program.ok_or_else(|| format!("{OWN_TARGET} is not set (`cargo xtask spdk-target` builds one)"))?;
    if program.exists() { Ok(program) } else { Err(format!("there is no {OWN_TARGET}={}", program.display())) }
}

/// A program of SPDK, as `nvmf_tgt`; else what is missing.
pub fn program(name: &str) -> Result<PathBuf, String> {
    if STANDS_FOR.contains(&name) && std::env::var_os(OWN_TARGET).is_some() {
        return own_target();
    }
    spdk_program(name)
}

/// The same, but SPDK's own whatever `SPDK_TARGET` says.
pub fn spdk_program(name: &str) -> Result<PathBuf, String> {
    if let Ok(folder) = folder() {
        let found = ["build/bin", "build/examples", "bin"].map(|sub| folder.join(sub).join(name));
        let missing = || format!("there is no {name} in {FOLDER}={}", folder.display());
        return found.into_iter().find(|file| file.exists()).ok_or_else(missing);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|sub| sub.join(name)).find(|file| file.exists());
    found.ok_or_else(|| format!("{name} is neither on PATH nor in {FOLDER}"))
}

/// Waits for a target that somebody else has started.
pub async fn until_listens(socket: &Path) -> Result<()> {
    let started = Instant::now();
    while UnixStream::connect(socket).await.is_err() {
        ensure!(started.elapsed() < START, "no target listens on {} after {START:?}", socket.display());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// A running target. Ends with this value.
pub struct Target {
    program: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    process: Child,
}

impl Target {
    /// Starts `program` with its socket `rpc.sock` in the folder, and waits until it answers there.
    pub async fn start(program: &Path, folder: &Path) -> Result<Target> {
        let (socket, log) = (folder.join("rpc.sock"), folder.join("target.log"));
        let process = spawn(program, &socket, &log)?;
        let mut target = Target { program: program.to_owned(), socket, log, process };
        target.answers().await?;
        Ok(target)
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// `kill -9`.
    pub async fn kill(&mut self) -> Result<()> {
        self.process.kill().await.context("kill the target")
    }

    /// A new process on the same socket.
    pub async fn revive(&mut self) -> Result<()> {
        self.process = spawn(&self.program, &self.socket, &self.log)?;
        self.answers().await
    }

    async fn answers(&mut self) -> Result<()> {
        let started = Instant::now();
        while UnixStream::connect(&self.socket).await.is_err() {
            if let Some(status) = self.process.try_wait()? {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                bail!("{} ended ({status}): {said}", self.program.display());
            }
            if started.elapsed() > START {
                bail!("{} does not listen on {} after {START:?}", self.program.display(), self.socket.display());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

fn spawn(program: &Path, socket: &Path, log: &Path) -> Result<Child> {
    // What was left by one that was killed would look like one that listens and does not answer.
    let _ = std::fs::remove_file(socket);
    let said = std::fs::File::options().create(true).append(true).open(log)?;
    let mut command = Command::new(std::path::absolute(program)?);
    if let Some(folder) = socket.parent().filter(|_| makes_sockets(program)) {
        command.arg("-S").arg(folder);
    }
    command.args(arguments(&socket.display().to_string()));
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).kill_on_drop(true);
    command.spawn().with_context(|| format!("start {}", program.display()))
}

fn makes_sockets(program: &Path) -> bool {
    !NO_VHOST.iter().any(|name| program.ends_with(name))
}

/// One core, memory of its own without huge pages, no PCI devices; other targets may use the same core.
pub fn arguments(socket: &str) -> Vec<String> {
    let fixed = ["-m", "0x1", "--no-huge", "-s", MEMORY_MIB, "--no-pci", "--disable-cpumask-locks"];
    ["-r", socket].into_iter().chain(fixed).map(str::to_owned).collect()
}

/// What `spdk_tgt` needs without huge pages.
const MEMORY_MIB: &str = "1024";

/// One request, for a test that looks at what a target has, or does what an administrator does.
pub async fn ask(socket: &Path, method: &str, params: Value) -> Result<Value> {
    let asked = async {
        let mut stream = UnixStream::connect(socket).await?;
        let mut request = json!({"jsonrpc": "2.0", "id": 1, "method": method});
        // Some methods refuse empty ones.
        if !params.is_null() {
            request["params"] = params;
        }
        stream.write_all(request.to_string().as_bytes()).await?;
        let (mut said, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            let length = stream.read(&mut piece).await?;
            ensure!(length > 0, "the target closed the connection");
            said.extend_from_slice(&piece[..length]);
            if let Ok(mut answer) = serde_json::from_slice::<Value>(&said) {
                ensure!(answer["error"].is_null(), "{}", answer["error"]);
                return Ok(answer["result"].take());
            }
        }
    };
    tokio::time::timeout(START, asked).await.context("no answer")?
}
