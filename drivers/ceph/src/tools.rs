//! Ceph's own programs. Each call is bounded twice: by what the program is told, so that it says why, and by us.

use crate::clusters::Cluster;
use ports::{ErrorClass, PortError};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;

/// For each step of a program: to find the monitors, a command to one, an operation on an object.
const STEP_SECONDS: &str = "5";
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Default)]
pub struct Tools {
    environment: BTreeMap<String, String>,
}

impl Tools {
    pub(crate) fn new(environment: BTreeMap<String, String>) -> Self {
        Self { environment }
    }

    /// What `rbd`, `rados` or `ceph` writes to its standard output.
    pub(crate) async fn run(
        &self,
        program: &str,
        cluster: &Cluster,
        arguments: &[&str],
        what: &str,
    ) -> Result<String, PortError> {
        let mut command = Command::new(program);
        command.envs(&self.environment).arg("--conf").arg(&cluster.config_file).args(["--id", &cluster.user]);
        match program {
            "ceph" => command.args(["--connect-timeout", STEP_SECONDS]),
            _ => command.args(
                ["--client_mount_timeout", "--rados_mon_op_timeout", "--rados_osd_op_timeout"]
                    .iter()
                    .flat_map(|option| [*option, STEP_SECONDS]),
            ),
        };
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let step = format!("{what}: `{program} {}`", arguments.join(" "));
        let failed = |class, cause: String| PortError::new(class, format!("{step}: {cause}"));
        match tokio::time::timeout(LIMIT, command.output()).await {
            Err(_) => Err(failed(ErrorClass::Unreachable, format!("no answer within {LIMIT:?}"))),
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {
                let cause = format!("there is no program {program} on PATH: Debian's package ceph-common has it");
                Err(failed(ErrorClass::Unsupported, cause))
            }
            Ok(Err(error)) => Err(failed(ErrorClass::Busy, error.to_string())),
            Ok(Ok(output)) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(Ok(output)) => {
                let (class, cause) = explain(&output);
                Err(failed(class, cause))
            }
        }
    }
}

fn explain(output: &Output) -> (ErrorClass, String) {
    let said = String::from_utf8_lossy(&output.stderr);
    // Before the last line are the library's own notes.
    let cause = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it does not say why").to_owned();
    (class(output.status.code(), &said), cause)
}

/// `rbd` ends with the error's number, the others with 1 and words.
fn class(code: Option<i32>, said: &str) -> ErrorClass {
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    match code {
        Some(2) => ErrorClass::NotFound,
        Some(13) => ErrorClass::Unauthorized,
        Some(110) => ErrorClass::Unreachable,
        _ if says(&["No such file or directory", "ENOENT"]) => ErrorClass::NotFound,
        _ if says(&["timed out", "ETIMEDOUT"]) => ErrorClass::Unreachable,
        _ if says(&["Permission denied", "Operation not permitted", "EACCES", "EPERM"]) => ErrorClass::Unauthorized,
        _ => ErrorClass::Busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_their_class() {
        let rados = "error getting xattr set rbd/rbd_header.x: (2) No such file or directory\n";
        assert_eq!(class(Some(1), rados), ErrorClass::NotFound);
        assert_eq!(class(Some(2), "rbd: error opening image x: (2) No such file or directory"), ErrorClass::NotFound);
        assert_eq!(class(Some(110), "rbd: couldn't connect to the cluster!"), ErrorClass::Unreachable);
        assert_eq!(class(Some(1), "[errno 110] RADOS timed out (error connecting)"), ErrorClass::Unreachable);
        assert_eq!(class(Some(13), "Error EACCES: access denied"), ErrorClass::Unauthorized);
        assert_eq!(class(None, ""), ErrorClass::Busy);
    }

    #[tokio::test]
    async fn a_missing_program_is_named_with_its_package() {
        let nowhere = BTreeMap::from([("PATH".to_owned(), "/nonexistent".to_owned())]);
        let cluster = Cluster { user: "u".to_owned(), config_file: "/nonexistent/ceph.conf".into() };
        let error = Tools::new(nowhere).run("rbd", &cluster, &["info"], "looking").await.expect_err("no program");
        assert_eq!(error.class, ErrorClass::Unsupported);
        assert!(error.message.contains("ceph-common"), "{error}");
    }
}
