//! Three network namespaces: the boot service and a real API server in the first, clients in the second, a neighbour in the third that
//! is a relay or another DHCP server.
//!
//! ```text
//! server     br-prov 10.88.0.1/24 ── clients   eth0
//!                    │            └─ neighbour lan0, without an address at first
//!            up0 10.90.0.1/30 ────── neighbour up0 10.90.0.2/30
//!                                    neighbour down0 10.89.0.1/24 ── clients eth1
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The API server of the agent's tests, with its own rights beside those that a test gives.
#[allow(dead_code, reason = "what the agent's tests alone do with it")]
#[path = "../../../../dpu-agent/tests/site/api_server.rs"]
mod api_server;

pub use api_server::ApiServer;

/// Where the other DHCP server is.
pub const OTHER: &str = "10.88.0.3";
/// Where the boot service is.
pub const US: &str = "10.88.0.1";
/// Where agents are served, over TCP: the last that the boot service opens.
const AGENTS: u16 = 42113;
/// The namespaces of clients and neighbour, for the test inside the first.
const INSIDE: &str = "METALPLANE_BOOT_TEST_CLIENTS";
const NEIGHBOUR: &str = "METALPLANE_BOOT_TEST_NEIGHBOUR";

/// So many lines of a test that failed inside are its message outside.
const LAST_LINES: usize = 20;

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
struct Namespaces([String; 3]);

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
    let names = Namespaces(["s", "c", "n"].map(|name| format!("mp-boot-{name}-{id}")));
    let [server, clients, neighbour] = &names.0;
    for name in &names.0 {
        ip(&format!("netns add {name}"))?;
    }
    ip(&format!("-n {server} link add br-prov type bridge forward_delay 0"))?;
    ip(&format!("-n {server} link add port0 type veth peer name eth0 netns {clients}"))?;
    ip(&format!("-n {server} link add port1 type veth peer name lan0 netns {neighbour}"))?;
    ip(&format!("-n {server} link add up0 type veth peer name up0 netns {neighbour}"))?;
    ip(&format!("-n {neighbour} link add down0 type veth peer name eth1 netns {clients}"))?;
    for port in ["port0", "port1"] {
        ip(&format!("-n {server} link set {port} master br-prov up"))?;
    }
    for (name, interface, address) in [
        (server, "lo", ""),
        // The first is what the kernel would answer from by itself.
        (server, "br-prov", "10.88.0.253/24"),
        (server, "br-prov", "10.88.0.1/24"),
        (server, "up0", "10.90.0.1/30"),
        (clients, "lo", ""),
        (clients, "eth0", ""),
        (clients, "eth1", ""),
        (neighbour, "lo", ""),
        (neighbour, "lan0", ""),
        (neighbour, "up0", "10.90.0.2/30"),
        (neighbour, "down0", "10.89.0.1/24"),
    ] {
        if !address.is_empty() {
            ip(&format!("-n {name} addr add {address} dev {interface}"))?;
        }
        ip(&format!("-n {name} link set {interface} up"))?;
    }
    ip(&format!("netns exec {neighbour} sysctl -q -w net.ipv4.ip_forward=1"))?;
    ip(&format!("-n {neighbour} route add {US}/32 via 10.90.0.1"))?;
    ip(&format!("-n {server} route add 10.89.0.0/24 via 10.90.0.2"))?;
    // Without one kube-apiserver finds no address to tell of.
    ip(&format!("-n {server} route add default via 10.88.0.254 dev br-prov"))?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let done = Command::new("ip")
        .args(["netns", "exec", server])
        .arg(own)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, clients)
        .env(NEIGHBOUR, neighbour)
        .envs(variables.iter().copied())
        .output()
        .map_err(|error| format!("ip netns exec: {error}"))?;
    // What the test says there is this test's word too: parts of it that were skipped, and why it failed.
    let said = String::from_utf8_lossy(&done.stderr);
    eprint!("{said}");
    assert!(done.status.success(), "{test} inside its network namespace: {}\n{}", done.status, last_lines(&said));
    Ok(())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// The namespace of the clients, inside.
pub fn clients() -> Option<String> {
    std::env::var(INSIDE).ok()
}

/// Killed when dropped.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("a child can be ended");
    }
}

impl Running {
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Asked to end, as kubelet asks: with what it ended, and after how long.
    pub async fn stopped(mut self) -> (std::process::ExitStatus, Duration) {
        let began = std::time::Instant::now();
        let asked = Command::new("kill").args(["-TERM", &self.id().to_string()]).status().expect("kill starts");
        assert!(asked.success(), "{asked}");
        let status = until("it ends", async || {
            self.0.try_wait().map_err(|error| error.to_string())?.ok_or_else(|| "it runs".to_owned())
        })
        .await;
        (status, began.elapsed())
    }

    /// What it says goes to `log`.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let log = File::create(log).expect("a log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("shared")).stderr(log);
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }
}

