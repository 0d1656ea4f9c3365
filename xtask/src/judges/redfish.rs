//! Redfish, both ways round: DMTF's service validator on the BMC of a virtual server, once for each personality, and
//! our own client on the emulator of OpenStack's sushy-tools.
//!
//! The validator gets its schemas from the crate `nv-redfish-schema`, which the Redfish driver is generated from: a
//! resource whose schema is not there is a warning of the validator, and any warning is a fail. Properties that the BMC
//! does not have and need not have are the validator's "not tested"; they are told, not counted.

use super::{Bench, Judge, Verdict, Word};
use crate::programs;
use crate::test::{self, Outcome};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const JUDGE: Judge = Judge { name: "redfish", run };

/// Every personality, and the way in that the validator takes.
const SERVERS: [(&str, &str); 4] =
    [("standby", "Basic"), ("shared-power", "Session"), ("forgets-overrides", "Basic"), ("local-disk", "Session")];
const USER: &str = "admin";
/// Of a server that lives for seconds on the loopback interface: it may stand in the command line that is kept.
const PASSWORD: &str = "only-for-the-judge";
const READY_WITHIN: Duration = Duration::from_secs(120);
const SCHEMA_CRATE: &str = "nv-redfish-schema";

fn run(bench: &Bench) -> Result<Verdict> {
    let (validator, _) = match (python(bench.root, "redfish-service-validator"), python(bench.root, "sushy-tools")) {
        (Ok(validator), Ok(sushy)) => (validator, sushy),
        (Err(reason), _) | (_, Err(reason)) => {
            return Ok(Verdict { word: Word::Skip, done: 0, all: 0, reason: format!("{reason:#}") });
        }
    };
    let schemas = schemas(bench.root)?;
    let sandbox = &programs::build(bench.root, &["sandbox"])?["sandbox"];
    let mut total = Counts::default();
    let mut commands = String::new();
    let mut wrong = Vec::new();
    for (personality, way_in) in SERVERS {
        let server = Server::start(sandbox, bench, personality)?;
        let mut command = Command::new(validator.join("rf_service_validator"));
        command.args(["--rhost", &server.address, "--user", USER, "--password", PASSWORD, "--authtype", way_in]);
        command.arg("--skipschema").arg("--schema_directory").arg(&schemas);
        command.arg("--logdir").arg(bench.folder.join(personality));
        writeln!(commands, "{command:?}").context("note the command line")?;
        let done = command.stdin(Stdio::null()).output().context("start the validator")?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let path = bench.folder.join(format!("{personality}.out"));
        fs::write(&path, [done.stdout.as_slice(), &done.stderr].concat())
            .with_context(|| format!("write {}", path.display()))?;
        let counts = Counts::read(&said).with_context(|| format!("{personality}: the validator: {}", done.status))?;
        if counts.warned + counts.failed > 0 || !done.status.success() {
            wrong.push(format!("{personality}: {} warnings, {} errors", counts.warned, counts.failed));
        }
        total.add(&counts);
    }
    let cases = test::plain_binary(bench.root, "redfish", "sushy_tools")?;
    commands.push_str("cargo test --package redfish --test sushy_tools\n");
    fs::write(bench.folder.join("command"), commands).context("write the command lines")?;
    let passed = cases.iter().filter(|case| case.outcome == Outcome::Passed).count();
    for case in &cases {
        match &case.outcome {
            Outcome::Passed => {}
            Outcome::Failed => wrong.push(format!("failed: {}", case.name)),
            // Its programs are there: it has to run.
            Outcome::Skipped(reason) => wrong.push(format!("not run: {}: {reason}", case.name)),
        }
    }
    let all = total.passed + total.warned + total.failed + cases.len();
    let word = if wrong.is_empty() { Word::Pass } else { Word::Fail };
    wrong.push(format!("not tested: {} optional properties that the BMC does not have", total.absent));
    Ok(Verdict { word, done: total.passed + passed, all, reason: wrong.join("; ") })
}

/// The folder of a Python package's programs.
fn python(root: &Path, name: &str) -> Result<PathBuf> {
    let script = root.join("tools/python.sh");
    let list = root.join("tools/python").join(format!("{name}.txt"));
    let done = Command::new(script).arg(list).output().context("start tools/python.sh")?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        bail!("no {name}: {}", said.lines().last().unwrap_or_default());
    }
    Ok(Path::new(String::from_utf8_lossy(&done.stdout).trim()).join("bin"))
}

