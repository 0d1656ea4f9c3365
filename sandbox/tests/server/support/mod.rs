//! A virtual server run as the program it is, seen from outside: its Redfish, its slots socket, its serial console.

pub mod images;
pub mod redfish;
pub mod slots;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sandbox::guest::{self, Kind};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use redfish::Redfish;
pub use slots::Slots;

/// A boot under emulation on a busy machine.
pub const BOOT: Duration = Duration::from_secs(180);
const SOON: Duration = Duration::from_secs(90);

/// Says why a test does nothing. The test runner counts these lines.
pub fn skip(test: &str, reason: &str) {
    eprintln!("SKIP {test}: {reason}");
}

/// What a test that boots the tiny image lacks on this machine.
pub fn missing_for_boot() -> Option<String> {
    missing(guest::COMMANDS)
}

/// The same for the Debian image.
pub fn missing_for_debian() -> Option<String> {
    missing(guest::COMMANDS).or_else(|| missing(guest::DEBIAN_COMMANDS))
}

fn missing(commands: &[(&str, &str)]) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |command: &str| std::env::split_paths(&path).any(|folder| folder.join(command).is_file());
    let command = sandbox::server::COMMANDS.iter().chain(commands).find(|(command, _)| !has(command));
    let file = sandbox::server::FILES.iter().chain(guest::FILES).find(|(file, _)| !Path::new(file).exists());
    command.or(file).map(|(what, package)| format!("{what} is missing (package {package})"))
}

/// Keeps booting tests from running two at a time, in one test program or in several.
pub fn one_at_a_time() -> File {
    let path = std::env::temp_dir().join("metalplane-booting-tests.lock");
    let file = File::create(&path).expect("create the lock file");
    file.lock().expect("lock the lock file");
    file
}

/// Waits for something to become true.
pub fn wait_for<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One virtual server, ended with the value.
pub struct Server {
    pub folder: TempDir,
    pub redfish: Redfish,
    process: Child,
    /// How much of the console has been waited through.
    seen: usize,
}

impl Server {
    /// Starts a server; `extra` adds to its description.
    pub fn start(personality: &str, extra: impl FnOnce(&Path) -> Value) -> Server {
        Self::start_with(personality, &BTreeMap::new(), extra)
    }

