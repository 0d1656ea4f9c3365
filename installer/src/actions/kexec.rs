//! `kexec`: the kernel of the system on the disk, started in the place of this one, without the firmware's part of a restart. Upstream's
//! `BLOCK_DEVICE`, `FS_TYPE`, `KERNEL_PATH`, `INITRD_PATH`, `CMD_LINE` and `GRUBCFG_PATH`. Without a `KERNEL_PATH` it is what the default entry
//! of the disk's `grub.cfg` starts ([`grub`]), with the arguments of `CMD_LINE` if that is given.
//!
//! Here the kernel is loaded, which tells whether it can be started; it starts when the server has heard of that.

use super::{optional, required};
use crate::agent::Action;
use crate::disks::Disks;
use crate::filesystem::Mounted;
use crate::grub;
use crate::lines::Lines;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::MountFlags;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

const GRUB: &str = "boot/grub/grub.cfg";
/// Several archives as one.
const JOINED: &str = "/run/initramfs";
/// The kernel skips zeros before an archive up to a multiple of that.
const ALIGNED: u64 = 4;
/// What is left over when a kernel was loaded.
const SPARE: u64 = 32 << 20;
/// Of a grub.cfg; they have some kilobytes.
const MOST: u64 = 1 << 20;

struct Job {
    kind: String,
    kernel: Option<Start>,
    /// Of the file that says what to start.
    grub: String,
    arguments: Option<String>,
}

/// What is loaded.
struct Start {
    kernel: String,
    initramfs: Vec<String>,
    arguments: CString,
}

impl Job {
    fn read(action: &Action) -> Result<Self, String> {
        let arguments = optional(action, "CMD_LINE").map(str::to_owned);
        let kernel = optional(action, "KERNEL_PATH").map(|kernel| {
            let initramfs = optional(action, "INITRD_PATH").map(str::to_owned);
            Start::new(kernel.to_owned(), initramfs.into_iter().collect(), arguments.clone().unwrap_or_default())
        });
        Ok(Self {
            kind: required(action, "FS_TYPE", "the file system's type, as ext4")?.to_owned(),
            kernel: kernel.transpose()?,
            grub: optional(action, "GRUBCFG_PATH").unwrap_or(GRUB).to_owned(),
            arguments,
        })
    }
}

impl Start {
    fn new(kernel: String, initramfs: Vec<String>, arguments: String) -> Result<Self, String> {
        let arguments = CString::new(arguments).map_err(|_| "CMD_LINE has a zero byte in it: write text".to_owned())?;
        Ok(Self { kernel, initramfs, arguments })
    }

    /// The arguments are not told: they may have a token in them.
    fn said(&self) -> String {
        match self.initramfs.is_empty() {
            true => format!("{} without an initramfs", self.kernel),
            false => format!("{} with {}", self.kernel, self.initramfs.join(", ")),
        }
    }
}

pub(super) async fn run(disks: &Disks, action: &Action, lines: &Lines) -> Result<(), String> {
    let job = Job::read(action)?;
    let disk = disks.find_of("BLOCK_DEVICE", required(action, "BLOCK_DEVICE", "the partition, as /dev/nvme0n1p1")?)?;
    if job.kernel.is_none() && optional(action, "INITRD_PATH").is_some() {
        lines.say("INITRD_PATH is not used without KERNEL_PATH");
    }
    let node = disk.node.clone();
    let said = tokio::task::spawn_blocking(move || on(&node, job)).await;
    let said = said.unwrap_or_else(|panic| Err(format!("loading a kernel: {panic}")))?;
    lines.say(&format!("disk {}: {said}: loaded, and starts when this was told", disk.node.display()));
    Ok(())
}

/// With the file system mounted for so long; what was loaded.
fn on(node: &Path, job: Job) -> Result<String, String> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mounted = Mounted::new(node, &job.kind, flags)?;
    let loaded = what(mounted.root(), job).and_then(|start| load(mounted.root(), &start).map(|()| start.said()));
    let closed = mounted.close();
    let loaded = loaded.map_err(|error| format!("disk {}: {error}", node.display()))?;
    closed.map(|()| loaded)
}

