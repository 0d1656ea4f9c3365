//! What runs on a DPU runs on Arm, the processor of most of them, and on arm64 nodes: unit and contract tests of it, built for arm64 and
//! run by QEMU's emulation of a process; the system's programs of the CSI driver's image; then, of the release, the installer on an arm64 server that QEMU emulates whole, and a site whose
//! controller and agents are arm64 programs, to the ping of a machine that boots.
//!
//! What an emulated process hides: the page size (the machine's own), alignment that the processor of this machine does not ask for, and
//! the order of writes between threads.

use super::{Bench, Judge, Verdict, Word};
use crate::cross::{Toolchain, with_libraries};
use crate::image;
use crate::programs::{self, Release};
use crate::test::{self, Case, Foreign, Outcome};
use anyhow::{Context, Result, ensure};
use sandbox::architecture::Architecture;
use sandbox::preflight;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) const JUDGE: Judge = Judge { name: "arm64", run };

/// What is in the images of a node, and what these stand on.
const PACKAGES: [&str; 12] = [
    "dpu-agent",
    "csi",
    "controller",
    "cni",
    "imaging",
    "bluefield",
    "file",
    "linux-sys",
    "ovsdb",
    "pod-devices",
    "spdk",
    "trust",
];
/// Tests that an emulated process cannot do, and why.
const LEFT_OUT: [(&str, &str); 4] = [
    ("the_agent_and_a_real_api_server", "its sandbox is of this machine's architecture"),
    ("clones_restores_grows_and_serves_pods_in_a_real_cluster", "its sandbox is of this machine's architecture"),
    ("a_pool_works_on_btrfs", "an emulated process is not told that a program, mkfs.btrfs, is missing"),
    ("veth_pairs_keep_the_ports_promises", "an emulated process has no generic netlink, by which ethtool is asked"),
];
/// What is started as it ships: by a site, and by a server without a DPU.
const PROGRAMS: [&str; 3] = ["controller", "dpu-agent", "installer"];
/// Of a process, and of a machine.
const EMULATOR: &str = "qemu-aarch64-static";
const MACHINE: &str = "qemu-system-aarch64";
/// The test by which an arm64 server is installed.
const INSTALLS: &str = "a_server_of_arm64";

fn run(bench: &Bench) -> Result<Verdict> {
    let architecture = Architecture::Arm64;
    ensure!(Architecture::here() != architecture, "this machine is arm64: `make test` runs all of it, not emulated");
    let toolchain = Toolchain::of(bench.root, architecture)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("a runtime")?;
    let found = runtime.block_on(preflight::unpack(&[(EMULATOR, "qemu-user-static"), (MACHINE, "qemu-system-arm")]))?;
    let path = |name: &str| found.find(name).with_context(|| format!("{name} is missing"));
    let (emulator, machine) = (path(EMULATOR)?, with_libraries(bench.root, &found, &path(MACHINE)?, "")?);
    let left_out = LEFT_OUT.map(|(name, _)| name);
    let foreign = Foreign {
        target: architecture.target(),
        environment: &toolchain.environment,
        emulator: &emulator,
        left_out: &left_out,
    };
    let mut report = format!("{EMULATOR}, {}\n", architecture.target());
    let mut counted = Counted::default();
    for (name, why) in LEFT_OUT {
        counted.skipped.entry(why.to_owned()).or_default().push(name.to_owned());
    }
    for case in test::foreign(bench.root, &PACKAGES, &foreign)? {
        counted.add(&case, &mut report)?;
    }
    let release = Release::of(bench.root)?;
    let built = programs::release(bench.root, &PROGRAMS, &release, architecture)?;
    let variables =
        [("ARM64_INSTALLER", &built["installer"]), ("ARM64_OBJCOPY", &toolchain.objcopy), ("ARM64_QEMU", &machine)]
            .map(|(name, path)| (name, path.display().to_string()));
    for case in test::some_of_binary_with(bench.root, ("installer", "installer"), Some(INSTALLS), &variables)? {
        counted.add(&case, &mut report)?;
    }
    for program in image::lay_out_node_programs(architecture, &bench.folder.join("csi"))? {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        counted.look(&format!("{name} of the image of csi starts"), starts(bench, &emulator, &program), &mut report)?;
    }
    let name = "a machine boots and answers by arm64 programs";
    counted.look(name, site(bench, &emulator, &built), &mut report)?;
    fs::write(bench.folder.join("report"), report).context("write the report")?;
    let word = if counted.wrong.is_empty() { Word::Pass } else { Word::Fail };
    let skipped = counted.skipped.iter().map(|(reason, names)| format!("not run: {}: {reason}", names.join(", ")));
    let reason = counted.wrong.into_iter().chain(skipped).collect::<Vec<_>>().join("; ");
    Ok(Verdict { word, done: counted.done, all: counted.all, reason })
}

