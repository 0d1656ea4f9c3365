//! Two network namespaces with a cable between them: the boot service and a real API server in the first, clients in the second.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The API server of the agent's tests, with its own rights beside those that a test gives.
#[allow(dead_code, reason = "what the agent's tests alone do with it")]
#[path = "../../../../dpu-agent/tests/site/api_server.rs"]
mod api_server;

pub use api_server::ApiServer;

/// Where the boot service is.
pub const US: &str = "10.88.0.1";
const INSIDE: &str = "METALPLANE_BOOT_TEST_CLIENTS";

/// Polls until it is so; panics with what it saw last.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        match look().await {
            Ok(value) => return value,
            Err(seen) => assert!(tokio::time::Instant::now() < deadline, "{what}: not yet, last seen: {seen}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Removed with all that is in them.
struct Namespaces([String; 2]);

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            // It may be that it was never made.
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let done = Command::new("ip").args(arguments.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    if done.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {said}")) }
}

/// Runs this very test again inside the first namespace, with these variables. `Ok`: it was, and succeeded. `Err`: a part is absent.
pub fn run_inside(test: &str, variables: &[(&str, &Path)]) -> Result<(), String> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    for program in ["udhcpc", "tftp"] {
        let applets = Command::new("busybox").arg("--list").output().map_err(|error| format!("busybox: {error}"))?;
        let applets = String::from_utf8_lossy(&applets.stdout).into_owned();
        if !applets.lines().any(|applet| applet == program) {
            return Err(format!("busybox has no {program}"));
        }
    }
    Command::new("curl").arg("--version").output().map_err(|error| format!("curl: {error}"))?;
    let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let names = Namespaces([format!("mp-boot-{id}"), format!("mp-boot-c-{id}")]);
    let [server, clients] = &names.0;
    ip(&format!("netns add {server}"))?;
    ip(&format!("netns add {clients}"))?;
    ip(&format!("-n {server} link add br-prov type veth peer name eth0 netns {clients}"))?;
    ip(&format!("-n {server} addr add {US}/24 dev br-prov"))?;
    for (name, interface) in [(server, "lo"), (server, "br-prov"), (clients, "lo"), (clients, "eth0")] {
        ip(&format!("-n {name} link set {interface} up"))?;
    }
    // Without one kube-apiserver finds no address to tell of.
    ip(&format!("-n {server} route add default via 10.88.0.254 dev br-prov"))?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let status = Command::new("ip")
        .args(["netns", "exec", server])
        .arg(own)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, clients)
        .envs(variables.iter().copied())
        .status()
        .map_err(|error| format!("ip netns exec: {error}"))?;
    assert!(status.success(), "{test} inside its network namespace: {status}");
    Ok(())
}

/// The namespace of the clients, inside.
pub fn clients() -> Option<String> {
    std::env::var(INSIDE).ok()
}

/// A command in the clients' namespace.
pub async fn client(words: &[&str]) -> Output {
    let namespace = clients().expect("inside");
    let mut command = tokio::process::Command::new("ip");
    let output = command.args(["netns", "exec", &namespace]).args(words).kill_on_drop(true).output();
    output.await.expect("a client can be started")
}

/// What udhcpc tells its script, of the last lease; `None`: nobody answered.
pub async fn udhcpc(dir: &tempfile::TempDir, mac: &str, more: &[&str]) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let (script, told) = (dir.path().join("udhcpc.sh"), dir.path().join("udhcpc.env"));
    std::fs::remove_file(&told).unwrap_or_default();
    let text = format!("#!/bin/sh\n[ \"$1\" = bound ] && env > {}\nexit 0\n", told.display());
    std::fs::write(&script, text).expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let set = client(&["ip", "link", "set", "eth0", "address", mac]).await;
    assert!(set.status.success(), "{set:?}");
    let script = script.display().to_string();
    let base = ["busybox", "udhcpc", "-i", "eth0", "-f", "-q", "-n", "-t", "3", "-T", "1", "-s", &script];
    client(&[&base[..], more].concat()).await;
    std::fs::read_to_string(told).ok()
}

pub fn field(env: &str, name: &str) -> String {
    let line = env.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_default().to_owned()
}

pub fn path(dir: &tempfile::TempDir, name: &str) -> PathBuf {
    dir.path().join(name)
}
