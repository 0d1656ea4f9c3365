//! Programs of a file system on a disk, run for an action with that as their `/`; what they say are lines of the action.

use crate::chroot::{Bound, apart};
use crate::disks::Disk;
use crate::filesystem::Mounted;
use crate::lines::Lines;
use rustix::mount::MountFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use tokio::sync::mpsc;

/// Where a program is looked for, unless the action's environment says it.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Lines on their way: a program that says more waits.
const LINES: usize = 64;

/// Each a program and its arguments; they may depend on what is in the file system, which is mounted then.
pub(super) type Commands = Box<dyn FnOnce(&File) -> Result<Vec<Vec<String>>, String> + Send>;

pub(super) struct Programs {
    /// Of the file system.
    pub kind: String,
    pub commands: Commands,
    pub name_servers: bool,
    pub environment: BTreeMap<String, String>,
    pub deadline: Instant,
}

/// One after the other, until one fails.
pub(super) async fn run(action: &'static str, disk: Disk, programs: Programs, lines: &Lines) -> Result<(), String> {
    let (say, mut said) = mpsc::channel(LINES);
    let done = apart(action, move || on(&disk.node, programs, &say));
    let mut done = done.map_err(|error| format!("a thread: {error}"))?;
    let done = loop {
        tokio::select! {
            biased;
            Some(line) = said.recv() => lines.quote(&line),
            done = &mut done => break done,
        }
    };
    while let Ok(line) = said.try_recv() {
        lines.quote(&line);
    }
    done.unwrap_or_else(|_| Err(format!("{action}: its thread ended without a result")))
}

/// With the file system mounted for so long.
fn on(node: &Path, programs: Programs, say: &mpsc::Sender<String>) -> Result<(), String> {
    let Programs { kind, commands, name_servers, environment, deadline } = programs;
    let mounted = Mounted::new(node, &kind, MountFlags::empty())?;
    let ran = commands(mounted.root()).and_then(|commands| {
        let bound = Bound::new(mounted.root(), name_servers)?;
        // The arguments may have a password in them.
        let of = |number: usize| format!("command {number} of {}", commands.len());
        for (number, words) in (1..).zip(&commands) {
            let Some((program, arguments)) = words.split_first() else { continue };
            tell(say, format!("disk {}: {}: {program}", node.display(), of(number)));
            let mut command = Command::new(program);
            command.args(arguments).current_dir("/").env_clear().env("PATH", PATH).env("HOME", "/root");
            command.envs(&environment);
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
