//! What process 1 owes its kernel.

use crate::boot_entries;
use crate::console;
use crate::modules::Modules;
use anyhow::{Context, Result};
use rustix::mount::MountFlags;
use rustix::system::RebootCommand;
use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Kernel file systems. The kernel has made the folders' parents: the initramfs has them.
pub fn mount_all() -> Result<()> {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/run")] {
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        rustix::mount::mount(kind, target, kind, flags, None::<&CStr>)
            .with_context(|| format!("mount {kind} on {target}"))?;
    }
    Ok(())
}

/// Where the firmware's variables are; `None`: it has none that Linux shows, as a BIOS. What is wanted of them is no part of an installation.
pub fn firmware_variables(modules: &mut Modules) -> Option<PathBuf> {
    const UEFI: &str = "/sys/firmware/efi";
    const KIND: &str = "efivarfs";
    if !Path::new(UEFI).exists() {
        return None;
    }
    let mounted = modules.named(KIND).and_then(|()| {
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        let mounted = rustix::mount::mount(KIND, boot_entries::FOLDER, KIND, flags, None::<&CStr>);
        mounted.with_context(|| format!("mount {KIND} on {}", boot_entries::FOLDER))
    });
    match mounted {
        Ok(()) => Some(boot_entries::FOLDER.into()),
        Err(error) => {
            console::say(format_args!("the firmware's variables: {error:#}"));
            None
        }
    }
}

/// Everything that was written is kept; then the machine starts again. It does not return unless the kernel refuses.
pub fn restart() -> Result<()> {
    rustix::fs::sync();
    rustix::system::reboot(RebootCommand::Restart).context("restart")
}

/// The same, but the kernel that was loaded starts, without the firmware.
pub fn start_loaded() -> Result<()> {
    rustix::fs::sync();
    rustix::system::reboot(RebootCommand::Kexec).context("start the loaded kernel")
}

/// The line that the boot script wrote.
pub fn kernel_arguments() -> Result<String> {
    let path = Path::new("/proc/cmdline");
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}
