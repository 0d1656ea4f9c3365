//! A real QEMU whose processors are stopped, in a network namespace of its own.

use async_trait::async_trait;
use ports::{
    Emulation,
    conformance::{Sleep, emulation::Bench},
    emulation::Backend,
};
use qemu::{QemuEmulation, qmp::Qmp};
use serde_json::{Value, json};
use std::{
    path::PathBuf,
    process::Stdio,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::process::{Child, Command};

const HOT_PLUG_PORTS: usize = 4;

pub struct Machine {
    pub folder: TempDir,
    process: Child,
    /// A second QMP connection: what the test does to QEMU behind the driver's back.
    pub monitor: Qmp,
    files: AtomicU32,
}

/// `None`, with the reason on stderr, where a machine cannot be had.
pub async fn start(test: &str) -> Option<Machine> {
    for (program, argument) in [("qemu-system-x86_64", "--version"), ("unshare", "--version")] {
        let found = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status().await;
        if !found.is_ok_and(|status| status.success()) {
            eprintln!("SKIP {test}: {program} is not installed");
            return None;
        }
    }
    let namespace = Command::new("unshare").args(["-n", "true"]).stderr(Stdio::null()).status().await;
    if !namespace.is_ok_and(|status| status.success()) {
        eprintln!("SKIP {test}: a network namespace cannot be made; run as root");
        return None;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let process = spawn(&folder);
    let monitor = Qmp::new(folder.path().join("monitor.sock"), Duration::from_secs(5));
    let machine = Machine { folder, process, monitor, files: AtomicU32::new(0) };
    machine.answers().await;
    Some(machine)
}

fn spawn(folder: &TempDir) -> Child {
    let mut command = Command::new("unshare");
    command.args(["-n", "qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-display", "none", "-nodefaults"]);
    // Stopped: a firmware that reads from a disk at the moment of its removal makes QEMU 7.2 lose a reference now and
    // then, and the block node stays in use for ever.
    command.args(["-m", "128", "-S"]);
    let names = ["boot".to_owned(), "seed".to_owned()].into_iter();
    for (n, name) in names.chain((0..HOT_PLUG_PORTS).map(|n| format!("hp{n}"))).enumerate() {
        let number = n + 1;
        command.args(["-device", &format!("pcie-root-port,id={name},chassis={number},slot={number}")]);
    }
    for socket in ["slots.sock", "monitor.sock"] {
        command.args(["-qmp", &format!("unix:{},server=on,wait=off", folder.path().join(socket).display())]);
    }
    command.kill_on_drop(true).spawn().expect("start QEMU")
}

impl Machine {
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("slots.sock")
    }

    pub fn emulation(&self) -> QemuEmulation {
        QemuEmulation::new(self.socket())
    }

    pub async fn file(&self, size_bytes: u64) -> PathBuf {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.path().join(format!("disk-{number}.raw"));
        let file = tokio::fs::File::create(&path).await.expect("create a backend");
        file.set_len(size_bytes).await.expect("size a backend");
        path
    }

    pub async fn command(&self, command: &str, arguments: Value) -> Value {
        self.monitor.execute(command, arguments).await.unwrap_or_else(|e| panic!("{command}: {e}"))
    }

    /// As when the host loses its power: everything that was presented is gone.
    pub async fn power_cycle(&mut self) {
        self.process.kill().await.expect("end QEMU");
        for socket in ["slots.sock", "monitor.sock"] {
            tokio::fs::remove_file(self.folder.path().join(socket)).await.expect("remove the socket");
        }
        self.process = spawn(&self.folder);
        self.answers().await;
    }

    pub async fn kill(&mut self) {
        self.process.kill().await.expect("end QEMU");
    }

    async fn answers(&self) {
        let started = Instant::now();
        while let Err(e) = self.monitor.execute("query-status", json!({})).await {
            assert!(started.elapsed() < Duration::from_secs(120), "QEMU does not answer: {e}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[async_trait]
impl Sleep for Machine {
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl Bench for Machine {
    async fn connect(&self) -> Box<dyn Emulation> {
        Box::new(self.emulation())
    }

    async fn backend(&self, size_bytes: u64) -> Backend {
        Backend::Path(self.file(size_bytes).await)
    }

    async fn grow(&self, backend: &Backend, size_bytes: u64) {
        let path = backend.path().expect("a backend of this bench is a file");
        let file = tokio::fs::OpenOptions::new().write(true).open(path).await.expect("open a backend");
        file.set_len(size_bytes).await.expect("grow a backend");
    }

    /// Nothing runs that could answer the ports' attention buttons; a reset completes what is pending instead.
    async fn let_host_release(&self) {
        self.command("system_reset", json!({})).await;
    }

    async fn has_device(&self, name: &str) -> Option<bool> {
        let pid = self.process.id()?;
        let devices = tokio::fs::read_to_string(format!("/proc/{pid}/net/dev")).await.ok()?;
        Some(devices.lines().any(|line| line.trim_start().starts_with(&format!("{name}:"))))
    }
}
