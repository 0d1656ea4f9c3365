//! `writefile`: one file in a file system on the disk. Upstream's `DEST_DISK` (the partition), `FS_TYPE`, `DEST_PATH`, `CONTENTS`, `UID`,
//! `GID`, `MODE` and `DIRMODE`, all of them required. Folders that are missing are made; links in the path are followed within that file
//! system, as its own system will follow them.

use super::required;
use crate::agent::Action;
use crate::disks::Disks;
use crate::filesystem::Mounted;
use crate::lines::Lines;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::MountFlags;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::{Component, Path, PathBuf};

struct Job {
    kind: String,
    /// Below the file system's root.
    path: PathBuf,
    contents: Vec<u8>,
    owner: u32,
    group: u32,
    mode: u32,
    folder_mode: u32,
}

impl Job {
    fn read(action: &Action) -> Result<Self, String> {
        let number = |key, radix, what| {
            let text = required(action, key, what)?;
            u32::from_str_radix(text, radix).map_err(|_| format!("{key} is {text:?}: write {what}"))
        };
        let mode = |key| match number(key, 8, "a mode as 0644") {
            Ok(mode) if mode > 0o7777 => Err(format!("{key} is {mode:o}: write a mode as 0644")),
            mode => mode,
        };
        let path = Path::new(required(action, "DEST_PATH", "the file's path, from the file system's root")?);
        let below = path.strip_prefix("/").ok().filter(|below| {
            below.file_name().is_some() && below.components().all(|part| matches!(part, Component::Normal(_)))
        });
        let below =
            below.ok_or_else(|| format!("DEST_PATH is {}: write an absolute path of a file", path.display()))?;
        // An empty file is a file.
        let contents = action
            .environment
            .get("CONTENTS")
            .ok_or("CONTENTS is missing from the environment: write the file's text")?;
        Ok(Self {
            kind: required(action, "FS_TYPE", "the file system's type, as ext4")?.to_owned(),
            path: below.to_owned(),
            contents: contents.clone().into_bytes(),
            owner: number("UID", 10, "the owner's number")?,
            group: number("GID", 10, "the group's number")?,
            mode: mode("MODE")?,
            folder_mode: mode("DIRMODE")?,
        })
    }
}

pub(super) async fn run(disks: &Disks, action: &Action, lines: &Lines) -> Result<(), String> {
    let job = Job::read(action)?;
    let disk = disks.find(required(action, "DEST_DISK", "the partition, as /dev/nvme0n1p1")?)?;
    let said = format!("disk {}: /{}: {} bytes", disk.node.display(), job.path.display(), job.contents.len());
    let node = disk.node.clone();
    let done = tokio::task::spawn_blocking(move || on(&node, &job)).await;
    done.unwrap_or_else(|panic| Err(format!("writing a file: {panic}")))?;
    lines.say(&said);
    Ok(())
}

/// With the file system mounted for so long.
fn on(node: &Path, job: &Job) -> Result<(), String> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mounted = Mounted::new(node, &job.kind, flags)?;
    let written = write(mounted.root(), job);
    let written = written.map_err(|error| mounted.failed(&format!("writing /{}", job.path.display()), &error));
    let closed = mounted.close();
    written?;
    closed
}

/// `root` is as `/` for every link on the way.
fn write(root: &File, job: &Job) -> io::Result<()> {
    let open = |path: &Path, flags: OFlags, mode: u32| {
        let flags = flags | OFlags::CLOEXEC;
        let opened = rustix::fs::openat2(root, path, flags, Mode::from_raw_mode(mode), ResolveFlags::IN_ROOT);
        opened.map(File::from)
    };
    let mut folder = PathBuf::from(".");
    let mut inside = root.try_clone()?;
    for part in job.path.parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        let is_new = match rustix::fs::mkdirat(&inside, part.as_os_str(), Mode::from_raw_mode(job.folder_mode)) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        inside = open(&folder, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        if is_new {
            inside.set_permissions(Permissions::from_mode(job.folder_mode))?;
            fchown(&inside, Some(job.owner), Some(job.group))?;
        }
    }
    let mut file = open(&job.path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, 0o600)?;
    file.write_all(&job.contents)?;
    // The owner first: a change of it takes set-user-id away.
    fchown(&file, Some(job.owner), Some(job.group))?;
    file.set_permissions(Permissions::from_mode(job.mode))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn job(path: &str) -> Job {
        Job {
            kind: "ext4".to_owned(),
            path: path.into(),
            contents: b"text".to_vec(),
            owner: rustix::process::getuid().as_raw(),
            group: rustix::process::getgid().as_raw(),
            mode: 0o640,
            folder_mode: 0o750,
        }
    }

    #[test]
    fn folders_are_made_and_modes_are_those_asked_for() {
        let disk = tempfile::tempdir().expect("a folder");
        let root = File::open(disk.path()).expect("opened");
        write(&root, &job("etc/cloud/a.cfg")).expect("written");
        let at = |path: &str| fs::metadata(disk.path().join(path)).expect("there").mode() & 0o7777;
        assert_eq!((at("etc"), at("etc/cloud"), at("etc/cloud/a.cfg")), (0o750, 0o750, 0o640));
        let shorter = Job { contents: b"x".to_vec(), mode: 0o4755, ..job("etc/cloud/a.cfg") };
        write(&root, &shorter).expect("written again");
        assert_eq!(fs::read(disk.path().join("etc/cloud/a.cfg")).expect("read"), b"x");
        assert_eq!(at("etc/cloud/a.cfg"), 0o4755);
    }

    #[test]
    fn a_link_leads_nowhere_out_of_the_file_system() {
        let (disk, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let root = File::open(disk.path()).expect("opened");
        // Absolute, as its own system means it; upwards, as far as its root; and a file that is a link.
        fs::create_dir(disk.path().join("usr")).expect("made");
        symlink("/usr", disk.path().join("absolute")).expect("linked");
        symlink("../../../usr", disk.path().join("upwards")).expect("linked");
        symlink(outside.path().join("file"), disk.path().join("file")).expect("linked");
        write(&root, &job("absolute/a")).expect("written");
        write(&root, &job("upwards/b")).expect("written");
        assert!(disk.path().join("usr/a").is_file() && disk.path().join("usr/b").is_file());
        write(&root, &job("file")).expect_err("its folder is not in this file system");
        assert_eq!(fs::read_dir(outside.path()).expect("listed").count(), 0);
    }
}
