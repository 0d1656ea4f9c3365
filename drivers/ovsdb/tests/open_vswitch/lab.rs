//! A real Open vSwitch with the userspace datapath, in a network namespace of its own, and guests in others.
//!
//! The namespace belongs to the test's thread and to the processes that the thread starts: nothing has a name that could
//! clash, and all is gone when the test ends, however it ends.

use crate::pki::{CLIENT, Pki, SERVER, options};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ovsdb::client::Limits;
use ovsdb::{Remotes, Schedule, SessionConfig, TlsFiles};
use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Runs a test on a thread with a fresh network namespace and a runtime of that thread alone; skips where it cannot.
pub fn in_namespace<F: Future<Output = ()>>(name: &'static str, test: impl FnOnce() -> F + Send + 'static) {
    if let Some(reason) = missing() {
        eprintln!("SKIP {name}: {reason}");
        return;
    }
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// What this machine lacks.
pub fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("needs root for network namespaces".to_owned());
    }
    let programs =
        ["ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovsdb-client", "ovsdb-tool", "ip", "nsenter", "setpriv"];
    let absent = programs.into_iter().find(|program| found(program).is_none())?;
    Some(format!("{absent} is not installed"))
}

/// What of OVN this machine lacks.
pub fn missing_of_ovn() -> Option<String> {
    let programs = ["ovn-nbctl", "ovn-sbctl", "ovn-northd", "ovn-trace"];
    let absent = programs.into_iter().find(|program| found(program).is_none());
    let schemas = ["ovn/ovn-nb.ovsschema", "ovn/ovn-sb.ovsschema"];
    let absent = absent.or_else(|| schemas.into_iter().find(|schema| shared(schema).is_none()))?;
    Some(format!("{absent} is not installed (packages ovn-central, ovn-common)"))
}

/// Says so, where a test needs OVN and there is none.
pub fn skipped(name: &str) -> bool {
    let missing = missing_of_ovn();
    missing.iter().for_each(|reason| eprintln!("SKIP {name}: {reason}"));
    missing.is_some()
}

/// What is started by this name.
pub fn found(program: &str) -> Option<PathBuf> {
    folders().map(|folder| folder.join(program)).find(|path| path.exists())
}

fn folders() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect::<Vec<_>>().into_iter()
}

/// A file that a package has below `share`; Open vSwitch may be unpacked somewhere instead of installed.
pub fn shared(file: &str) -> Option<PathBuf> {
    folders().filter_map(|folder| Some(folder.parent()?.join("share").join(file))).find(|file| file.exists())
}

pub fn switch_schema() -> PathBuf {
    shared("openvswitch/vswitch.ovsschema").expect("ovsdb-server comes with its schema")
}

