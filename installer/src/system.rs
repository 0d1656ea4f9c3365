//! What process 1 owes its kernel.

use anyhow::{Context, Result};
use rustix::mount::MountFlags;
use rustix::system::RebootCommand;
use std::ffi::CStr;
use std::fs;
use std::path::Path;

/// Kernel file systems. The kernel has made the folders' parents: the initramfs has them.
pub fn mount_all() -> Result<()> {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/run")] {
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        rustix::mount::mount(kind, target, kind, flags, None::<&CStr>)
            .with_context(|| format!("mount {kind} on {target}"))?;
    }
    Ok(())
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