/// The CSDL files, where cargo keeps the locked version of their crate.
fn schemas(root: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["metadata", "--format-version", "1", "--locked"]);
    let done = cargo.stderr(Stdio::inherit()).output().context("start cargo metadata")?;
    ensure!(done.status.success(), "cargo metadata: {} (its output is above)", done.status);
    let metadata: Value = serde_json::from_slice(&done.stdout).context("read what cargo metadata printed")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists packages")?;
    let found = packages.iter().find(|package| package["name"] == SCHEMA_CRATE);
    let manifest = found.and_then(|package| package["manifest_path"].as_str());
    let manifest = manifest.with_context(|| format!("nothing depends on the crate {SCHEMA_CRATE} any more"))?;
    let folder = Path::new(manifest).with_file_name("redfish-csdl").join("csdl");
    ensure!(folder.is_dir(), "the crate {SCHEMA_CRATE} has no folder {}", folder.display());
    Ok(folder)
}

/// A virtual server without a cluster, ended with the value.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(sandbox: &Path, bench: &Bench, personality: &str) -> Result<Self> {
        let folder = bench.folder.join(format!("{personality}.server"));
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let file = |name: &str| folder.join(name);
        let config = json!({
            "name": personality,
            "serialNumber": "MP-JUDGE-1",
            "personality": personality,
            "bmc": { "listen": "127.0.0.1:0", "username": USER, "passwordFile": file("password") },
            "dpu": { "supervisorSocket": file("supervisor.sock"), "name": "dpu-1" },
            "localDisk": file("local.raw"),
            "slotsSocket": file("slots.sock"),
            "stateFolder": folder,
            "accelerator": "tcg",
        });
        fs::write(file("password"), PASSWORD).context("write the BMC's password")?;
        fs::write(file("config.json"), config.to_string()).context("write the server's description")?;
        let log = File::create(file("log")).context("create the server's log")?;
        let mut command = Command::new(sandbox);
        command.args(["virtual-server", "--config"]).arg(file("config.json"));
        let process = command.stdin(Stdio::null()).stderr(log).spawn().context("start the virtual server")?;
        let mut server = Self { process, address: String::new() };
        let deadline = Instant::now() + READY_WITHIN;
        while server.address.is_empty() {
            if let Some(status) = server.process.try_wait().context("look at the virtual server")? {
                bail!("{personality}: the virtual server ended: {status}; see {}", file("log").display());
            }
            ensure!(Instant::now() < deadline, "{personality}: not ready; see {}", file("log").display());
            thread::sleep(Duration::from_millis(20));
            let written = fs::read_to_string(file("ready")).unwrap_or_default();
            // The last thing written is the end of the line.
            server.address = written.strip_suffix('\n').unwrap_or_default().to_owned();
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        use nix::sys::signal::{Signal, kill};
        use nix::unistd::Pid;
        if let Ok(pid) = i32::try_from(self.process.id()) {
            // An error says that it is gone already; the wait below sees it.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.process.wait();
    }
}

/// The validator's own summary.
#[derive(Debug, Default, Eq, PartialEq)]
struct Counts {
    passed: usize,
    warned: usize,
    failed: usize,
    absent: usize,
}

impl Counts {
    fn read(said: &str) -> Result<Self> {
        let mut lines = said.lines().skip_while(|line| !line.contains("|     PASS     |"));
        let row = lines.nth(2).context("it printed no summary")?;
        let cells: Vec<usize> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        let [passed, warned, failed, absent] = cells[..] else { bail!("its summary is {row:?}") };
        ensure!(passed > 0, "it found nothing to look at");
        Ok(Self { passed, warned, failed, absent })
    }

    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.warned += other.warned;
        self.failed += other.failed;
        self.absent += other.absent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_read() {
        let said = "Validating /redfish/v1/...\n  - Pass: 15, Warn: 0, Fail: 0, Skip: 33\n\n\
            +--------------+--------------+--------------+--------------+\n\
            |     PASS     |     WARN     |     FAIL     |  NOT TESTED  |\n\
            +--------------+--------------+--------------+--------------+\n\
            |     190      |      2       |      1       |     329      |\n";
        let read = Counts::read(said).expect("read");
        assert_eq!(read, Counts { passed: 190, warned: 2, failed: 1, absent: 329 });
        assert!(Counts::read("Traceback (most recent call last):").is_err());
        assert!(Counts::read(&said.replace("190", " 0 ")).is_err(), "an empty service is no pass");
    }
}
