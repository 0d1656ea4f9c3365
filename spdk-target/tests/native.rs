//! The program with SPDK: what it does without anybody asking by RPC, and by RPC.
#![cfg(spdk)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// It takes less than a second on a machine that has nothing else to do.
const LIMIT: Duration = Duration::from_secs(60);
const OF_A_TEST: [&str; 7] = ["-m", "0x1", "--no-huge", "-s", "512", "--no-pci", "--disable-cpumask-locks"];

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spdk-target"));
    command.args(OF_A_TEST).stdin(Stdio::null());
    command
}

/// A bdev `memory` of 16 MiB.
fn config(folder: &Path) -> PathBuf {
    let file = folder.join("config.json");
    let memory =
        r#"{"method": "bdev_malloc_create", "params": {"name": "memory", "num_blocks": 32768, "block_size": 512}}"#;
    let text = format!(r#"{{"subsystems": [{{"subsystem": "bdev", "config": [{memory}]}}]}}"#);
    std::fs::write(&file, text).expect("written");
    file
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("asked");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("answered");
    page
}

/// Sends a request; the answer's first bytes are waited for.
fn call(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("it serves RPC");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    stream.write_all(request.as_bytes()).expect("asked");
    let mut piece = vec![0; 64 << 10];
    let length = stream.read(&mut piece).expect("answered");
    String::from_utf8_lossy(&piece[..length]).into_owned()
}

#[test]
fn it_serves_statistics_and_rpc_until_it_is_told_to_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("rpc.sock");
    let mut command = program();
    command.arg("-c").arg(config(folder.path())).arg("-r").arg(&socket).args(["--metrics-listen", "127.0.0.1:0"]);
    let mut target = Ends(command.stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut log = BufReader::new(target.0.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let metrics =
        log.find_map(|line| Some(line.split_once("metrics at http://")?.1.trim_end_matches("/metrics").to_owned()));
    let metrics = metrics.expect("it tells where");
    assert!(get(&metrics).starts_with("HTTP/1.1 503 "), "SPDK has not started yet");
    assert!(log.any(|line| line.ends_with("spdk-target: started")));
    let page = get(&metrics);
    assert!(page.contains("spdk_target_bdev_size_bytes{bdev=\"memory\",product=\"Malloc disk\"} 16777216"), "{page}");
    assert!(page.contains("spdk_target_bdev_operations_total{bdev=\"memory\",direction=\"write\"} 0"), "{page}");
    let bdevs = call(&socket, r#"{"jsonrpc": "2.0", "id": 1, "method": "bdev_get_bdevs"}"#);
    assert!(bdevs.contains("\"memory\""), "{bdevs}");
    let end = r#"{"jsonrpc": "2.0", "id": 1, "method": "spdk_kill_instance", "params": {"sig_name": "SIGTERM"}}"#;
    call(&socket, end);
    let since = Instant::now();
    // To its end: a full pipe would keep it.
    let rest: Vec<String> = log.collect();
    let status = target.0.wait().expect("it ends");
    assert!(status.success() && since.elapsed() < LIMIT, "{status}: {rest:?}");
}

fn operations(folder: &Path, bdev: &str, words: &[&str]) -> Output {
    let mut command = program();
    command.args(["io", "--bdev", bdev, "-c"]).arg(config(folder)).args(words);
    command.output().expect("it starts")
}

#[test]
fn operations_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    for workload in ["random-read", "random-write", "write-pattern"] {
        let done = operations(folder.path(), "memory", &["--workload", workload, "--seconds", "1"]);
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{workload}: {}", String::from_utf8_lossy(&done.stderr));
        assert!(said.contains(&format!("\"workload\":\"{workload}\"")) && said.contains("\"failed\":0"), "{said}");
    }
}

#[test]
fn what_cannot_be_done_is_an_error_that_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    for (bdev, words, why) in [
        ("memory", &["--workload=check-pattern"][..], "4096 of 4096 blocks do not hold what was written there"),
        ("memory", &["--workload=random-read", "--io-size=1000"], "Read 1000 bytes at"),
        ("missing", &["--workload=random-read"], "open the bdev missing: No such device"),
    ] {
        let done = operations(folder.path(), bdev, words);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains(why), "{words:?}: {said}");
    }
}
