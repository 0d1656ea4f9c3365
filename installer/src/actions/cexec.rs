//! `cexec`: a program of the file system on the disk, run with that as its `/`. Upstream's `BLOCK_DEVICE` (the partition), `FS_TYPE`,
//! `CMD_LINE`, `CHROOT`, `DEFAULT_INTERPRETER` and `UPDATE_RESOLV_CONF`. The program has the action's environment. `JSON_OUTPUT` chooses
//! between two forms of upstream's log; the lines here have one.
//!
//! As with upstream the interpreter gets `CMD_LINE` as one argument; without one `CMD_LINE` is split at `;`, and its commands at spaces: no
//! quotes, no variables. Unlike there `CHROOT` is required: what runs without it upstream is its image's, and this one has no programs.

use super::programs::{self, Programs};
use super::{optional, required, truth};
use crate::agent::Action;
use crate::disks::Disks;
use crate::lines::Lines;
use std::collections::BTreeMap;

#[derive(Debug, PartialEq, Eq)]
struct Job {
    kind: String,
    /// Each a program and its arguments.
    commands: Vec<Vec<String>>,
    name_servers: bool,
    environment: BTreeMap<String, String>,
}

impl Job {
    fn read(action: &Action) -> Result<Self, String> {
        let kind = required(action, "FS_TYPE", "the file system's type, as ext4")?.to_owned();
        let line = required(action, "CMD_LINE", "the command, as grub-install /dev/sda")?;
        if optional(action, "CHROOT").is_none() {
            return Err("CHROOT is missing from the environment: write y: the installer has no programs of its own, \
                        CMD_LINE names one of the disk's"
                .to_owned());
        }
        truth(action, "JSON_OUTPUT")?;
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let commands: Vec<Vec<String>> = match optional(action, "DEFAULT_INTERPRETER").map(words) {
            None => line.split(';').map(words).filter(|words| !words.is_empty()).collect(),
            Some(interpreter) if interpreter.is_empty() => {
                return Err("DEFAULT_INTERPRETER is blank: write a program with its options, as /bin/sh -c".to_owned());
            }
            Some(mut interpreter) => {
                interpreter.push(line.to_owned());
                vec![interpreter]
            }
        };
        if commands.is_empty() {
            return Err(format!("CMD_LINE is {line:?}: write the command, as grub-install /dev/sda"));
        }
        Ok(Self {
            kind,
            commands,
            name_servers: truth(action, "UPDATE_RESOLV_CONF")?.unwrap_or(false),
            environment: action.environment.clone(),
        })
    }
}

pub(super) async fn run(disks: &Disks, action: &Action, lines: &Lines) -> Result<(), String> {
    let Job { kind, commands, name_servers, environment } = Job::read(action)?;
    let disk = disks.find_of("BLOCK_DEVICE", required(action, "BLOCK_DEVICE", "the partition, as /dev/nvme0n1p1")?)?;
    let (commands, deadline) = (Box::new(|_: &_| Ok(commands)), action.deadline.into_std());
    programs::run("cexec", disk, Programs { kind, commands, name_servers, environment, deadline }, lines).await
}

#[cfg(test)]
mod tests {
    use super::super::tests::action;
    use super::*;

    const WHOLE: [(&str, &str); 4] =
        [("FS_TYPE", "ext4"), ("CHROOT", "y"), ("CMD_LINE", "a -b; c  d;"), ("DEBIAN_FRONTEND", "noninteractive")];

    fn job(more: &[(&str, &str)]) -> Result<Job, String> {
        Job::read(&action("cexec", &[&WHOLE, more].concat()))
    }

    #[test]
    fn commands_are_split_as_upstream_splits_them() {
        let job = |more: &[(&str, &str)]| job(more).expect("understood");
        assert_eq!(job(&[]).commands, [vec!["a", "-b"], vec!["c", "d"]]);
        let of_shell =
            job(&[("DEFAULT_INTERPRETER", "/bin/sh  -c"), ("UPDATE_RESOLV_CONF", "true"), ("JSON_OUTPUT", "f")]);
        assert_eq!(of_shell.commands, [vec!["/bin/sh", "-c", "a -b; c  d;"]]);
        assert!(of_shell.name_servers && !job(&[]).name_servers);
        assert_eq!(of_shell.environment["DEBIAN_FRONTEND"], "noninteractive");
    }

    #[test]
    fn a_value_that_cannot_be_meant_is_named() {
        for (key, value, said) in [
            ("FS_TYPE", "", "FS_TYPE is missing"),
            ("CHROOT", "", "CHROOT is missing from the environment: write y"),
            ("CMD_LINE", "", "CMD_LINE is missing"),
            ("CMD_LINE", " ; ", "CMD_LINE is \" ; \""),
            ("DEFAULT_INTERPRETER", " ", "DEFAULT_INTERPRETER is blank: write"),
            ("UPDATE_RESOLV_CONF", "yes", "UPDATE_RESOLV_CONF is \"yes\": write true or false"),
            ("JSON_OUTPUT", "no", "JSON_OUTPUT is \"no\": write true or false"),
        ] {
            let error = job(&[(key, value)]).expect_err("refused");
            assert!(error.contains(said), "{key}={value}: {error}");
        }
    }
}