fn what(root: &File, job: Job) -> Result<Start, String> {
    if let Some(start) = job.kernel {
        return Ok(start);
    }
    let refused = |why: String, key: &str| format!("KERNEL_PATH is not given, and {}: {why}: write {key}", job.grub);
    let mut text = String::new();
    let read = open(root, &job.grub).and_then(|file| file.take(MOST).read_to_string(&mut text));
    read.map_err(|error| refused(error.to_string(), "KERNEL_PATH, or where grub.cfg is as GRUBCFG_PATH"))?;
    let entry = grub::default_entry(&text).map_err(|why| refused(why, "KERNEL_PATH, INITRD_PATH and CMD_LINE"))?;
    let arguments = match job.arguments {
        Some(arguments) => arguments,
        None => entry.arguments.map_err(|why| refused(why, "CMD_LINE"))?,
    };
    Start::new(entry.kernel, entry.initramfs, arguments)
}

fn load(root: &File, start: &Start) -> Result<(), String> {
    let opened = |path: &str| open(root, path).map_err(|error| format!("opening its {path}: {error}"));
    let kernel = opened(&start.kernel)?;
    let archives = start.initramfs.iter().map(|path| opened(path)).collect::<Result<Vec<_>, _>>()?;
    has_room(&kernel, &archives)?;
    let joined = |error: io::Error| format!("joining {}: {error}", start.initramfs.join(", "));
    let initramfs = match archives.len() {
        0 | 1 => archives.into_iter().next(),
        _ => Some(join(archives, Path::new(JOINED)).map_err(joined)?),
    };
    linux_sys::kexec::load(&kernel, initramfs.as_ref(), &start.arguments).map_err(|error| {
        let hint = match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::NOEXEC) => " (it is no kernel for this machine, or it is compressed as a whole)",
            Some(rustix::io::Errno::PERM) => {
                " (with Secure Boot a kernel has to be signed by a key that this one knows)"
            }
            _ => "",
        };
        format!("loading its {}: {error}{hint}", start.said())
    })
}

/// The kernel reads each file, and copies it to where the new one finds it; without the memory for that it panics.
fn has_room(kernel: &File, archives: &[File]) -> Result<(), String> {
    let length = |file: &File| file.metadata().map(|metadata| metadata.len());
    let lengths = archives.iter().map(length).collect::<io::Result<Vec<_>>>();
    let all = lengths.and_then(|lengths| Ok((length(kernel)?, lengths.iter().sum::<u64>())));
    let (kernel, archive) = all.map_err(|error| format!("how much it has to load: {error}"))?;
    let joined = if archives.len() > 1 { archive } else { 0 };
    let text = fs::read_to_string("/proc/meminfo").map_err(|error| format!("reading /proc/meminfo: {error}"))?;
    enough(2 * (kernel + archive) + joined + SPARE, &text)
}

fn enough(wanted: u64, meminfo: &str) -> Result<(), String> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.strip_suffix("kB"));
    let kib = line.and_then(|kib| kib.trim().parse::<u64>().ok()).ok_or("/proc/meminfo has no MemAvailable")?;
    match kib * 1024 >= wanted {
        true => Ok(()),
        false => Err(format!(
            "kernel and initramfs take {wanted} bytes of memory to load, {} are free: restart the server instead (reboot)",
            kib * 1024
        )),
    }
}

/// All links are followed within the file system.
fn open(root: &File, path: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
    opened.map(File::from).map_err(io::Error::from)
}

