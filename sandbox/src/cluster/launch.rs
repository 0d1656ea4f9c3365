//! `sandbox launch`: the first moments of every process of a sandbox.
//!
//! It joins the control group, enters the namespaces, asks to be killed when the supervisor dies, and becomes the
//! command. It is a program of its own because namespaces can only be entered by a process with one thread.

use std::convert::Infallible;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::signal::Signal;

use crate::args::Launch;

pub fn exec(args: &Launch) -> Result<Infallible> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot ask to be killed with the supervisor")?;
    if let Some(cgroup) = &args.cgroup {
        std::fs::write(cgroup.join("cgroup.procs"), "0")
            .with_context(|| format!("cannot join the control group {}", cgroup.display()))?;
    }
    let open = |path: &std::path::Path| {
        File::open(path).with_context(|| format!("cannot open the namespace {}", path.display()))
    };
    // All are opened first: after the mounts are entered, no path leads there.
    let net = args.netns.as_deref().map(open).transpose()?;
    let of_node = |kind| args.node_of.map(|pid| open(format!("/proc/{pid}/ns/{kind}").as_ref())).transpose();
    let (name, mounts) = (of_node("uts")?, of_node("mnt")?);
    if let Some(name) = name {
        setns(name, CloneFlags::CLONE_NEWUTS).context("cannot enter the host name's namespace")?;
    }
    if let Some(net) = net {
        setns(net, CloneFlags::CLONE_NEWNET).context("cannot enter the network namespace")?;
    }
    if let Some(mounts) = mounts {
        setns(mounts, CloneFlags::CLONE_NEWNS).context("cannot enter the mount namespace")?;
        std::env::set_current_dir("/")?;
    }
    let (program, rest) = args.command.split_first().context("no command")?;
    let error = Command::new(program).args(rest).exec();
    Err(error).with_context(|| format!("cannot execute {program}"))
}