/// Calls `ready` until it is true or the deadline has passed.
pub async fn eventually(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !ready() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect(program);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Ends with this process, and with the thread that started it.
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    pub fn start(directory: &Path, program: &str, arguments: &[String]) -> Self {
        let log = directory.join(format!("{program}.out"));
        let output = fs::File::create(&log).expect("a log file");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", program])
            .args(arguments)
            .envs(
                ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "OVN_RUNDIR"].map(|name| (name, directory)),
            )
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output)
            .spawn()
            .expect(program);
        Self { child, log }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("our own child runs");
    }

    fn stop(&mut self) {
        // An error means that it has ended already.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGKILL);
        self.child.wait().expect("our own child");
    }

    fn assert_running(&mut self) {
        if let Some(status) = self.child.try_wait().expect("our own child") {
            panic!("ended with {status}: {}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

pub struct OpenVSwitchLab {
    directory: TempDir,
    /// Where it listens by TLS too: the server's files and a client's.
    tls: Option<(TlsFiles, TlsFiles, Pki)>,
    // Dropped in this order: the switch before its database.
    vswitchd: Option<Daemon>,
    server: Option<Daemon>,
}

impl OpenVSwitchLab {
    /// A database server without a switch daemon, on the Open vSwitch schema.
    pub async fn database() -> Self {
        Self::database_of(&switch_schema()).await
    }

    pub async fn database_of(schema: &Path) -> Self {
        // Not below a long TMPDIR: the path of a Unix socket has at most 107 bytes.
        let directory = tempfile::Builder::new().prefix("ovs").tempdir_in("/var/tmp").expect("a directory");
        let mut lab = Self { directory, tls: None, vswitchd: None, server: None };
        run("ovsdb-tool", &["create", &lab.path("conf.db"), &schema.to_string_lossy()]);
        lab.start_server().await;
        lab
    }

    /// One of OVN's two databases, named by its schema, as its own tool leaves it at first.
    pub async fn ovn(database: &str) -> Self {
        let short = if database == ovsdb::chassis::DATABASE { "sb" } else { "nb" };
        let schema = shared(&format!("ovn/ovn-{short}.ovsschema")).expect("looked for by missing_of_ovn");
        let lab = Self::database_of(&schema).await;
        lab.tool(&format!("ovn-{short}ctl"), &["init"]);
        lab
    }

    /// The same, reached by TLS alone from then on.
    pub async fn listen_by_tls(&mut self) {
        run("ip", &["link", "set", "lo", "up"]);
        let pki = Pki::new("ovn");
        self.tls = Some((pki.sign("server", SERVER), pki.sign("client", CLIENT), pki));
        self.stop_server();
        self.start_server().await;
    }

    /// With a bridge `br-int`.
    pub async fn switch() -> Self {
        run("ip", &["link", "set", "lo", "up"]);
        let mut lab = Self::database().await;
        lab.vsctl(&["--no-wait", "init"]);
        let mut arguments = lab.own_files("ovs-vswitchd");
        arguments.push(format!("unix:{}", lab.path("db.sock")));
        lab.vswitchd = Some(Daemon::start(lab.directory.path(), "ovs-vswitchd", &arguments));
        lab.vsctl(&["--timeout=90", "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev"]);
        lab.vswitchd.as_mut().expect("just started").assert_running();
        lab
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().expect("a plain path").to_owned()
    }

    pub fn own_files(&self, program: &str) -> Vec<String> {
        ["pidfile", "unixctl", "log-file"]
            .map(|option| format!("--{option}={}", self.path(&format!("{program}.{option}"))))
            .to_vec()
    }

    pub async fn start_server(&mut self) {
        let mut arguments = self.own_files("ovsdb-server");
        arguments.extend([format!("--remote=punix:{}", self.path("db.sock")), self.path("conf.db")]);
        if let Some((server, _, _)) = &self.tls {
            arguments.extend([options(server), vec!["--remote=pssl:6641:127.0.0.1".to_owned()]].concat());
        }
        let mut server = Daemon::start(self.directory.path(), "ovsdb-server", &arguments);
        let socket = self.path("db.sock");
        eventually("ovsdb-server listens", || {
            server.assert_running();
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        })
        .await;
        self.server = Some(server);
    }

    /// Killed, not asked to end: nothing is said to clients.
    pub fn stop_server(&mut self) {
        self.server = None;
    }

    pub fn vsctl(&self, arguments: &[&str]) -> String {
        self.tool("ovs-vsctl", arguments)
    }

    /// A program that takes the database as `--db`.
    pub fn tool(&self, program: &str, arguments: &[&str]) -> String {
        let database = format!("--db=unix:{}", self.path("db.sock"));
        run(program, &[&[database.as_str()], arguments].concat())
    }

    pub fn config(&self, monitored: BTreeMap<String, Vec<String>>) -> SessionConfig {
        let mut config = config(&format!("unix:{}", self.path("db.sock")), monitored);
        if let Some((_, client, _)) = &self.tls {
            let address = "ssl:127.0.0.1:6641".parse().expect("an address");
            config.remotes = Remotes::new(address, Some(client.clone())).expect("with files");
        }
        config
    }
}

pub fn config(address: &str, monitored: BTreeMap<String, Vec<String>>) -> SessionConfig {
    let second = Duration::from_secs(1);
    SessionConfig {
        remotes: Remotes::new(address.parse().expect("addresses"), None).expect("no TLS"),
        database: ovsdb::switch::DATABASE.to_owned(),
        monitored,
        limits: Limits { connect: second, call: 10 * second, probe: 5 * second },
        schedule: Schedule::new(vec![Duration::from_millis(20)]),
    }
}

/// A guest stand-in: a network namespace whose `eth0` is the other end of a device here.
pub struct Guest {
    holder: Child,
}

impl Guest {
    /// The device exists and is up; its carrier is down until the guest starts.
    pub fn behind(device: &str) -> Self {
        let mut holder = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process to hold the namespace");
        let mut ready = [0; 6];
        holder.stdout.as_mut().expect("piped").read_exact(&mut ready).expect("the namespace is there");
        let guest = Self { holder };
        let pid = guest.holder.id().to_string();
        run("ip", &["link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", &pid]);
        run("ip", &["link", "set", device, "up"]);
        guest
    }

    pub fn run(&self, command: &[&str]) -> String {
        let pid = self.holder.id().to_string();
        run("nsenter", &[&["--net", "--target", &pid], command].concat())
    }

    pub fn start(&self, mac: &str, address: std::net::IpAddr) {
        self.run(&["ip", "link", "set", "eth0", "address", mac]);
        let (address, flags) = match address {
            std::net::IpAddr::V4(address) => (format!("{address}/24"), [].as_slice()),
            std::net::IpAddr::V6(address) => (format!("{address}/64"), ["nodad"].as_slice()),
        };
        self.run(&["ip", "link", "set", "eth0", "up"]);
        self.run(&[&["ip", "address", "replace", &address, "dev", "eth0"], flags].concat());
    }

    pub fn stop(&self) {
        self.run(&["ip", "link", "set", "eth0", "down"]);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
