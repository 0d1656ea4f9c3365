//! What process 1 owes its kernel.

use anyhow::{Context, Result};
use rustix::mount::MountFlags;
use rustix::system::RebootCommand;
use std::ffi::CStr;
use std::fs::{self, File};
use std::path::Path;

const MODULES: &str = "/lib/modules";

/// Kernel file systems. The kernel has made the folders' parents: the initramfs has them.
pub fn mount_all() -> Result<()> {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/run")] {
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        rustix::mount::mount(kind, target, kind, flags, None::<&CStr>)
            .with_context(|| format!("mount {kind} on {target}"))?;
    }
    Ok(())
}

/// Loads the modules of the image in the order of their names, which is that of what they need from each other.
/// One that this machine has no use for may refuse (`NoDevice`); it is told and passed over.
pub fn load_modules() -> Result<()> {
    let mut modules: Vec<_> = match fs::read_dir(MODULES) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?,
        Err(_) => Vec::new(),
    };
    modules.sort();
    for path in modules {
        let module = File::open(&path).with_context(|| format!("open {}", path.display()))?;
        match rustix::system::finit_module(&module, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => println!("installer: the kernel did not take {}: {error}", path.display()),
        }
    }
    Ok(())
}

/// Everything that was written is kept; then the machine starts again. It does not return unless the kernel refuses.
pub fn restart() -> Result<()> {
    rustix::fs::sync();
    rustix::system::reboot(RebootCommand::Restart).context("restart")
}

/// The line that the boot script wrote.
pub fn kernel_arguments() -> Result<String> {
    let path = Path::new("/proc/cmdline");
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}
