//! Runs an outside program to its end, with a time limit and an error that says what it printed.

use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs `program` with `args` and returns what it wrote to its standard output.
pub async fn run<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = A>) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args);
    finish(command, None).await
}

/// The same with `input` on its standard input.
pub async fn run_with_input<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = A>,
    input: &str,
) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args);
    finish(command, Some(input)).await
}

/// Runs a prepared command.
pub async fn finish(command: Command, input: Option<&str>) -> Result<String> {
    finish_within(command, input, LIMIT).await
}

/// Runs a prepared command that may take longer than most.
pub async fn finish_within(mut command: Command, input: Option<&str>, limit: Duration) -> Result<String> {
    let shown = shown(&command);
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(text.as_bytes()).await.with_context(|| format!("`{shown}` did not read its input"))?;
    }
    let output = tokio::time::timeout(limit, child.wait_with_output())
        .await
        .with_context(|| format!("`{shown}` did not end within {} s", limit.as_secs()))??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed ({}): {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn shown(command: &Command) -> String {
    let command = command.as_std();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
