//! `sandbox hold`: the process that keeps a node's mount namespace and host name, and makes the node look like a machine of its own.
//!
//! A node shares the machine's programs and devices but has its own `/run`, `/var/lib` and `/var/log`, so kubelet,
//! containerd, Open vSwitch and our agent use the same paths as on a real node. `/run` is new at every start of the
//! node, the others stay, and the kernel's boot id is a fresh one: a start of the holder *is* the node's boot.
//! Everything is shared *within* the node, as systemd leaves it on a real one, so a container's mounts can reach it.
//! The settings of the kernel that kubelet would change are this machine's: it finds files in their place.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use serde::{Deserialize, Serialize};

use crate::layout::Layout;

/// Below `/proc/sys`: what kubelet wants, and writes when it finds something else.
const KUBELET_WANTS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// What the supervisor tells a holder.
#[derive(Serialize, Deserialize)]
pub struct HolderConfig {
    pub sandbox: String,
    pub node: String,
    pub boot_id: String,
    /// Folders of this machine and where the node sees them.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// Written when all is done; the supervisor waits for it.
    pub boot_id_file: PathBuf,
}

pub fn run(config: &Path) -> Result<()> {
    let bytes = fs::read(config).with_context(|| format!("cannot read {}", config.display()))?;
    let config: HolderConfig = serde_json::from_slice(&bytes)?;
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGTERM);
    ends.thread_block().context("cannot block SIGTERM")?;
    set_up(&config).with_context(|| format!("cannot set up node {}", config.node))?;
    ends.wait().context("cannot wait for SIGTERM")?;
    Ok(())
}

fn set_up(config: &HolderConfig) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS).context("cannot make namespaces")?;
    rustix::system::sethostname(config.node.as_bytes()).context("cannot set the node's host name")?;
    change_propagation(MsFlags::MS_SLAVE)?;
    let_go_of_others(&config.sandbox)?;
    for (from, to) in &config.binds {
        bind(from, to)?;
    }
    let fresh = config.boot_id_file.with_extension("part");
    fs::write(&fresh, format!("{}\n", config.boot_id))?;
    // The file keeps its identity when it is renamed: kubelet reads the node's boot id where every Linux has it.
    bind(&fresh, Path::new("/proc/sys/kernel/random/boot_id"))?;
    let settings = config.boot_id_file.with_file_name("settings");
    for (name, value) in KUBELET_WANTS {
        let (file, at) = (settings.join(name), Path::new("/proc/sys").join(name));
        if at.exists() {
            fs::create_dir_all(file.parent().unwrap_or(&settings))?;
            fs::write(&file, format!("{value}\n"))?;
            bind(&file, &at)?;
        }
    }
    change_propagation(MsFlags::MS_SHARED)?;
    // Pods are routed, and what comes back may take another way than what went out.
    for (name, value) in [("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/default/rp_filter", "0")] {
        let path = Path::new("/proc/sys/net/ipv4").join(name);
        fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))?;
    }
    fs::rename(&fresh, &config.boot_id_file).context("cannot write the boot id")?;
    Ok(())
}

fn change_propagation(flag: MsFlags) -> Result<()> {
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | flag, None::<&str>)
        .with_context(|| format!("cannot change the propagation of mounts to {flag:?}"))
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        .with_context(|| format!("cannot bind {} to {}", from.display(), to.display()))
}

/// This namespace began as a copy of the machine's mounts: a copy of another sandbox's pool or network namespace would
/// keep it alive when that sandbox ends.
fn let_go_of_others(own: &str) -> Result<()> {
    let root = Layout::root();
    let own = root.join(own);
    for at in mount_points("/proc/self/mountinfo")?.into_iter().rev() {
        let others = at.starts_with(&root) && !at.starts_with(&own) && at != root;
        if others || at.starts_with("/run/netns") {
            // It may have gone with its parent or with its sandbox.
            let _ = umount2(&at, MntFlags::MNT_DETACH);
        }
    }
    Ok(())
}

/// Mount points in the order in which they were mounted.
pub fn mount_points(mountinfo: &str) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string(mountinfo).with_context(|| format!("cannot read {mountinfo}"))?;
    let points = text.lines().filter_map(|line| line.split_ascii_whitespace().nth(4));
    Ok(points.map(|point| PathBuf::from(point.replace("\\040", " "))).collect())
}
