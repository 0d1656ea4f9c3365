//! Runs test binaries and shows progress.

use super::Options;
use super::binaries::Binary;
use super::libtest::Reader;
use super::report::{Case, Outcome, seconds};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// After this long without any result a binary is ended; what it ran then has failed.
const LIMIT: Duration = Duration::from_secs(30 * 60);
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A test that took longer is shown when it ends.
const LONG: Duration = Duration::from_secs(1);

/// Where programs are found that tests start.
pub(crate) type Environment = BTreeMap<String, String>;

enum Line {
    Output(String),
    Error(String),
}

pub(super) fn run(binary: &Binary, environment: &Environment, filter: Option<&str>) -> Vec<Case> {
    let name = binary.name();
    let began = Instant::now();
    match listed(binary, environment, filter) {
        Ok(tests) if tests.is_empty() => Vec::new(),
        Ok(tests) => {
            let threads = binary.threads(tests.len());
            eprintln!("{name}: {} tests", tests.len());
            let mut command = command(binary, environment);
            command.args(["--show-output", "--color=never", &format!("--test-threads={threads}")]);
            command.args(chosen(binary, filter));
            let reader = Reader::new(name, Some(tests), threads, began);
            follow(command, reader)
        }
        Err(error) => {
            vec![Case {
                output: format!("{error:#}\n"),
                ..Case::new(&name, "(its list)", Outcome::Failed, began.elapsed())
            }]
        }
    }
}

/// Examples in documentation are compiled and run by rustdoc, under cargo.
pub(super) fn doc_tests(root: &Path, options: &Options) -> Vec<Case> {
    eprintln!("examples in documentation");
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["test", "--doc", "--quiet"]).args(options.packages());
    cargo.args(["--", "--show-output", "--color=never", "--format=pretty"]).args(&options.filter);
    follow(cargo, Reader::new("documentation".to_owned(), None, 1, Instant::now()))
}

/// A test binary as cargo would start it; as root if that can be had, because clusters, switches and virtual servers
/// need it. What cannot be had is skipped by the tests themselves, with the reason.
fn command(binary: &Binary, environment: &Environment) -> Command {
    let words: Vec<&Path> = binary.emulator.as_deref().into_iter().chain([binary.program.as_path()]).collect();
    let mut command = match (needs_sudo(), binary.only_computes()) {
        (true, false) => Command::new("sudo"),
        (false, false) => Command::new(words[0]),
        (_, true) => idle(words[0]),
    };
    let folder = binary.folder.to_string_lossy().into_owned();
    let mut variables = environment.clone();
    variables.insert("CARGO_MANIFEST_DIR".to_owned(), folder);
    variables.insert("CARGO_PKG_NAME".to_owned(), binary.package.clone());
    variables.extend(binary.programs.iter().map(|(name, path)| (name.clone(), path.to_string_lossy().into_owned())));
    if needs_sudo() && !binary.only_computes() {
        // sudo clears the environment.
        command.arg("env").args(kept().into_iter().map(|(name, value)| format!("{name}={value}")));
        command.args(variables.iter().map(|(name, value)| format!("{name}={value}"))).args(&words);
    } else {
        command.envs(variables).args(&words[1..]);
    }
    command.current_dir(&binary.folder).stdin(Stdio::null());
    command
}

/// A program that gets only the processor time that nobody else wants.
fn idle(program: &Path) -> Command {
    let mut command = Command::new("chrt");
    command.args(["--idle", "0"]).arg(program);
    command
}

/// Set for tests that take minutes each; without it they are skipped.
pub(super) const LONG_TESTS: &str = "LONG_TESTS";

/// Where property tests begin to draw (proptest's own variable).
pub(crate) const PROPTEST_SEED: &str = "PROPTEST_RNG_SEED";
/// The cases of every run are the same: what another draw would find turns no unrelated change red. The judge `simulation` draws.
const DRAWN_ONCE: &str = "20261127";

/// As its caller says, or as ever.
pub(super) fn proptest_seed() -> (String, String) {
    (PROPTEST_SEED.to_owned(), std::env::var(PROPTEST_SEED).unwrap_or_else(|_| DRAWN_ONCE.to_owned()))
}