    /// With these variables, for its QEMU.
    pub fn start_with(
        personality: &str,
        environment: &BTreeMap<String, String>,
        extra: impl FnOnce(&Path) -> Value,
    ) -> Server {
        let folder = tempfile::Builder::new().prefix("mp-server-").tempdir().expect("temporary folder");
        let path = folder.path();
        fs::write(path.join("password"), "s3cret\n").expect("write the password");
        let mut config = json!({
            "name": "server-t",
            "serialNumber": "MP-TEST-1",
            "personality": personality,
            "bmc": { "listen": "127.0.0.1:0", "username": "admin", "passwordFile": path.join("password") },
            "slotsSocket": path.join("slots.sock"),
            "stateFolder": path,
            "accelerator": "tcg",
        });
        let extra = extra(path);
        config.as_object_mut().expect("object").extend(extra.as_object().cloned().unwrap_or_default());
        fs::write(path.join("config.json"), config.to_string()).expect("write the description");
        let log = File::create(path.join("server.log")).expect("create the log");
        let process = Command::new(env!("CARGO_BIN_EXE_sandbox"))
            .arg("virtual-server")
            .arg("--config")
            .arg(path.join("config.json"))
            .envs(environment)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start the server");
        let address = wait_for("the server is ready", SOON, || fs::read_to_string(path.join("ready")).ok());
        let redfish = Redfish::new(address.trim(), &path.join("bmc-certificate.pem"));
        Server { folder, redfish, process, seen: 0 }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub fn slots(&self) -> Slots {
        Slots::connect(&self.path("slots.sock"))
    }

    /// Waits for a piece of text on the console, behind what was waited for before.
    pub fn console(&mut self, text: &str, within: Duration) {
        let path = self.path("console.log");
        let from = self.seen;
        let end = wait_for(&format!("'{text}' on the console"), within, || {
            let said = fs::read(&path).unwrap_or_default();
            let said = String::from_utf8_lossy(said.get(from..)?).into_owned();
            Some(from + said.find(text)? + text.len())
        });
        self.seen = end;
    }

    /// Types a line on the console.
    pub fn type_line(&self, line: &str) {
        let mut console = UnixStream::connect(self.path("console.sock")).expect("connect to the console");
        console.write_all(format!("\n{line}\n").as_bytes()).expect("type");
        // The guest's driver has taken what was typed once the line is echoed.
        let path = self.path("console.log");
        // A shell that edits its line puts a space and a return where the line is wider than the console.
        let plain = |text: &str| text.split_whitespace().collect::<String>();
        let line = plain(line);
        let echoed = || plain(&fs::read_to_string(&path).ok()?).contains(&line).then_some(());
        wait_for("the echo of what was typed", SOON, echoed);
    }

    pub fn wait_for_power(&self, state: &str, within: Duration) {
        wait_for(&format!("power {state}"), within, || (self.redfish.power() == state).then_some(()));
    }

    /// Sets the faults of the BMC.
    pub fn faults(&self, faults: &Value) {
        redfish::over_unix_socket(&self.path("faults.sock"), "PUT", "/", &faults.to_string());
    }

    /// The Reset actions that came in, as (kind, status).
    pub fn actions(&self) -> Vec<(String, u64)> {
        let text = fs::read_to_string(self.path("actions.jsonl")).expect("read the actions");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        lines
            .map(|line| (line["action"].as_str().expect("action").to_owned(), line["status"].as_u64().expect("status")))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in ["server.log", "qemu.log", "console.log"] {
                let said = fs::read(self.path(log)).unwrap_or_default();
                let said = String::from_utf8_lossy(&said).into_owned();
                let tail: Vec<&str> = said.lines().rev().take(25).collect();
                eprintln!("--- {log}\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.process.id()).expect("process ids are small"));
        // It may have ended by itself; the wait tells.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.process.wait();
    }
}

/// A copy of a guest image that may be written to.
pub fn disk(kind: Kind, to: &Path) {
    let image = guest::image(kind, &sandbox::args::cache_folder()).expect("the guest image");
    let status = Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(image).arg(to).status();
    assert!(status.expect("start cp").success(), "copy the image");
}

/// A seed disk: identity, and one interface with one static address.
pub fn seed(to: &Path, instance: &str, mac: &str, address: &str) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).expect("write a file of the seed");
    write("meta-data", format!("instance-id: {instance}\nlocal-hostname: guest-{instance}\n"));
    write("user-data", "#cloud-config\n".to_owned());
    let interface = format!("    match:\n      macaddress: \"{mac}\"\n    addresses:\n    - {address}\n");
    write("network-config", format!("version: 2\nethernets:\n  eth0:\n{interface}"));
    File::create(to).expect("create the seed").set_len(1 << 20).expect("size of the seed");
    let run = |program: &str, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).stdout(Stdio::null()).status().expect("start a command");
        assert!(status.success(), "{program} failed");
    };
    let image = to.display().to_string();
    run("mkfs.vfat", &["-n", "CIDATA", &image]);
    for name in ["meta-data", "user-data", "network-config"] {
        run("mcopy", &["-i", &image, &folder.path().join(name).display().to_string(), "::/"]);
    }
}

/// A network namespace that stands for the DPU's, with the script that enters it.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// None without the right to make one.
    pub fn make(enter: &Path) -> Option<Namespace> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("mp-vs-test-{}-{number}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).stderr(Stdio::null()).status().ok()?.success();
        if !made {
            return None;
        }
        fs::write(enter, format!("#!/bin/sh\nexec ip netns exec {name} \"$@\"\n")).expect("write the script");
        fs::set_permissions(enter, fs::Permissions::from_mode(0o755)).expect("make the script a program");
        Some(Namespace { name })
    }

    pub fn run(&self, command: &str) -> bool {
        let mut words = command.split(' ');
        let mut process = Command::new("ip");
        process.args(["netns", "exec", &self.name]).args(words.by_ref());
        process.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Left behind it costs nothing but a name.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}
