//! The Debian guest: a real Debian 12 with systemd, cloud-init and sshd, for the demo.
//!
//! The kernel finds its root by the partition's id and has NVMe and ext4 built in, so no initramfs is needed: under
//! emulation its loading and unpacking would be a good part of the boot. Kernel and modules are unpacked, not
//! installed, for the same reason. The serial console is root's without a password: the image is for demonstrations.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::architecture::Architecture;

use super::command::run;
use super::disk::{self, Content, ROOT_PARTITION_ID};
use super::kernel::{Flavour, Kernel};

pub const RECIPE: &[&str] = &[include_str!("debian.rs")];

const PACKAGES: &str = "systemd-sysv,udev,dbus,kmod,cloud-init,cloud-guest-utils,netplan.io,openssh-server,iproute2,\
                        iputils-ping,procps,fdisk,e2fsprogs,nvme-cli,pciutils";

/// EC2's metadata where no disk has a seed; nothing of such a server says "EC2", so that there is any has to be tried (`strict_id`). One
/// kind of host key: under emulation each takes seconds. No locale: the package that makes them is not there.
const CLOUD_CONFIG: &str = "datasource_list: [NoCloud, Ec2, None]\ndatasource:\n  Ec2: {strict_id: false, max_wait: 30, \
                            timeout: 5, metadata_urls: ['http://169.254.169.254']}\nlocale: false\n\
                            ssh_genkeytypes: [ed25519]\nno_ssh_fingerprints: true\nssh:\n  emit_keys_to_console: false\n";
/// cloud-init looks itself, in that order. ds-identify would, before udev has loaded a driver: it would see no seed on a virtio disk.
const DS_IDENTIFY: &str = "policy: enabled\n";

/// Files of the guest that are ours.
const FILES: &[(&str, &str)] = &[
    ("etc/fstab", "LABEL=root / ext4 rw,errors=remount-ro,x-systemd.growfs 0 1\n"),
    ("etc/hostname", "debian\n"),
    ("etc/cloud/cloud.cfg.d/90-metalplane.cfg", CLOUD_CONFIG),
    ("etc/cloud/ds-identify.cfg", DS_IDENTIFY),
    (
        "etc/systemd/system/serial-getty@ttyS0.service.d/autologin.conf",
        "[Service]\nExecStart=\nExecStart=-/sbin/agetty --autologin root --keep-baud 115200 %I linux\n",
    ),
    (
        "etc/systemd/system/metalplane-boot.service",
        "[Unit]\nDescription=Tell the serial console that this boot is complete\n\
         After=cloud-init.service network-online.target\nWants=network-online.target\n\
         [Service]\nType=oneshot\n\
         ExecStart=/bin/sh -c 'printf \"\\\\nMP-BOOT %%s %%s\\\\n\" \"$(cat /var/lib/cloud/data/instance-id)\" \"$(hostname)\" >/dev/ttyS0'\n\
         [Install]\nWantedBy=multi-user.target\n",
    ),
];

/// Units that only cost time in a guest without a route to anywhere.
const MASKED: &[&str] =
    &["apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_reap.service", "systemd-timesyncd.service"];

/// Builds the disk into `folder`.
pub fn build(folder: &Path, cache: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(folder).context("create a work folder")?;
    let root = work.path().join("root");
    let root_name = root.display().to_string();
    let slim = "--dpkgopt=path-exclude=/usr/share/doc/*";
    let slimmer = "--dpkgopt=path-exclude=/usr/share/man/*";
    let slimmest = "--dpkgopt=path-exclude=/usr/share/locale/*";
    let include = format!("--include={PACKAGES}");
    let arguments =
        ["--quiet", "--mode=root", "--variant=minbase", slim, slimmer, slimmest, &include, "bookworm", &root_name];
    run("mmdebstrap", arguments)?;
    let kernel = Kernel::fetch(Flavour::Cloud, Architecture::here(), work.path(), cache)?;
    let modules = root.join("usr/lib/modules");
    fs::create_dir_all(&modules).with_context(|| format!("create {}", modules.display()))?;
    run("cp", [Path::new("-a"), kernel.modules_root(), &modules])?;
    run("chroot", [root_name.as_str(), "depmod", "-a", kernel.version()?])?;
    configure(&root)?;
    let content = Content {
        kernel: &kernel.image,
        initramfs: None,
        bios: false,
        command_line: &format!("root=PARTUUID={ROOT_PARTITION_ID} rw rootwait console=ttyS0 quiet loglevel=4"),
        system: "debian",
        esp_mib: 48,
        root_mib: 1024,
        root_label: "root",
        root: &root,
    };
    disk::write(folder, &content)
}

fn configure(root: &Path) -> Result<()> {
    for (path, content) in FILES {
        let file = root.join(path);
        let parent = file.parent().context("every file is in a folder")?;
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        fs::write(&file, content).with_context(|| format!("write {}", file.display()))?;
    }
    // Each clone is a machine of its own: these are made at its first start.
    fs::write(root.join("etc/machine-id"), "").context("empty the machine id")?;
    let root_name = root.display().to_string();
    run("chroot", [root_name.as_str(), "sh", "-c", "rm -f /etc/ssh/ssh_host_*; passwd -d root"])?;
    run("chroot", [root_name.as_str(), "systemctl", "enable", "systemd-networkd.service", "metalplane-boot.service"])?;
    let mask = ["chroot", root_name.as_str(), "systemctl", "mask"];
    run(mask[0], mask[1..].iter().chain(MASKED))?;
    Ok(())
}
