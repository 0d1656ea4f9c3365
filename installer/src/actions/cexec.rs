//! `cexec`: a program of the file system on the disk, run with that as its `/`. Upstream's `BLOCK_DEVICE` (the partition), `FS_TYPE`,
//! `CMD_LINE`, `CHROOT`, `DEFAULT_INTERPRETER` and `UPDATE_RESOLV_CONF`. The program has the action's environment. `JSON_OUTPUT` chooses
//! between two forms of upstream's log; the lines here have one.
//!
//! As with upstream the interpreter gets `CMD_LINE` as one argument; without one `CMD_LINE` is split at `;`, and its commands at spaces: no
//! quotes, no variables. Unlike there `CHROOT` is required: what runs without it upstream is its image's, and this one has no programs.

use super::{optional, required, truth};
use crate::agent::Action;
use crate::chroot::{Bound, apart};
use crate::disks::Disks;
use crate::filesystem::Mounted;
use crate::lines::Lines;
use rustix::mount::MountFlags;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use tokio::sync::mpsc;

/// Where a program is looked for, unless the action's environment says it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Lines on their way: a program that says more waits.
const LINES: usize = 64;

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
    let job = Job::read(action)?;
    let disk = disks.find_of("BLOCK_DEVICE", required(action, "BLOCK_DEVICE", "the partition, as /dev/nvme0n1p1")?)?;
    let (say, mut said) = mpsc::channel(LINES);
    let deadline = action.deadline.into_std();
    let done = apart("cexec", move || on(&disk.node, &job, deadline, &say));
    let mut done = done.map_err(|error| format!("a thread: {error}"))?;
    let done = loop {
        tokio::select! {
            biased;
            Some(line) = said.recv() => lines.say(&line),
            done = &mut done => break done,
        }
    };
    while let Ok(line) = said.try_recv() {
        lines.say(&line);
    }
    done.unwrap_or_else(|_| Err("cexec: its thread ended without a result".to_owned()))
}

/// With the file system mounted for so long.
fn on(node: &Path, job: &Job, deadline: Instant, say: &mpsc::Sender<String>) -> Result<(), String> {
    let mounted = Mounted::new(node, &job.kind, MountFlags::empty())?;
    let ran = Bound::new(mounted.root(), job.name_servers).and_then(|bound| {
        // CMD_LINE itself may have a password in it.
        let of = |number: usize| format!("command {number} of {}", job.commands.len());
        for (number, words) in (1..).zip(&job.commands) {
            let Some((program, arguments)) = words.split_first() else { continue };
            tell(say, format!("disk {}: {}: {program}", node.display(), of(number)));
            let mut command = Command::new(program);
            command.args(arguments).current_dir("/").env_clear().env("PATH", PATH).env("HOME", "/root");
            command.envs(&job.environment);
            let to = say.clone();
            let status = bound.run(command, deadline, move |line| tell(&to, line));
            match status.map_err(|error| format!("{}: {error}", of(number)))? {
                status if status.success() => {}
                status => return Err(format!("{}: {program} ended with {status}", of(number))),
            }
        }
        Ok(())
    });
    let closed = mounted.close();
    ran.map_err(|error| format!("disk {}: {error}", node.display()))?;
    closed
}

fn tell(to: &mpsc::Sender<String>, line: String) {
    // Nobody listens any more: the machine restarts.
    let _ = to.blocking_send(line);
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