/// For reading: the kernel takes no file that somebody may write.
fn join(archives: Vec<File>, at: &Path) -> io::Result<File> {
    let mut all = File::create(at)?;
    for mut archive in archives {
        let length = io::copy(&mut archive, &mut all)?;
        let rest = length.next_multiple_of(ALIGNED) - length;
        io::copy(&mut io::repeat(0).take(rest), &mut all)?;
    }
    all.flush()?;
    drop(all);
    let joined = File::open(at)?;
    // Its bytes stay for as long as it is open.
    fs::remove_file(at)?;
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::super::tests::action;
    use super::*;

    const MENU: &str = "menuentry 'A' {\n linux /boot/vmlinuz root=/dev/vda1 ${more}\n initrd /boot/a /boot/b\n}\n";

    fn found(disk: &Path, environment: &[(&str, &str)]) -> Result<Start, String> {
        let environment = [&[("FS_TYPE", "ext4")], environment].concat();
        what(&File::open(disk).expect("opened"), Job::read(&action("kexec", &environment))?)
    }

    #[test]
    fn what_is_started_is_given_or_the_default_of_the_disk() {
        let disk = tempfile::tempdir().expect("a folder");
        let given = [("KERNEL_PATH", "/vmlinuz"), ("INITRD_PATH", "/initrd"), ("CMD_LINE", "ro")];
        let start = found(disk.path(), &given).expect("given");
        assert_eq!(start.said(), "/vmlinuz with /initrd");
        assert_eq!(start.arguments.as_bytes(), b"ro");
        let alone = found(disk.path(), &given[..1]).expect("given");
        assert_eq!((alone.said().as_str(), alone.arguments.as_bytes()), ("/vmlinuz without an initramfs", &b""[..]));

        let missing = found(disk.path(), &[]).err().expect("there is no grub.cfg");
        assert!(missing.contains("boot/grub/grub.cfg: No such file") && missing.contains("GRUBCFG_PATH"), "{missing}");
        fs::create_dir_all(disk.path().join("grub")).expect("made");
        fs::write(disk.path().join("grub/grub.cfg"), MENU).expect("written");
        let of_menu = [("GRUBCFG_PATH", "grub/grub.cfg"), ("CMD_LINE", "ro")];
        let start = found(disk.path(), &of_menu).expect("the default entry");
        assert_eq!(start.said(), "/boot/vmlinuz with /boot/a, /boot/b");
        assert_eq!(start.arguments.as_bytes(), b"ro", "CMD_LINE instead of the entry's");
        let refused = found(disk.path(), &of_menu[..1]).err().expect("a variable");
        assert!(refused.contains("${more}") && refused.ends_with("write CMD_LINE"), "{refused}");
    }

    #[test]
    fn archives_are_joined_at_multiples_of_four() {
        let folder = tempfile::tempdir().expect("a folder");
        let archives = ["abcde", "f"].map(|text| {
            fs::write(folder.path().join(text), text).expect("written");
            File::open(folder.path().join(text)).expect("opened")
        });
        let mut joined = join(archives.into(), &folder.path().join("joined")).expect("joined");
        let mut bytes = Vec::new();
        joined.read_to_end(&mut bytes).expect("read");
        assert_eq!(bytes, b"abcde\0\0\0f\0\0\0");
        assert!(joined.write_all(b"x").is_err() && !folder.path().join("joined").exists());
    }

    #[test]
    fn a_kernel_that_does_not_fit_into_memory_is_not_loaded() {
        let meminfo = "MemTotal:         400000 kB\nMemAvailable:     100 kB\n";
        assert_eq!(enough(102_400, meminfo), Ok(()));
        let error = enough(102_401, meminfo).expect_err("a byte too many");
        assert!(error.contains("102401 bytes") && error.contains("102400 are free"), "{error}");
        assert!(enough(1, "MemTotal: 1 kB\n").is_err());
    }

    #[test]
    fn a_link_leads_nowhere_out_of_the_file_system() {
        let disk = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink("/proc/version", disk.path().join("vmlinuz")).expect("linked");
        let root = File::open(disk.path()).expect("opened");
        let start = Start::new("/vmlinuz".to_owned(), Vec::new(), String::new()).expect("text");
        let error = load(&root, &start).expect_err("that is not in this file system");
        assert!(error.starts_with("opening its /vmlinuz: No such file"), "{error}");
    }
}
