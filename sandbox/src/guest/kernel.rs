//! Debian's kernels, for cloud machines and for all, taken from its package without installing it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::architecture::Architecture;
use crate::packages::{self, Package, Packages};
use crate::source_offer::source_offer;

pub const RECIPE: &str = include_str!("kernel.rs");

/// What a kernel is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Virtual machines: small, and starts fast.
    Cloud,
    /// Whatever a server has.
    Full,
}

/// An unpacked kernel package.
pub struct Kernel {
    pub image: PathBuf,
    modules: PathBuf,
    /// What its licence says, as Debian ships it.
    pub copyright: PathBuf,
    package: Package,
}

impl Kernel {
    /// Downloads the package that the meta-package names today and unpacks it under `work`.
    pub fn fetch(flavour: Flavour, architecture: Architecture, work: &Path, cache: &Path) -> Result<Kernel> {
        let packages = Packages::of(architecture.name(), cache)?;
        packages.update();
        let cloud = if flavour == Flavour::Cloud { "cloud-" } else { "" };
        let named = packages.behind(&format!("linux-image-{cloud}{architecture}"), "linux-image-")?;
        let planned = packages.with_dependencies(&[&named])?;
        let package = planned.iter().find(|package| package.name == named);
        let package = package.with_context(|| format!("apt-get would not install {named}"))?;
        let (archive, _) = packages.download(package, work)?;
        let tree = work.join("kernel");
        packages::unpack(&archive, &tree)?;
        let image = the_only(&tree.join("boot"), |name| name.starts_with("vmlinuz-"))?;
        let modules = the_only(&tree.join("lib/modules"), |_| true)?.join("kernel");
        let copyright = tree.join("usr/share/doc").join(&package.name).join("copyright");
        Ok(Kernel { image, modules, copyright, package: package.clone() })
    }

    /// Where its source is.
    pub fn source_offer(&self, architecture: Architecture) -> String {
        offer(&self.package, architecture)
    }

    /// The folder `kernel` below that of the version.
    pub fn modules(&self) -> &Path {
        &self.modules
    }

    /// The folder `<version>` below `lib/modules`.
    pub fn modules_root(&self) -> &Path {
        self.modules.parent().unwrap_or(&self.modules)
    }

    /// The version that names the modules' folder.
    pub fn version(&self) -> Result<&str> {
        let name = self.modules_root().file_name().and_then(|name| name.to_str());
        name.with_context(|| format!("no kernel version in {}", self.modules.display()))
    }

    /// The bytes of one module, named by its path below `kernel/` without the extension.
    pub fn module(&self, path: &str) -> Result<Vec<u8>> {
        let file = self.modules.join(format!("{path}.ko"));
        fs::read(&file).with_context(|| format!("read the kernel module {}", file.display()))
    }
}

fn offer(package: &Package, architecture: Architecture) -> String {
    let (Package { name, version }, machine) = (package, architecture.machine());
    let files = format!(
        "The kernel vmlinuz-{machine} and the modules in initramfs-{machine} are those of Debian's package {name}, version {version} \
         ({architecture}), unchanged. Their licence is the GNU General Public License, version 2; it stands, with the names of those whose \
         work they are, in linux-{machine}.copyright."
    );
    source_offer(&files, &Package { name: "linux".to_owned(), version: version.clone() })
}

fn the_only(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("list {}", folder.display()))?;
        if wanted(&entry.file_name().to_string_lossy()) {
            return Ok(entry.path());
        }
    }
    anyhow::bail!("nothing of the kernel package is in {}", folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offer_names_the_source_of_this_very_kernel() {
        let package = Package { name: "linux-image-6.1.0-40-amd64".to_owned(), version: "6.1.153-1".to_owned() };
        let offer = offer(&package, Architecture::Amd64);
        for named in [
            "package linux-image-6.1.0-40-amd64, version 6.1.153-1 (amd64)",
            "vmlinuz-x86_64",
            "linux-x86_64.copyright",
            "source package linux, version 6.1.153-1,",
            "\n    apt-get source linux=6.1.153-1\n",
            "three years",
        ] {
            assert!(offer.contains(named), "{named}: {offer}");
        }
    }
}
