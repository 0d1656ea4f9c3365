//! Control groups: which processes belong to a sandbox or to one of its nodes, and their end.
//!
//! Membership in a group is inherited and cannot be left by accident, so it finds what no process table knows:
//! containers, their shims, and what a container started. Version 1 (one tree per controller) and version 2 (one tree)
//! are both in use; on version 1 our own processes join a single tree, only containers are in all of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::Pid;

const MOUNT: &str = "/sys/fs/cgroup";
/// Version 2 forbids processes in a group that has children with controllers; ours are in a leaf.
const LEAF: &str = "system";
/// Version 2: those that kubelet uses.
const CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "memory", "pids", "io", "hugetlb"];

#[derive(Clone, Debug)]
pub struct Cgroups {
    /// Roots of all trees. Version 2 has one.
    trees: Vec<PathBuf>,
    /// The tree that our own processes join.
    tracking: PathBuf,
    version_2: bool,
}

impl Cgroups {
    pub fn detect() -> Result<Self> {
        let mount = Path::new(MOUNT);
        let kind = statfs(mount).with_context(|| format!("{MOUNT}: no control groups"))?.filesystem_type();
        if kind == CGROUP2_SUPER_MAGIC {
            return Ok(Self { trees: vec![mount.into()], tracking: mount.into(), version_2: true });
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let trees: Vec<PathBuf> = mounts.lines().filter_map(tree).collect();
        let tracking = ["pids", "freezer", "systemd"].iter().map(|name| mount.join(name)).find(|t| trees.contains(t));
        match tracking.or_else(|| trees.first().cloned()) {
            Some(tracking) => Ok(Self { trees, tracking, version_2: false }),
            None => bail!("{MOUNT}: no control groups are mounted"),
        }
    }

    /// Makes the group in every tree, with its controllers usable: what kubelet needs of its root.
    pub fn prepare(&self, group: &str) -> Result<()> {
        for tree in &self.trees {
            let mut at = tree.clone();
            for part in group.trim_matches('/').split('/') {
                if self.version_2 {
                    enable_controllers(&at);
                }
                let parent = at.clone();
                at.push(part);
                make(&at)?;
                inherit_cpuset(&parent, &at)?;
            }
            if self.version_2 {
                enable_controllers(&at);
            }
        }
        Ok(())
    }

    /// Makes the leaf of a group that our own processes join, and returns its folder.
    pub fn prepare_leaf(&self, group: &str) -> Result<PathBuf> {
        let leaf = self.tracking.join(group.trim_matches('/')).join(LEAF);
        fs::create_dir_all(&leaf).with_context(|| format!("cannot make the control group {}", leaf.display()))?;
        Ok(leaf)
    }

    /// Processes of the group and of all groups below it.
    pub fn members(&self, group: &str) -> Vec<i32> {
        let mut found = Vec::new();
        for tree in &self.trees {
            collect(&tree.join(group.trim_matches('/')), &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Kills all members, and what they start meanwhile, until there are none.
    pub async fn kill(&self, group: &str) -> Result<()> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let members = self.members(group);
            if members.is_empty() {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                bail!("control group {group}: processes {members:?} did not end within 60 s of SIGKILL");
            }
            for pid in members {
                // One that has just ended is what we want.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Removes the group and all groups below it, in every tree. The members must have ended.
    pub async fn remove(&self, group: &str) -> Result<()> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while let Some(rest) = self.remove_once(group) {
            if tokio::time::Instant::now() > deadline {
                bail!("cannot remove the control group {}", rest.display());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    pub fn exists(&self, group: &str) -> bool {
        self.trees.iter().any(|tree| tree.join(group.trim_matches('/')).exists())
    }

    fn remove_once(&self, group: &str) -> Option<PathBuf> {
        let folders = self.trees.iter().map(|tree| tree.join(group.trim_matches('/')));
        folders.filter(|folder| folder.exists()).find(|folder| !remove_tree(folder))
    }
}

/// Version 2 may be mounted beside version 1, without controllers; runc makes groups there too.
fn tree(line: &str) -> Option<PathBuf> {
    let (left, right) = line.split_once(" - ")?;
    if !["cgroup", "cgroup2"].contains(&right.split_ascii_whitespace().next()?) {
        return None;
    }
    let at = PathBuf::from(left.split_ascii_whitespace().nth(4)?);
    at.starts_with(MOUNT).then_some(at)
}

fn make(folder: &Path) -> Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make the control group {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// A controller that this kernel lacks cannot be enabled; kubelet says which ones it misses.
fn enable_controllers(folder: &Path) {
    for controller in CONTROLLERS {
        let _ = fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// Version 1: a new cpuset has no processor and no memory, and nothing can join it before it has.
fn inherit_cpuset(parent: &Path, child: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (parent.join(file), child.join(file));
        let wanted = fs::read_to_string(&from).unwrap_or_default();
        if wanted.trim().is_empty() || !fs::read_to_string(&to).is_ok_and(|now| now.trim().is_empty()) {
            continue;
        }
        // On version 2 an empty file means "as above", and only a delegated controller can be written.
        if child.join("cpuset.cpu_exclusive").exists() {
            fs::write(&to, wanted).with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    Ok(())
}

fn collect(folder: &Path, found: &mut Vec<i32>) {
    let Ok(procs) = fs::read_to_string(folder.join("cgroup.procs")) else { return };
    found.extend(procs.lines().filter_map(|line| line.parse::<i32>().ok()));
    for child in folders(folder) {
        collect(&child, found);
    }
}

fn remove_tree(folder: &Path) -> bool {
    let children = folders(folder).iter().all(|child| remove_tree(child));
    children && (fs::remove_dir(folder).is_ok() || !folder.exists())
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Both versions where this machine has both.
    fn kinds() -> Vec<Cgroups> {
        let mut kinds: Vec<Cgroups> = Cgroups::detect().into_iter().collect();
        let beside = Path::new(MOUNT).join("unified");
        if beside.join("cgroup.procs").exists() {
            kinds.push(Cgroups { trees: vec![beside.clone()], tracking: beside, version_2: true });
        }
        kinds
    }

    #[tokio::test]
    async fn members_are_found_and_killed_and_the_group_goes() {
        if !nix::unistd::geteuid().is_root() || kinds().is_empty() {
            eprintln!("SKIP members_are_found_and_killed_and_the_group_goes: needs root and control groups");
            return;
        }
        for cgroups in kinds() {
            let group = format!("/metalplane-test-{}", std::process::id());
            cgroups.prepare(&format!("{group}/node")).expect("a group");
            let leaf = cgroups.prepare_leaf(&format!("{group}/node")).expect("a leaf");
            let mut child = tokio::process::Command::new("sleep").arg("1000").spawn().expect("a process");
            let pid = child.id().expect("it runs");
            fs::write(leaf.join("cgroup.procs"), pid.to_string()).expect("it joins");
            assert_eq!(cgroups.members(&group), [i32::try_from(pid).expect("a process id")]);
            let (killed, ended) = tokio::join!(cgroups.kill(&group), child.wait());
            killed.expect("killed");
            assert!(!ended.expect("ended").success());
            cgroups.remove(&group).await.expect("removed");
            assert!(!cgroups.exists(&group));
        }
    }

    /// Version 2: kubelet finds in its root every controller that there is, and makes groups for pods beside our own processes.
    #[tokio::test]
    async fn a_nodes_group_of_version_2_has_all_controllers_and_no_process() {
        let name = "a_nodes_group_of_version_2_has_all_controllers_and_no_process";
        let cgroups = kinds().into_iter().find(|cgroups| cgroups.version_2);
        let Some(cgroups) = cgroups.filter(|_| nix::unistd::geteuid().is_root()) else {
            eprintln!("SKIP {name}: needs root and control groups of version 2");
            return;
        };
        let words = |file: PathBuf| -> BTreeSet<String> {
            let text = fs::read_to_string(file).expect("a file of a control group");
            text.split_ascii_whitespace().map(str::to_owned).collect()
        };
        let offered = words(cgroups.tracking.join("cgroup.controllers"));
        let ours: BTreeSet<String> =
            CONTROLLERS.iter().map(|it| (*it).to_owned()).filter(|it| offered.contains(it)).collect();
        let group = format!("/metalplane-test2-{}", std::process::id());
        cgroups.prepare(&format!("{group}/node")).expect("a group");
        let node = cgroups.tracking.join(group.trim_matches('/')).join("node");
        let leaf = cgroups.prepare_leaf(&format!("{group}/node")).expect("a leaf");
        let pod = node.join("kubepods");
        fs::create_dir(&pod).expect("as kubelet does");
        let mut children = Vec::new();
        for folder in [&leaf, &pod] {
            let child = tokio::process::Command::new("sleep").arg("1000").spawn().expect("a process");
            let joined = fs::write(folder.join("cgroup.procs"), child.id().expect("it runs").to_string());
            joined.unwrap_or_else(|error| panic!("join {}: {error}", folder.display()));
            children.push(child);
        }
        let (has, passes_on) = (words(node.join("cgroup.controllers")), words(node.join("cgroup.subtree_control")));
        let pods = words(pod.join("cgroup.controllers"));
        let killed = cgroups.kill(&group).await;
        for mut child in children {
            child.wait().await.expect("ended");
        }
        cgroups.remove(&group).await.expect("removed");
        killed.expect("killed");
        assert_eq!([&has, &passes_on, &pods], [&ours; 3], "of {offered:?}");
    }
}
