//! Runs a program of the system's.

use std::{
    ffi::OsStr,
    io,
    process::{Command, Output, Stdio},
};

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("cannot run {program}: {cause}; the node's image needs util-linux, e2fsprogs and xfsprogs")]
    Start { program: &'static str, cause: io::Error },
    #[error("{program} {arguments}: {status}: {message}")]
    Failed { program: &'static str, arguments: String, status: String, message: String },
    #[error("{program} answered what this driver does not understand: {answer}")]
    Answer { program: &'static str, answer: String },
}

/// Runs to the end, whatever that is.
pub(super) fn output(program: &'static str, arguments: &[&OsStr]) -> Result<Output, CommandError> {
    let command = Command::new(program).args(arguments).stdin(Stdio::null()).env("LC_ALL", "C").output();
    command.map_err(|cause| CommandError::Start { program, cause })
}

pub(super) fn failed(program: &'static str, arguments: &[&OsStr], output: &Output) -> CommandError {
    CommandError::Failed {
        program,
        arguments: arguments.join(OsStr::new(" ")).to_string_lossy().into_owned(),
        status: output.status.to_string(),
        message: String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "),
    }
}

/// Runs, and answers what was printed; an exit status other than 0 is an error.
pub(super) fn run(program: &'static str, arguments: &[&OsStr]) -> Result<String, CommandError> {
    let output = output(program, arguments)?;
    if !output.status.success() {
        return Err(failed(program, arguments, &output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