/// What a test that runs as root takes over from its caller.
pub(super) fn kept() -> Vec<(&'static str, String)> {
    let names = [
        "PATH",
        "HOME",
        "CARGO",
        "CARGO_HOME",
        "RUSTUP_HOME",
        "XDG_CACHE_HOME",
        "KUBEBUILDER_ASSETS",
        "RUST_BACKTRACE",
        "SPDK_DIR",
        "SPDK_SCHEMA",
        "SPDK_TARGET",
        "CSI_HOSTPATH_PLUGIN",
        sandbox::preflight::ovn::VARIABLE,
        LONG_TESTS,
    ];
    names.into_iter().filter_map(|name| Some((name, std::env::var(name).ok()?))).collect()
}

/// A program of ours that is root's to run.
pub(crate) fn as_root(program: &Path) -> Command {
    as_root_with(program, &[])
}

/// With these variables.
pub(crate) fn as_root_with(program: &Path, variables: &[(&str, &Path)]) -> Command {
    if !needs_sudo() {
        let mut command = Command::new(program);
        command.envs(variables.iter().copied());
        return command;
    }
    let mut sudo = Command::new("sudo");
    // sudo clears the environment.
    sudo.arg("env").args(kept().into_iter().map(|(name, value)| format!("{name}={value}")));
    sudo.args(variables.iter().map(|(name, value)| format!("{name}={}", value.display()))).arg(program);
    sudo
}

pub(crate) fn needs_sudo() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        !nix::unistd::geteuid().is_root()
            && Command::new("sudo").arg("-v").status().is_ok_and(|status| status.success())
    })
}

/// Which of its tests, in libtest's words.
fn chosen<'a>(binary: &'a Binary, filter: Option<&'a str>) -> impl Iterator<Item = &'a str> {
    binary.left_out.iter().flat_map(|name| ["--skip", name]).chain(filter)
}

fn listed(binary: &Binary, environment: &Environment, filter: Option<&str>) -> Result<Vec<String>> {
    let done = command(binary, environment).args(["--list", "--format=terse"]).args(chosen(binary, filter)).output();
    let done = done.context("start it")?;
    ensure!(done.status.success(), "--list: {}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

fn follow(mut command: Command, mut reader: Reader) -> Vec<Case> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return reader.end(Err(format!("cannot start: {error}")), Instant::now()),
    };
    let (sender, lines) = channel();
    pump(child.stdout.take(), sender.clone(), Line::Output);
    pump(child.stderr.take(), sender, Line::Error);
    let ending = match read(&mut reader, &lines) {
        Ok(()) => child.wait().map_err(|error| error.to_string()).and_then(success),
        Err(cause) => Err(end(&mut child, cause)),
    };
    reader.end(ending, Instant::now())
}

fn pump(stream: Option<impl Read + Send + 'static>, sender: Sender<(Instant, Line)>, kind: fn(String) -> Line) {
    let Some(stream) = stream else { return };
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            line.clear();
            if sender.send((Instant::now(), kind(text))).is_err() {
                break;
            }
        }
    });
}

/// Reads until both streams end; an error if there was no result for too long.
fn read(reader: &mut Reader, lines: &Receiver<(Instant, Line)>) -> Result<(), String> {
    let mut last = Instant::now();
    loop {
        match lines.recv_timeout(HEARTBEAT) {
            Ok((at, Line::Output(line))) => {
                if let Some(case) = reader.line(&line, at) {
                    last = at;
                    show(case);
                }
            }
            Ok((_, Line::Error(line))) => reader.error_line(&line),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                if let Some(text) = reader.waiting(now) {
                    eprintln!("  … {text}");
                }
                if now - last > LIMIT {
                    return Err(format!("no result for {} minutes", LIMIT.as_secs() / 60));
                }
            }
        }
    }
}

fn show(case: &Case) {
    match &case.outcome {
        Outcome::Failed => eprintln!("  FAILED {} ({})", case.name, seconds(case.time)),
        Outcome::Passed if case.time >= LONG => eprintln!("  ok {} ({})", case.name, seconds(case.time)),
        Outcome::Passed | Outcome::Skipped(_) => {}
    }
}

fn success(status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// Ends a binary that hangs: first so that it can clean up what it started.
fn end(child: &mut Child, cause: String) -> String {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    let Ok(pid) = i32::try_from(child.id()) else { return cause };
    for (signal, patience) in [(Signal::SIGTERM, Duration::from_secs(30)), (Signal::SIGKILL, Duration::from_secs(5))] {
        // An error says that it is gone; try_wait will see it.
        let _ = kill(Pid::from_raw(pid), signal);
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if matches!(child.try_wait(), Ok(Some(_))) {
                return cause;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
    cause
}
