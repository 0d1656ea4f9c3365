//! Programs that run where the DPU's are: its network namespace has the taps, its mount namespace the sockets.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::timeout;

use super::config::DpuControl;

/// A DPU starts all its programs before the supervisor answers.
const SUPERVISOR_ANSWERS_WITHIN: Duration = Duration::from_secs(600);

/// A command that runs inside the DPU, or right here if there is none.
pub fn command(enter: Option<&Path>, program: impl AsRef<OsStr>) -> Command {
    let mut command = match enter {
        Some(enter) => {
            let mut command = Command::new(enter);
            command.arg(program);
            command
        }
        None => Command::new(program),
    };
    command.kill_on_drop(true);
    command
}

/// Prints the size of each file or block device named, or a dash.
const SIZES: &str = r#"for f; do
    if [ -b "$f" ]; then blockdev --getsize64 "$f"; else stat -Lc %s -- "$f"; fi 2>/dev/null || echo -
done"#;

/// Sizes of files as the DPU sees them: what it presents may be in a folder that only it has.
pub async fn sizes(enter: Option<&Path>, files: &[&str]) -> Result<Vec<Option<u64>>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let printed = run(enter, "sh", &[&["-c", SIZES, "sh"], files].concat()).await?;
    let sizes: Vec<Option<u64>> = printed.lines().map(|line| line.parse().ok()).collect();
    ensure!(sizes.len() == files.len(), "asked for {} sizes, got {}", files.len(), sizes.len());
    Ok(sizes)
}

/// Makes a file longer.
pub async fn grow(enter: Option<&Path>, file: &str, size: u64) -> Result<()> {
    run(enter, "truncate", &["-s", &size.to_string(), "--", file]).await.map(drop)
}

/// Whether the DPU has namespaces to enter: it has none while it is off.
pub async fn is_there(enter: Option<&Path>) -> bool {
    run(enter, "true", &[]).await.is_ok()
}

/// Makes the tap that stands for a NIC's representor, or takes the one that is there, and sets it up.
pub async fn add_tap(enter: Option<&Path>, name: &str) -> Result<()> {
    if ip(enter, &["link", "show", "dev", name]).await.is_err() {
        ip(enter, &["tuntap", "add", "dev", name, "mode", "tap"]).await?;
    }
    ip(enter, &["link", "set", "dev", name, "up"]).await
}

/// Removes the tap; one that is not there any more is fine.
pub async fn remove_tap(enter: Option<&Path>, name: &str) -> Result<()> {
    if ip(enter, &["link", "show", "dev", name]).await.is_err() {
        return Ok(());
    }
    ip(enter, &["tuntap", "del", "dev", name, "mode", "tap"]).await
}

async fn ip(enter: Option<&Path>, arguments: &[&str]) -> Result<()> {
    run(enter, "ip", arguments).await.map(drop)
}

async fn run(enter: Option<&Path>, program: &str, arguments: &[&str]) -> Result<String> {
    let output = command(enter, program).args(arguments).stdin(Stdio::null()).output().await;
    let output = output.with_context(|| format!("start '{program}' inside the DPU"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("'{program} {}' inside the DPU failed: {}", arguments.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Asks the supervisor to switch the DPU on or off.
pub async fn switch_dpu(control: &DpuControl, on: bool) -> Result<()> {
    let request = json!({ "op": "power", "dpu": control.name, "state": if on { "on" } else { "off" } });
    let socket = &control.supervisor_socket;
    let exchange = async {
        let stream = UnixStream::connect(socket).await?;
        let (reader, mut writer) = stream.into_split();
        writer.write_all(format!("{request}\n").as_bytes()).await?;
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).await?;
        std::io::Result::Ok(line)
    };
    let line = timeout(SUPERVISOR_ANSWERS_WITHIN, exchange)
        .await
        .with_context(|| format!("the supervisor did not answer {request} in time"))?
        .with_context(|| format!("ask the supervisor at {} for {request}", socket.display()))?;
    let answer: Value = serde_json::from_str(&line).with_context(|| format!("the supervisor answered '{line}'"))?;
    if answer["ok"] != json!(true) {
        bail!("the supervisor refused {request}: {}", answer["error"].as_str().unwrap_or("no reason given"));
    }
    Ok(())
}
