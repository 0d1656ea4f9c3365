//! Guest images: raw disks that the virtual servers boot, built here from Debian's packages.
//!
//! An image is built once into `<cache>/guest-<kind>-<hash of its recipe>/disk.raw`; the recipe is everything in this
//! folder that shapes the image, so an edit makes a new folder and never changes a disk that somebody has cloned. The
//! version of Debian's kernel package is not part of it: the archive keeps one version and replaces it as it likes.
//!
//! - [`Kind::Tiny`]: Debian's cloud kernel and a busybox initramfs. It boots within seconds under emulation, reads
//!   its identity and its network from the seed disk (static, DHCP, SLAAC), and tells the serial console about each
//!   disk and NIC it sees (`MP-BOOT`, `MP-BLOCK`, `MP-NIC`, `MP-SERIAL`, `MP-ROOT`), so that a test can watch a
//!   hot-plug from inside.
//! - [`Kind::Old`]: the same, saying `MP-SYSTEM old`: what a server's local disk holds before Metalplane gets it.
//! - [`Kind::Debian`]: Debian 12 with systemd, cloud-init and sshd, for the demo.
//!
//! [`installer()`] is no disk: the kernel and initramfs that a server without a DPU boots from the network; [`unified_installer`] is both
//! as one program of UEFI, [`installer_iso`] a CD with that.
//!
//! No loop device and no mount is needed: file systems are filled by `mcopy` and `mkfs.ext4 -d`, then copied into
//! the partitions of a GPT. Each image boots from a unified kernel image at the ESP's removable-media path, so any
//! firmware that finds the disk finds the system. The tiny ones boot by BIOS too.

pub(crate) mod command;
mod cpio;
mod debian;
mod disk;
mod formatters;
mod hardware;
pub mod hold_disk;
mod installer;
mod kernel;

mod tiny;
mod unified;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::args;

pub use formatters::Formatters;
pub use installer::{Target, installer, installer_iso, unified_installer};
pub use tiny::{BootFiles, boot_files};
pub use unified::EFI_STUB;

/// Commands that building any image runs, and the Debian package that has each.
pub const COMMANDS: &[(&str, &str)] = &[
    ("busybox", "busybox-static"),
    ("sgdisk", "gdisk"),
    ("mkfs.vfat", "dosfstools"),
    ("mcopy", "mtools"),
    ("mkfs.ext4", "e2fsprogs"),
    ("objcopy", "binutils"),
    ("dpkg-deb", "dpkg"),
    ("apt-get", "apt"),
];

/// What the Debian image needs beside those.
pub const DEBIAN_COMMANDS: &[(&str, &str)] = &[("mmdebstrap", "mmdebstrap")];

/// Files that building images reads, and the Debian package that has each.
pub const FILES: &[(&str, &str)] = &[(EFI_STUB, "systemd-boot-efi")];

/// Which image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Tiny,
    Old,
    Debian,
}

impl Kind {
    /// The word on the command line and in the cache folder's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tiny => "tiny",
            Kind::Old => "old",
            Kind::Debian => "debian",
        }
    }

    fn recipe(self) -> Vec<&'static str> {
        let shared = [disk::RECIPE, unified::RECIPE, kernel::RECIPE];
        let own = match self {
            Kind::Tiny | Kind::Old => tiny::RECIPE,
            Kind::Debian => debian::RECIPE,
        };
        shared.into_iter().chain(own.iter().copied()).collect()
    }
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "tiny" => Ok(Kind::Tiny),
            "old" => Ok(Kind::Old),
            "debian" => Ok(Kind::Debian),
            other => Err(format!("there is no guest image '{other}': must be tiny, old or debian")),
        }
    }
}

/// `sandbox guest-image`: prints the path of the image, or of the copy that was asked for.
pub async fn run(args: &args::GuestImage) -> Result<()> {
    let kind: Kind = args.kind.parse().map_err(anyhow::Error::msg)?;
    let cache = args::cache_folder();
    let disk = tokio::task::spawn_blocking(move || image(kind, &cache)).await.context("the builder ended early")??;
    let path = match &args.out {
        None => disk,
        Some(out) => {
            command::run(
                "cp",
                ["--sparse=always".as_ref(), "--reflink=auto".as_ref(), disk.as_os_str(), out.as_os_str()],
            )?;
            out.clone()
        }
    };
    println!("{}", path.display());
    Ok(())
}

/// The path of the image's raw disk, built first if the cache lacks it. Nobody may write to that file: copy it.
pub fn image(kind: Kind, cache: &Path) -> Result<PathBuf> {
    let disk = cached(kind.name(), &kind.recipe(), cache, |folder| match kind {
        Kind::Tiny => tiny::build(folder, cache, "tiny", "mp-root"),
        Kind::Old => tiny::build(folder, cache, "old", "mp-old"),
        Kind::Debian => debian::build(folder, cache),
    })?;
    Ok(disk.join("disk.raw"))
}

/// The folder `<cache>/guest-<name>-<hash>`, filled by `build` if it is not there. One builder at a time: a second
/// process waits for the first and finds its result.
fn cached(name: &str, recipe: &[&str], cache: &Path, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let folder = cache.join(format!("guest-{name}-{}", hash(recipe)));
    if folder.is_dir() {
        return Ok(folder);
    }
    fs::create_dir_all(cache).with_context(|| format!("create the cache folder {}", cache.display()))?;
    let lock_path = cache.join(format!("guest-{name}.lock"));
    let lock = File::create(&lock_path).with_context(|| format!("create {}", lock_path.display()))?;
    lock.lock().with_context(|| format!("lock {}", lock_path.display()))?;
    if folder.is_dir() {
        return Ok(folder);
    }
    let unfinished = cache.join(format!("guest-{name}.unfinished"));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).with_context(|| format!("remove {}", unfinished.display()))?;
    }
    fs::create_dir(&unfinished).with_context(|| format!("create {}", unfinished.display()))?;
    tracing::info!(guest = name, "building a guest image into {}", folder.display());
    build(&unfinished).with_context(|| format!("build the guest image '{name}'"))?;
    fs::rename(&unfinished, &folder).with_context(|| format!("move the finished image to {}", folder.display()))?;
    Ok(folder)
}

fn hash(recipe: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in recipe {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_is_told_from_its_parts_joined_differently() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_eq!(hash(&["ab", "c"]), hash(&["ab", "c"]));
    }

    #[test]
    fn a_failed_build_leaves_nothing_that_looks_built() {
        let cache = tempfile::tempdir().expect("temporary folder");
        let failed = cached("x", &["r"], cache.path(), |_| anyhow::bail!("no disk space"));
        assert!(failed.is_err());
        let built = cached("x", &["r"], cache.path(), |folder| Ok(fs::write(folder.join("disk.raw"), b"x")?));
        assert!(built.expect("second build").join("disk.raw").is_file());
    }

    #[test]
    fn every_kind_is_found_by_its_name() {
        for kind in [Kind::Tiny, Kind::Old, Kind::Debian] {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("windows".parse::<Kind>().is_err());
    }
}
