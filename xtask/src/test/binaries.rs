//! Builds every test binary and tells where they are.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The package with the end-to-end tests, which come last.
const END_TO_END: &str = "tests";

/// Tests that only compute: no process, socket or clock of this machine is part of them (the simulation's time is paused). They
/// run beside all others, on what processor time those leave.
const COMPUTE: [(&str, &str); 4] =
    [("planner", "unit"), ("executor", "machines"), ("executor", "schedules"), (END_TO_END, "simulation")];

/// Tests that take turns on what they share: all are started at once, so that nothing stands idle while one that would use it is
/// not there yet.
const TAKE_TURNS: [(&str, &str); 1] = [(END_TO_END, "end_to_end")];

#[derive(Debug, Eq, PartialEq)]
pub(super) struct Binary {
    pub(super) package: String,
    /// `unit`, or the name of the file below tests/.
    pub(super) target: String,
    pub(super) program: PathBuf,
    /// The package's folder: where cargo would start it.
    pub(super) folder: PathBuf,
    /// Programs of the same package, by the variable under which cargo tells a test their path.
    pub(super) programs: BTreeMap<String, PathBuf>,
    /// What runs programs of an architecture that is not this machine's.
    pub(super) emulator: Option<PathBuf>,
    /// Tests that are not run.
    pub(super) left_out: Vec<String>,
}

/// Another architecture than this machine's.
pub(crate) struct Foreign<'a> {
    /// Rust's.
    pub(crate) target: &'a str,
    /// What cargo has to be told to build for it.
    pub(crate) environment: &'a BTreeMap<String, String>,
    pub(crate) emulator: &'a Path,
    /// Tests that an emulated process cannot do: they are not run.
    pub(crate) left_out: &'a [&'a str],
}

impl Binary {
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.package, self.target)
    }

    pub(super) fn is_end_to_end(&self) -> bool {
        self.package == END_TO_END
    }

    /// At the same time.
    pub(super) fn threads(&self, tests: usize) -> usize {
        match TAKE_TURNS.contains(&(self.package.as_str(), self.target.as_str())) {
            true => tests,
            false => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    pub(super) fn only_computes(&self) -> bool {
        COMPUTE.contains(&(self.package.as_str(), self.target.as_str()))
    }
}

/// Those that cargo understands by `which`.
pub(super) fn build(root: &Path, which: &[&str]) -> Result<Vec<Binary>> {
    let cargo = Command::new("cargo");
    built(root, cargo, which)
}

/// The same for another architecture.
pub(super) fn foreign(root: &Path, which: &[&str], foreign: &Foreign<'_>) -> Result<Vec<Binary>> {
    let mut cargo = Command::new("cargo");
    cargo.envs(foreign.environment);
    let mut binaries = built(root, cargo, &[which, &["--target", foreign.target]].concat())?;
    for binary in &mut binaries {
        binary.emulator = Some(foreign.emulator.to_owned());
        binary.left_out = foreign.left_out.iter().map(|name| (*name).to_owned()).collect();
    }
    Ok(binaries)
}

fn built(root: &Path, mut cargo: Command, which: &[&str]) -> Result<Vec<Binary>> {
    eprintln!("building the tests");
    cargo.current_dir(root).args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    let mut child = cargo.args(which).stdout(Stdio::piped()).spawn().context("start cargo test")?;
    let output = child.stdout.take().context("cargo's output is a pipe")?;
    let messages =
        BufReader::new(output).lines().map(|line| Ok(serde_json::from_str(&line?)?)).collect::<Result<Vec<_>>>();
    let status = child.wait().context("wait for cargo test")?;
    ensure!(status.success(), "cargo test --no-run: {status} (its output is above)");
    Ok(binaries(&messages.context("read cargo's messages")?))
}

/// Quick ones first: unit tests, then tests of one crate from outside, then end-to-end.
fn binaries(messages: &[Value]) -> Vec<Binary> {
    let mut found = Vec::new();
    let mut programs: BTreeMap<PathBuf, BTreeMap<String, PathBuf>> = BTreeMap::new();
    for message in messages {
        let (Some(program), Some(manifest)) = (message["executable"].as_str(), message["manifest_path"].as_str())
        else {
            continue;
        };
        let folder = Path::new(manifest).parent().unwrap_or(Path::new("/")).to_owned();
        let name = message["target"]["name"].as_str().unwrap_or_default();
        let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
        if message["profile"]["test"] == false {
            programs.entry(folder).or_default().insert(format!("CARGO_BIN_EXE_{name}"), program.into());
            continue;
        }
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let target = match kind {
            "test" => name.to_owned(),
            "bin" if name != package => format!("unit ({name})"),
            "bin" => "unit (program)".to_owned(),
            _ => "unit".to_owned(),
        };
        let programs = BTreeMap::new();
        let (program, emulator, left_out) = (program.into(), None, Vec::new());
        found.push(Binary { package, target, program, folder, programs, emulator, left_out });
    }
    for binary in &mut found {
        binary.programs = programs.get(&binary.folder).cloned().unwrap_or_default();
    }
    found.sort_by_key(|binary| (binary.is_end_to_end(), !binary.target.starts_with("unit"), binary.name()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn artifact(folder: &str, kind: &str, name: &str, test: bool) -> Value {
        json!({
            "reason": "compiler-artifact", "manifest_path": format!("/w/{folder}/Cargo.toml"),
            "target": {"kind": [kind], "name": name}, "profile": {"test": test}, "executable": format!("/t/{name}"),
        })
    }

    #[test]
    fn test_binaries_are_sorted_from_quick_to_slow() {
        let found = binaries(&[
            artifact("tests", "lib", "tests", true),
            artifact("csi", "test", "sanity", true),
            artifact("csi", "bin", "csi", false),
            artifact("csi", "bin", "csi", true),
            artifact("api", "lib", "api", true),
            json!({"reason": "build-finished", "success": true}),
        ]);
        let names: Vec<_> = found.iter().map(Binary::name).collect();
        assert_eq!(names, ["api unit", "csi unit (program)", "csi sanity", "tests unit"]);
        assert_eq!(found[2].programs["CARGO_BIN_EXE_csi"], Path::new("/t/csi"));
    }
}