#[derive(Default)]
struct Counted {
    done: usize,
    all: usize,
    wrong: Vec<String>,
    /// By the reason.
    skipped: BTreeMap<String, Vec<String>>,
}

impl Counted {
    fn look(&mut self, name: &str, found: Result<()>, report: &mut String) -> Result<()> {
        self.all += 1;
        match found {
            Ok(()) => {
                self.done += 1;
                writeln!(report, "{name}: passed")?;
            }
            Err(error) => {
                writeln!(report, "{name}: failed: {error:#}")?;
                self.wrong.push(format!("{name}: {error:#}"));
            }
        }
        Ok(())
    }

    fn add(&mut self, case: &Case, report: &mut String) -> Result<()> {
        let outcome = match &case.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Skipped(why) => format!("not run: {why}"),
            Outcome::Failed => "failed".to_owned(),
        };
        writeln!(report, "{}: {outcome}", case.name)?;
        self.all += usize::from(!matches!(case.outcome, Outcome::Skipped(_)));
        match &case.outcome {
            Outcome::Passed => self.done += 1,
            Outcome::Failed => self.wrong.push(case.name.clone()),
            Outcome::Skipped(why) => self.skipped.entry(why.clone()).or_default().push(case.name.clone()),
        }
        write!(report, "{}", test::failures(std::slice::from_ref(case)))?;
        Ok(())
    }
}

/// With the loader and the libraries that are in the image.
fn starts(bench: &Bench, emulator: &Path, program: &Path) -> Result<()> {
    let mut command = Command::new(emulator);
    let done = command.arg("-L").arg(bench.folder.join("csi")).arg(program).arg("-V").output();
    let done = done.with_context(|| format!("start {command:?}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    // resize2fs tells its version before it finds that it has no such option.
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let version = said.strip_prefix(&*name).and_then(|rest| rest.strip_prefix(' '));
    let tells = version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()));
    ensure!(done.status.success() || tells, "{}: {}", done.status, said.trim());
    Ok(())
}

/// The machine of the demo, by processes.
fn site(bench: &Bench, emulator: &Path, built: &BTreeMap<&'static str, PathBuf>) -> Result<()> {
    let folder = bench.folder.join("programs");
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    for (name, program) in built {
        let link = folder.join(name);
        symlink(program, &link).with_context(|| format!("make {}", link.display()))?;
    }
    // Of the CSI driver, which stays this machine's: kubelet and containerd are, too.
    image::run(bench.root, &image::Options::default())?;
    let demo = programs::build(bench.root, &["demo"])?["demo"].clone();
    let log = bench.folder.join("demo.log");
    let output = File::create(&log).with_context(|| format!("create {}", log.display()))?;
    let mut command = test::as_root_with(&demo, &[("EMULATOR", emulator), ("EMULATED", &folder)]);
    command.args(["run", "--agents", "process", "--part", "machine"]);
    command.stdin(Stdio::null()).stdout(output.try_clone().context("one log for both")?).stderr(output);
    let status = command.status().with_context(|| format!("start {command:?}"))?;
    ensure!(status.success(), "the demo by arm64 programs: {status}: {}", log.display());
    Ok(())
}
