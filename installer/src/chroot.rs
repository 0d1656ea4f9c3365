//! Programs of a mounted file system, run with it as their `/`, and with this system's `/dev`, `/proc` and `/sys` in it.
//!
//! The mounts are those of one thread ([`apart`]): when it ends, however it does, they are gone. What a program left running is ended with it:
//! a process that still had a file of the disk open would keep the disk in use for every action that follows.

use crate::lines::LENGTH;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const BOUND: [&str; 3] = ["dev", "proc", "sys"];
const NAME_SERVERS: &str = "/etc/resolv.conf";
/// For a process to end that was killed, and for the last of what it said.
const END: Duration = Duration::from_secs(30);

/// Does `work` in a thread that has its mounts for itself.
pub fn apart<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> io::Result<tokio::sync::oneshot::Receiver<Result<T, String>>> {
    let (tell, told) = tokio::sync::oneshot::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let own = unshare(CloneFlags::CLONE_NEWNS).map_err(io::Error::from).and_then(|()| {
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            rustix::mount::mount_change("/", private).map_err(io::Error::from)
        });
        let done = own.map_err(|error| format!("mounts of its own: {error}")).and_then(|()| work());
        // Nobody waits for it any more when the machine restarts.
        let _ = tell.send(done);
    })?;
    Ok(told)
}

/// This system's file systems, in that of a disk.
pub struct Bound<'a> {
    root: &'a File,
    /// In the order of their mounting.
    mounts: Vec<PathBuf>,
    /// A file that was made to be mounted on.
    made: Option<PathBuf>,
}

impl<'a> Bound<'a> {
    /// `name_servers`: with this system's, in the place of its own. The error says which step failed.
    pub fn new(root: &'a File, name_servers: bool) -> Result<Self, String> {
        let mut bound = Self { root, mounts: Vec::new(), made: None };
        for name in BOUND {
            let place = inside(root, name).map_err(|error| format!("its folder /{name}: {error}"))?;
            rustix::mount::mount_bind(format!("/{name}"), &place)
                .map_err(|error| format!("mounting /{name} in it: {error}"))?;
            bound.mounts.push(place);
        }
        if name_servers {
            bound.name_servers().map_err(|error| format!("UPDATE_RESOLV_CONF: its {NAME_SERVERS}: {error}"))?;
        }
        Ok(bound)
    }

    /// The disk's own stays as it is, under the mount; if it is a link, under a mount on the link.
    fn name_servers(&mut self) -> io::Result<()> {
        if !Path::new(NAME_SERVERS).exists() {
            return Err(io::Error::new(ErrorKind::NotFound, "this installer was told no name server"));
        }
        let place = inside(self.root, "etc")?.join("resolv.conf");
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = match rustix::fs::openat(CWD, &place, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => {
                File::create_new(&place)?;
                self.made = Some(place.clone());
                rustix::fs::openat(CWD, &place, flags, Mode::empty())?
            }
            opened => opened?,
        };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&target)?.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Symlink) {
            return Err(io::Error::other("it is neither a file nor a link"));
        }
        rustix::mount::mount_bind(NAME_SERVERS, by_descriptor(&target))?;
        self.mounts.push(place.clone());
        drop(target);
        // A program that writes its own would write this system's.
        let read_only = MountFlags::BIND | MountFlags::RDONLY;
        rustix::mount::mount_remount(&place, read_only, "").map_err(io::Error::from)
    }

    /// Runs one program to its end, and ends whatever it left running. `say` gets each line of what it says.
    pub fn run(
        &self,
        mut command: Command,
        deadline: Instant,
        say: impl Fn(String) + Send + 'static,
    ) -> Result<ExitStatus, String> {
        let (reader, writer) = io::pipe().map_err(|error| format!("a pipe: {error}"))?;
        let both = writer.try_clone().map_err(|error| format!("a pipe: {error}"))?;
        command.stdin(Stdio::null()).stdout(writer).stderr(both);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = start(self.root, &mut command);
        drop(command);
        let mut child = child.map_err(|error| format!("{name} does not start: {error}"))?;
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            each_line(reader, say);
            // Whoever waited may have given up.
            let _ = end.send(());
        });
        let is_in_time = wait(&child, deadline);
        if !matches!(is_in_time, Ok(true)) {
            // It may have another root by now.
            child.kill().map_err(|error| format!("killing {name}: {error}"))?;
        }
        end_all(self.root).map_err(|error| format!("what {name} left running: {error}"))?;
        let status = child.wait().map_err(|error| format!("the end of {name}: {error}"))?;
        ended.recv_timeout(END).map_err(|_| format!("what {name} says has no end"))?;
        match is_in_time.map_err(|error| format!("waiting for {name}: {error}"))? {
            true => Ok(status),
            false => Err(format!("the action's time is over: {name} was killed")),
        }
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        for place in self.mounts.iter().rev() {
            // What cannot be undone here is told by the unmounting of the disk, which is in use then.
            let _ = rustix::mount::unmount(place, UnmountFlags::NOFOLLOW);
        }
        if let Some(made) = &self.made {
            let _ = fs::remove_file(made);
        }
    }
}

