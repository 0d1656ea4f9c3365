//! A real `qemu-storage-daemon`, as it stands beside the agent on a DPU and opens images for it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// Of Debian's `qemu-system-common`, which every QEMU needs.
pub const PROGRAM: &str = "qemu-storage-daemon";
const START: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// It takes QMP on this socket, and does nothing until it is told.
pub fn arguments(socket: &str) -> Vec<String> {
    let chardev = format!("socket,id=qmp,path={socket},server=on,wait=off");
    ["--chardev", &chardev, "--monitor", "chardev=qmp"].map(str::to_owned).into()
}

/// Ends with this value.
pub struct StorageDaemon {
    socket: PathBuf,
    environment: BTreeMap<String, String>,
    process: Child,
}

impl StorageDaemon {
    /// `environment`: of [`super::Programs::qemu_module`].
    pub async fn start(socket: &Path, environment: &BTreeMap<String, String>) -> Result<StorageDaemon> {
        let process = spawn(socket, environment)?;
        let mut daemon = Self { socket: socket.to_owned(), environment: environment.clone(), process };
        daemon.answers().await?;
        Ok(daemon)
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// `kill -9`, and a new process on the same socket.
    pub async fn replace(&mut self) -> Result<()> {
        self.process.kill().await.context("kill the daemon")?;
        self.process = spawn(&self.socket, &self.environment)?;
        self.answers().await
    }

    async fn answers(&mut self) -> Result<()> {
        let begun = Instant::now();
        while UnixStream::connect(&self.socket).await.is_err() {
            if let Some(status) = self.process.try_wait()? {
                let said = std::fs::read_to_string(log(&self.socket)).unwrap_or_default();
                bail!("{PROGRAM} ended ({status}): {said}");
            }
            if begun.elapsed() > START {
                bail!("{PROGRAM} does not listen on {} after {START:?}", self.socket.display());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

fn log(socket: &Path) -> PathBuf {
    socket.with_extension("log")
}

fn spawn(socket: &Path, environment: &BTreeMap<String, String>) -> Result<Child> {
    // What was left by one that was killed would look like one that listens and does not answer.
    let _ = std::fs::remove_file(socket);
    let said = File::options().create(true).append(true).open(log(socket))?;
    let mut command = Command::new(PROGRAM);
    command.args(arguments(&socket.display().to_string())).envs(environment).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
    command.spawn().with_context(|| format!("start {PROGRAM}"))
}