/// The root file system cannot be written to, as in the chart's pod: a disk that is full is nothing to it.
const READ_ONLY: &str = "mount --make-rprivate / && mount -o remount,ro,bind / && exec \"$0\" \"$@\"";

/// The boot service as it is shipped, in the first namespace: started, and listening at its address `own`.
pub async fn boot(kubeconfig: &Path, arguments: &[String], own: &str, log: &Path) -> Running {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", READ_ONLY, env!("CARGO_BIN_EXE_boot")]);
    command.arg(format!("--kubeconfig={}", kubeconfig.display())).args(arguments);
    let service = Running::start(command.args(["--log-filter=info,boot=debug"]).env("NO_COLOR", "1"), log);
    until("the boot service listens", async || {
        // Not asked from the clients' side, which has no address yet.
        let connected = tokio::net::TcpStream::connect((own, AGENTS)).await;
        connected.map_err(|error| format!("{error}\n{}", std::fs::read_to_string(log).unwrap_or_default()))
    })
    .await;
    service
}

/// The folder of what `tools/` builds with Go.
pub fn built(module: &str) -> Result<PathBuf, String> {
    let go = Command::new("go").arg("version").output();
    go.map_err(|error| format!("Go is missing ({error}), which builds tools/{module}"))?;
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/build.sh");
    let built = Command::new(build).arg(module).output().map_err(|error| error.to_string())?;
    let errors = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(built.status.success(), "tools/build.sh {module}: {errors}");
    Ok(PathBuf::from(String::from_utf8_lossy(&built.stdout).trim()))
}

/// A program of a Debian package in the neighbour's namespace.
pub fn neighbour(program: &(PathBuf, BTreeMap<String, String>), words: &[&str], log: &Path) -> Running {
    let namespace = std::env::var(NEIGHBOUR).expect("inside");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespace]).arg(&program.0).args(words).envs(&program.1);
    Running::start(&mut command, log)
}

/// isc-dhcp-relay: what is asked at down0 goes to us by up0, with the relay's option.
pub fn relay(program: &(PathBuf, BTreeMap<String, String>), log: &Path) -> Running {
    neighbour(program, &["-4", "-d", "-a", "-iu", "up0", "-id", "down0", US], log)
}

/// dnsmasq as the DHCP server of the provisioning network.
pub async fn dnsmasq(program: &(PathBuf, BTreeMap<String, String>), log: &Path) -> Running {
    let namespace = std::env::var(NEIGHBOUR).expect("inside");
    ip(&format!("-n {namespace} addr replace {OTHER}/24 dev lan0")).expect("an address");
    let words = [
        "--keep-in-foreground",
        "--no-ping",
        "--port=0",
        "--interface=lan0",
        "--bind-interfaces",
        "--leasefile-ro",
        "--user=root",
        "--conf-file=/dev/null",
        "--pid-file=",
        "--log-dhcp",
        "--log-facility=-",
        "--dhcp-range=10.88.0.100,10.88.0.120,255.255.255.0,1h",
    ];
    let running = neighbour(program, &words, log);
    until("dnsmasq runs", async || {
        let said = std::fs::read_to_string(log).map_err(|error| error.to_string())?;
        if said.contains("DHCP, IP range") { Ok(()) } else { Err(said) }
    })
    .await;
    running
}

/// A command in the clients' namespace.
pub async fn client(words: &[&str]) -> Output {
    within(&clients().expect("inside"), words).await
}

/// A command in the neighbour's namespace.
pub async fn beside(words: &[&str]) -> Output {
    within(&std::env::var(NEIGHBOUR).expect("inside"), words).await
}

async fn within(namespace: &str, words: &[&str]) -> Output {
    let mut command = tokio::process::Command::new("ip");
    let output = command.args(["netns", "exec", namespace]).args(words).kill_on_drop(true).output();
    output.await.expect("a client can be started")
}

/// What udhcpc tells its script, of the last lease; `None`: nobody answered.
pub async fn udhcpc(dir: &tempfile::TempDir, mac: &str, more: &[&str]) -> Option<String> {
    udhcpc_at("eth0", dir, mac, more).await
}

/// The same at another interface.
pub async fn udhcpc_at(interface: &str, dir: &tempfile::TempDir, mac: &str, more: &[&str]) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let (script, told) = (dir.path().join("udhcpc.sh"), dir.path().join("udhcpc.env"));
    std::fs::remove_file(&told).unwrap_or_default();
    let text = format!("#!/bin/sh\n[ \"$1\" = bound ] && env > {}\nexit 0\n", told.display());
    std::fs::write(&script, text).expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let set = client(&["ip", "link", "set", interface, "address", mac]).await;
    assert!(set.status.success(), "{set:?}");
    let script = script.display().to_string();
    let base = ["busybox", "udhcpc", "-i", interface, "-f", "-q", "-n", "-t", "3", "-T", "1", "-s", &script];
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
