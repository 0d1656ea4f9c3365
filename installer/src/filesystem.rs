//! A file system of a disk, mounted for as long as one action needs it.

use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;

const MOUNTED: &str = "/run/disk";
/// Of which the installer's kernel has the drivers.
pub const KINDS: &str = "ext4, ext3, ext2, xfs or vfat";

pub struct Mounted {
    /// As messages have it: `disk /dev/vda1`.
    name: String,
    /// Closed before the guard unmounts.
    root: File,
    guard: Guard,
}

/// Unmounts, whatever ends the action.
struct Guard;

impl Mounted {
    /// `kind` is the value of `FS_TYPE`.
    pub fn new(node: &Path, kind: &str, flags: MountFlags) -> Result<Self, String> {
        let name = format!("disk {}", node.display());
        fs::create_dir_all(MOUNTED).map_err(|error| format!("{name}: making a folder: {error}"))?;
        rustix::mount::mount(node, MOUNTED, kind, flags, None::<&CStr>).map_err(|error| match error {
            rustix::io::Errno::NODEV => {
                format!("FS_TYPE is {kind:?}, of which the installer's kernel has no driver: write {KINDS}")
            }
            error => format!("{name}: mounting its {kind}: {error}"),
        })?;
        let guard = Guard;
        let root = File::open(MOUNTED).map_err(|error| format!("{name}: opening its root: {error}"))?;
        Ok(Self { name, root, guard })
    }

    pub fn root(&self) -> &File {
        &self.root
    }

    /// What a step's failure is as a message.
    pub fn failed(&self, step: &str, error: &io::Error) -> String {
        format!("{}: {step}: {error}", self.name)
    }

    /// With all that was written on the disk, and the disk nobody's; or it is told why not.
    pub fn close(self) -> Result<(), String> {
        let Self { name, root, guard } = self;
        let synced = rustix::fs::syncfs(&root);
        drop(root);
        let unmounted = guard.unmount();
        synced.map_err(|error| format!("{name}: writing what is in memory: {error}"))?;
        unmounted.map_err(|error| format!("{name}: unmounting: {error}"))
    }
}

impl Guard {
    fn unmount(self) -> rustix::io::Result<()> {
        rustix::mount::unmount(MOUNTED, UnmountFlags::empty())?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The cause is told already; whoever still has a file open keeps that alone.
        let _ = rustix::mount::unmount(MOUNTED, UnmountFlags::DETACH);
    }
}