/// Where a folder of the file system is, all links followed within it.
fn inside(root: &File, name: &str) -> io::Result<PathBuf> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat2(root, name, flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
    fs::read_link(by_descriptor(&folder))
}

/// Whether there is such a file, all links followed within the file system.
pub fn has_file(root: &File, path: &str) -> bool {
    let opened = rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT);
    let kind = opened.and_then(rustix::fs::fstat).map(|stat| FileType::from_raw_mode(stat.st_mode));
    kind == Ok(FileType::RegularFile)
}

fn by_descriptor(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// A thread that ends with it has that root, and nobody else.
fn start(root: &File, command: &mut Command) -> io::Result<Child> {
    let started = thread::scope(|scope| {
        let start = || {
            unshare(CloneFlags::CLONE_FS)?;
            rustix::process::fchdir(root)?;
            rustix::process::chroot(".")?;
            command.spawn()
        };
        scope.spawn(start).join()
    });
    started.unwrap_or_else(|_| Err(io::Error::other("starting it: a panic")))
}

/// Whether it has ended by then.
fn wait(child: &Child, deadline: Instant) -> io::Result<bool> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(ErrorKind::InvalidInput)?;
    has_ended(&pidfd_open(pid, PidfdFlags::empty())?, deadline)
}

fn has_ended(process: &OwnedFd, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // A part of a millisecond is one.
        let left = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], left) {
            Ok(0) if Instant::now() >= deadline => return Ok(false),
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Kills every process whose `/` is in that file system, and waits for its end.
fn end_all(root: &File) -> io::Result<()> {
    let device = root.metadata()?.dev();
    let deadline = Instant::now() + END;
    loop {
        let mut is_alone = true;
        for entry in fs::read_dir("/proc")?.flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = number.and_then(Pid::from_raw) else { continue };
            // One that ends meanwhile has no root any more, and the descriptor is of no other one with its number.
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if !fs::metadata(entry.path().join("root")).is_ok_and(|root| root.dev() == device) {
                continue;
            }
            is_alone = false;
            match pidfd_send_signal(&process, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
            if !has_ended(&process, deadline)? {
                let seconds = END.as_secs();
                return Err(io::Error::other(format!(
                    "process {} did not end within {seconds} s",
                    pid.as_raw_nonzero()
                )));
            }
        }
        if is_alone {
            return Ok(());
        }
    }
}

/// Ended by a line's end, a carriage return, or as many bytes as a report takes of one. Without what would steer a console.
fn each_line(mut output: impl Read, say: impl Fn(String)) {
    let mut line = Vec::new();
    let mut buffer = [0; 4096];
    let end = |line: &mut Vec<u8>| {
        let text = String::from_utf8_lossy(line).replace(|c: char| c.is_control() && c != '\t', "");
        line.clear();
        if !text.trim().is_empty() {
            say(text);
        }
    };
    loop {
        match output.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                for byte in &buffer[..length] {
                    match byte {
                        b'\n' | b'\r' => end(&mut line),
                        byte => line.push(*byte),
                    }
                    if line.len() == LENGTH {
                        end(&mut line);
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    end(&mut line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn lines_end_and_do_not_steer_the_console() {
        let said = RefCell::new(Vec::new());
        let long = "x".repeat(LENGTH + 1);
        let output = format!("one\n\n10%\r100%\n\u{1b}[31mred\u{1b}[0m\t.\n{long}\nrest");
        each_line(output.as_bytes(), |line| said.borrow_mut().push(line));
        let expected = ["one", "10%", "100%", "[31mred[0m\t.", &long[1..], "x", "rest"];
        assert_eq!(said.into_inner(), expected);
    }

    #[test]
    fn a_process_is_waited_for_until_its_time_is_over() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep starts");
        assert!(!wait(&child, Instant::now() + Duration::from_millis(20)).expect("it runs"));
        child.kill().expect("killed");
        assert!(wait(&child, Instant::now() + END).expect("it has ended"));
        assert!(!child.wait().expect("its status").success());
    }

    #[test]
    fn a_folder_is_looked_for_within_the_file_system() {
        let disk = tempfile::tempdir().expect("a folder");
        let root = File::open(disk.path()).expect("opened");
        fs::create_dir(disk.path().join("usr")).expect("made");
        std::os::unix::fs::symlink("/usr", disk.path().join("dev")).expect("linked");
        let place = inside(&root, "dev").expect("found");
        assert_eq!(place, fs::canonicalize(disk.path().join("usr")).expect("there"));
        assert_eq!(inside(&root, "sys").expect_err("missing").kind(), ErrorKind::NotFound);
    }
}
