//! Builds programs of the workspace and tells where they are.
//!
//! What runs in tests, demo and sandbox has the same profile and flags as the tests; what ships has the profile `release`.

use crate::cross::Toolchain;
use anyhow::{Context, Result, bail, ensure};
use sandbox::architecture::Architecture;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Behind the commit of a checkout whose files differ from it.
const DIRTY: &str = ".dirty";
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Programs by their names.
pub(crate) fn build(root: &Path, names: &[&'static str]) -> Result<BTreeMap<&'static str, PathBuf>> {
    let mut cargo = Command::new("cargo");
    // The whole workspace: a choice of packages has other features, and builds the dependencies once more.
    cargo.current_dir(root).args(["build", "--workspace", "--bins"]);
    built(cargo, names)
}

/// The packages of what ships, always all of them: which features a library is built with, and so the bytes of a program, must not
/// hang on what else was asked for.
const RELEASED: [&str; 7] = ["boot", "bmctl", "controller", "csi", "dpu-agent", "installer", "pause"];
/// The CNI plugin's package, program and profile: it is read from the disk for each pod, and waits for the agent most of its time.
const PLUGIN: (&str, &str, &str) = ("cni", "metalplane", "plugin");

/// The package that has a program.
pub(crate) fn package(program: &str) -> &str {
    if program == PLUGIN.1 { PLUGIN.0 } else { program }
}

/// The same of what ships: of these packages alone, so that nothing that only a test asks of a library is in it, with the commit in
/// each program, and with no path of the machine that builds it.
pub(crate) fn release(
    root: &Path,
    names: &[&'static str],
    release: &Release,
    architecture: Architecture,
) -> Result<BTreeMap<&'static str, PathBuf>> {
    let mut cargo = optimised(root, release, architecture, RELEASE)?;
    cargo.args(RELEASED.iter().flat_map(|name| ["--package", name]));
    let (plugin, others): (Vec<_>, Vec<_>) = names.iter().copied().partition(|name| *name == PLUGIN.1);
    let mut programs = if others.is_empty() { BTreeMap::new() } else { built(cargo, &others)? };
    if !plugin.is_empty() {
        programs.insert(PLUGIN.1, released_plugin(root, release, architecture)?);
    }
    Ok(programs)
}

fn released_plugin(root: &Path, release: &Release, architecture: Architecture) -> Result<PathBuf> {
    let mut cargo = optimised(root, release, architecture, PLUGIN.2)?;
    cargo.args(["--package", PLUGIN.0]);
    built(cargo, &[PLUGIN.1])?.remove(PLUGIN.1).context("the program was built")
}

/// The CNI plugin, as it ships.
pub(crate) fn plugin(root: &Path) -> Result<PathBuf> {
    released_plugin(root, &Release::of(root)?, Architecture::here())
}

/// The program of the benches with the controller in it, as what ships is built.
pub(crate) fn bench(root: &Path) -> Result<PathBuf> {
    let mut cargo = optimised(root, &Release::of(root)?, Architecture::here(), RELEASE)?;
    cargo.args(["--package", "benches"]);
    built(cargo, &["bench"])?.remove("bench").context("the program was built")
}

/// The controller alone, as what ships is built: it is another program's child while it is measured.
pub(crate) fn controller(root: &Path) -> Result<PathBuf> {
    let mut cargo = optimised(root, &Release::of(root)?, Architecture::here(), RELEASE)?;
    cargo.args(["--package", "controller"]);
    built(cargo, &["controller"])?.remove("controller").context("the program was built")
}

/// The boot service and the clients that load it, as what ships is built: one is measured, and the others must not be what is slow.
pub(crate) fn boot(root: &Path) -> Result<BTreeMap<&'static str, PathBuf>> {
    let mut cargo = optimised(root, &Release::of(root)?, Architecture::here(), RELEASE)?;
    cargo.args(["--package", "boot", "--package", "boot-load"]);
    built(cargo, &["boot", "boot-load"])
}

const RELEASE: &str = "release";

fn optimised(root: &Path, release: &Release, architecture: Architecture, profile: &str) -> Result<Command> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).env("METALPLANE_VERSION", release.version());
    cargo.envs(Toolchain::of(root, architecture)?.environment);
    // Added to those of .cargo/config.toml; RUSTFLAGS would take their place.
    let flags: Vec<String> = moved(root)?.iter().map(|flag| format!("'{flag}'")).collect();
    let target = r#"target.'cfg(all(target_os = "linux", target_env = "gnu"))'.rustflags"#;
    cargo.arg("--config").arg(format!("{target} = [{}]", flags.join(", ")));
    cargo.args(["build", "--profile", profile, "--bins", "--target", architecture.target()]);
    Ok(cargo)
}

/// Flags by which no path of this machine is in a program.
pub(crate) fn moved(root: &Path) -> Result<Vec<String>> {
    let moved = [(root.to_owned(), "/metalplane"), (cargo_home()?, "/cargo")];
    Ok(moved.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect())
}

/// Where cargo keeps the sources of dependencies.
fn cargo_home() -> Result<PathBuf> {
    let of_user = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(of_user).context("neither CARGO_HOME nor HOME is set")
}

/// The sources of a release.
pub(crate) struct Release {
    /// Of the checkout, with `.dirty` behind it where files differ from it.
    pub(crate) commit: String,
}

impl Release {
    pub(crate) fn of(root: &Path) -> Result<Self> {
        let git = |arguments: &[&str]| -> Result<String> {
            let done = Command::new("git").current_dir(root).args(arguments).output().context("start git")?;
            let error = String::from_utf8_lossy(&done.stderr);
            ensure!(done.status.success(), "git {}: {}: {}", arguments.join(" "), done.status, error.trim());
            Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
        };
        let dirty = if git(&["status", "--porcelain"])?.is_empty() { "" } else { DIRTY };
        Ok(Self { commit: git(&["rev-parse", "--short=12", "HEAD"])? + dirty })
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.commit.ends_with(DIRTY)
    }

    /// What a program says it is (`version::VERSION`).
    pub(crate) fn version(&self) -> String {
        format!("{VERSION}+{}", self.commit)
    }

    /// The OCI image specification's, "Pre-Defined Annotation Keys".
    pub(crate) fn labels(&self) -> [(&str, &str); 3] {
        [
            ("org.opencontainers.image.version", VERSION),
            ("org.opencontainers.image.revision", &self.commit),
            ("org.opencontainers.image.licenses", env!("CARGO_PKG_LICENSE")),
        ]
    }
}

pub(crate) fn built(mut cargo: Command, names: &[&'static str]) -> Result<BTreeMap<&'static str, PathBuf>> {
    cargo.arg("--message-format=json-render-diagnostics");
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("start cargo build")?;
    let mut programs = BTreeMap::new();
    for line in BufReader::new(child.stdout.take().context("cargo's output is a pipe")?).lines() {
        let message: Value = serde_json::from_str(&line.context("read cargo's messages")?)?;
        let built = names.iter().find(|name| message["target"]["name"] == **name);
        if let (Some(name), Some(program)) = (built, message["executable"].as_str()) {
            programs.insert(*name, PathBuf::from(program));
        }
    }
    let status = child.wait().context("wait for cargo build")?;
    ensure!(status.success(), "cargo build: {status} (its output is above)");
    match names.iter().find(|name| !programs.contains_key(*name)) {
        Some(name) => bail!("the package {name} has no program {name}"),
        None => Ok(programs),
    }
}
