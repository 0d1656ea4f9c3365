//! On the DPU itself: what its kernel, its services and SNAP say of functions, ports and methods.

use super::archive::Part;
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::timeout;

/// Where SNAP's own container, and DPF's, have their socket.
pub(super) const SOCKETS: [&str; 2] = ["/var/tmp/spdk.sock", "/var/lib/nvidia/storage/snap/providers/nvidia/snap.sock"];

/// Reads only. None of these lists what is connected by name and password.
const METHODS: [&str; 4] = ["rpc_get_methods", "spdk_get_version", "emulation_function_list", "nvme_subsystem_list"];

const PROGRAMS: [(&str, &[&str]); 14] = [
    ("devlink-port.json", &["devlink", "-j", "port", "show"]),
    ("devlink-info.json", &["devlink", "-j", "dev", "info"]),
    ("devlink-eswitch.json", &["devlink", "-j", "dev", "eswitch", "show"]),
    ("ip-link.json", &["ip", "-j", "-d", "link", "show"]),
    ("virtnet-list.json", &["virtnet", "list"]),
    ("virtnet-version.json", &["virtnet", "version"]),
    ("ovs-config.txt", &["ovs-vsctl", "get", "Open_vSwitch", ".", "other_config"]),
    ("ovs-version.txt", &["ovs-vsctl", "get", "Open_vSwitch", ".", "ovs_version"]),
    ("ovs-bridges.txt", &["ovs-vsctl", "--columns=name,datapath_type,fail_mode", "list", "Bridge"]),
    ("ovs-interfaces.txt", &["ovs-vsctl", "--columns=name,type,ofport,error", "list", "Interface"]),
    ("lspci.txt", &["lspci", "-nn"]),
    ("uname.txt", &["uname", "-srvm"]),
    ("page-size.txt", &["getconf", "PAGESIZE"]),
    ("release.txt", &["cat", "/etc/mlnx-release", "/etc/os-release"]),
];

const LIMIT: Duration = Duration::from_secs(20);
/// A list of functions is some KiB long.
const LONGEST: usize = 8 << 20;

/// Where programs are looked for: `devlink` is in no ordinary user's path.
pub(super) fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin:/opt/mellanox/iproute2/sbin");
    path
}

pub(super) async fn gather(sockets: &[PathBuf], path: &OsStr) -> Vec<Part> {
    let mut parts = Vec::new();
    for (name, words) in PROGRAMS {
        parts.push(Part::text(&format!("dpu/{name}"), run(words, path, None).await));
    }
    for (number, socket) in sockets.iter().enumerate() {
        for method in METHODS {
            let said = timeout(LIMIT, ask(socket, method)).await;
            let said =
                said.unwrap_or_else(|_| Err(format!("{}: no answer in {} s", socket.display(), LIMIT.as_secs())));
            parts.push(Part::json(&format!("snap/{number}-{method}.json"), said));
        }
    }
    parts
}

/// What a program says on its standard output. `input` is for its standard input, which no list of processes shows.
pub(super) async fn run(words: &[&str], path: &OsStr, input: Option<&str>) -> Result<String, String> {
    let [program, arguments @ ..] = words else { return Err("no program".to_owned()) };
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", path).stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let ended = timeout(LIMIT, async {
        let mut child = command.spawn()?;
        if let (Some(mut to), Some(input)) = (child.stdin.take(), input) {
            to.write_all(input.as_bytes()).await?;
        }
        child.wait_with_output().await
    });
    let output = match ended.await {
        Err(_) => return Err(format!("{program}: not done in {} s", LIMIT.as_secs())),
        Ok(Err(error)) => return Err(format!("{program}: {error}")),
        Ok(Ok(output)) => output,
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() || !said.trim().is_empty() {
        true => Ok(said),
        false => Err(format!("{program}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// One call of JSON-RPC 2.0.
async fn ask(socket: &Path, method: &str) -> Result<Value, String> {
    let at = |error: std::io::Error| format!("{}: {method}: {error}", socket.display());
    let mut stream = UnixStream::connect(socket).await.map_err(at)?;
    let mut request = json!({"jsonrpc": "2.0", "id": 1, "method": method});
    if method == "emulation_function_list" {
        request["params"] = json!({"all": true});
    }
    stream.write_all(format!("{request}\n").as_bytes()).await.map_err(at)?;
    let (mut said, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let length = stream.read(&mut piece).await.map_err(at)?;
        said.extend_from_slice(&piece[..length]);
        match serde_json::from_slice::<Value>(&said) {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_eof() && length > 0 && said.len() < LONGEST => {}
            Err(error) => {
                return Err(format!("{}: {method}: the answer cannot be understood: {error}", socket.display()));
            }
        }
    }
}
