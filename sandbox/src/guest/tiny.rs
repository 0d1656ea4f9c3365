//! The tiny guest: Debian's cloud kernel, a busybox initramfs, and a small ext4 root that counts its boots.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::architecture::Architecture;

use super::command::run;
use super::cpio::Archive;
use super::disk::{self, Content};
use super::kernel::{Flavour, Kernel};

const INIT: &str = include_str!("tiny/init");
const POWER_OFF: &str = include_str!("tiny/power-off");
const FILES: &[(&str, &str)] = &[
    ("etc/inittab", include_str!("tiny/inittab")),
    ("etc/acpi/PWRF/00000080", "#!/bin/sh\nexec /sbin/poweroff\n"),
    ("etc/profile", "export PATH=/sbin:/bin PS1='tiny# '\n"),
    ("etc/metalplane/common", include_str!("tiny/common")),
    ("etc/metalplane/start", include_str!("tiny/start")),
    ("etc/metalplane/network", include_str!("tiny/network")),
    ("etc/metalplane/network.awk", include_str!("tiny/network.awk")),
    ("etc/metalplane/lease", include_str!("tiny/lease")),
    ("etc/metalplane/watch", include_str!("tiny/watch")),
    ("bin/mp-write", include_str!("tiny/mp-write")),
    ("etc/metalplane/metadata", include_str!("tiny/metadata")),
];
pub const RECIPE: &[&str] = &[
    include_str!("tiny.rs"),
    include_str!("cpio.rs"),
    INIT,
    POWER_OFF,
    FILES[0].1,
    FILES[1].1,
    FILES[2].1,
    FILES[3].1,
    FILES[4].1,
    FILES[5].1,
    FILES[6].1,
    FILES[7].1,
    FILES[8].1,
    FILES[9].1,
    FILES[10].1,
];

/// Virtual NICs and disks. In load order: a module comes after those it depends on.
const VIRTIO: &[&str] = &[
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
    "drivers/block/virtio_blk",
];
/// After those.
const OTHERS: &[&str] = &[
    "fs/nls/nls_ascii",
    "fs/nls/nls_cp437",
    "fs/nls/nls_iso8859-1",
    "fs/nls/nls_utf8",
    "fs/fat/fat",
    "fs/fat/vfat",
    "drivers/acpi/button",
    "drivers/input/evdev",
];

/// A kernel and an initramfs that QEMU can start without firmware or disk.
pub struct BootFiles {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
}

/// The tiny guest's kernel and initramfs, for a start without a disk (the accelerator's probe).
pub fn boot_files(cache: &Path) -> Result<BootFiles> {
    let kind = super::Kind::Tiny;
    let folder = super::image(kind, cache)?;
    let folder = folder.parent().context("an image lies in a folder")?;
    Ok(BootFiles { kernel: folder.join("vmlinuz"), initramfs: folder.join("initramfs.cpio") })
}

/// Builds disk, kernel and initramfs into `folder`. `system` is what the guest says it is (`MP-SYSTEM`).
pub fn build(folder: &Path, cache: &Path, system: &str, root_label: &str) -> Result<()> {
    let work = tempfile::tempdir_in(folder).context("create a work folder")?;
    let kernel = Kernel::fetch(Flavour::Cloud, Architecture::here(), work.path(), cache)?;
    let image = folder.join("vmlinuz");
    fs::copy(&kernel.image, &image).with_context(|| format!("copy {}", kernel.image.display()))?;
    let initramfs_path = folder.join("initramfs.cpio");
    fs::write(&initramfs_path, initramfs(&kernel)?).with_context(|| format!("write {}", initramfs_path.display()))?;
    let root = work.path().join("root");
    fs::create_dir(&root).context("create the root's folder")?;
    fs::write(root.join("system"), system).context("write the root's marker")?;
    let content = Content {
        kernel: &image,
        initramfs: Some(&initramfs_path),
        bios: true,
        command_line: &format!("console=ttyS0 loglevel=4 panic=10 mp.system={system} mp.root={root_label}"),
        system,
        esp_mib: 48,
        root_mib: 16,
        root_label,
        root: &root,
    };
    disk::write(folder, &content)
}

fn initramfs(kernel: &Kernel) -> Result<Vec<u8>> {
    let program = static_busybox()?;
    let mut archive = Archive::default();
    let folders =
        "bin sbin etc etc/acpi etc/acpi/PWRF etc/metalplane lib lib/modules proc sys run mnt tmp root var var/log";
    for folder in folders.split(' ') {
        archive.folder(folder);
    }
    archive.program("bin/busybox", &program);
    for applet in
        run("busybox", ["--list"])?.lines().filter(|applet| !matches!(*applet, "busybox" | "poweroff" | "reboot"))
    {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
    archive.program("init", INIT.as_bytes());
    for name in ["sbin/poweroff", "sbin/reboot"] {
        archive.program(name, POWER_OFF.as_bytes());
    }
    for (path, content) in FILES {
        archive.program(path, content.as_bytes());
    }
    for (position, module) in VIRTIO.iter().chain(OTHERS).enumerate() {
        let name = module.rsplit('/').next().unwrap_or(module);
        archive.program(&format!("lib/modules/{position:02}-{name}.ko"), &kernel.module(module)?);
    }
    Ok(archive.finish())
}

/// The initramfs has no libraries: a busybox that wants some would not start.
fn static_busybox() -> Result<Vec<u8>> {
    let path =
        run("sh", ["-c", "command -v busybox"]).context("'busybox' is not installed (package busybox-static)")?;
    let program = fs::read(path.trim()).with_context(|| format!("read {}", path.trim()))?;
    let loader = b"/ld-linux";
    let dynamic = program.windows(loader.len()).take(1 << 12).any(|window| window == loader);
    ensure!(!dynamic, "{} wants libraries: install the package busybox-static", path.trim());
    Ok(program)
}
