//! Runs one outside command and turns what it said into the error, when it fails.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a command to its end; its output is the answer.
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Result<String> {
    run_command(Command::new(program).args(arguments))
}

/// The same for a command that needs a folder or an environment of its own.
pub fn run_command(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start '{program}': is its package installed?"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let tail: Vec<&str> = said.lines().rev().take(8).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        bail!("'{program}' ended with {}: {}", output.status, tail.join(" | "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
