//! `cargo xtask release` (`make release`): everything that an installation needs, in one folder.
//!
//! | in `dist/VERSION` | what it is |
//! |---|---|
//! | `images/` | the container images, an OCI layout in a tar each, with an index of the architectures, and `values.yaml` with their references |
//! | `charts/` | both charts as helm takes them; the references of these very images are in the values |
//! | `installer/` | kernel and initramfs of the system that installs a server over the network, of each architecture, and what the kernel's licence wants beside it |
//! | `bmctl-linux-ARCH` | the command line program, of each architecture |
//! | `third-party.txt` | the licences of what is compiled into `bmctl` and the installer; each image has those of its own programs |
//! | `install.md` | the commands, in their order |
//! | `SHA256SUMS` | of every other file |
//!
//! Nothing in it tells when, where or by whom it was built: the same commit gives the same sums. `cargo xtask judges release`
//! builds a clone in another folder besides, and compares.

mod chart;

use crate::image;
use crate::programs::{self, Release, VERSION};
use crate::third_party;
use anyhow::{Context, Result};
use sandbox::architecture::Architecture;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const INSTALL: &str = include_str!("install.md");
pub(crate) const SUMS: &str = "SHA256SUMS";
const NOTICE: &str = "third-party.txt";

/// By which a site is told to install a release.
pub(crate) const VARIABLE: &str = "METALPLANE_RELEASE";

#[derive(Default, clap::Args)]
pub(crate) struct Options {
    /// The folder, made anew [default: dist/VERSION]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Only for this architecture: amd64 or arm64 [default: both]
    #[arg(long, value_delimiter = ',')]
    arch: Vec<Architecture>,
}

impl Options {
    /// For machines like this one alone.
    pub(crate) fn here() -> Self {
        Self { arch: vec![Architecture::here()], ..Self::default() }
    }
}

/// The command line program of a release, in its folder.
pub(crate) fn bmctl(architecture: Architecture) -> String {
    format!("bmctl-linux-{architecture}")
}

/// The folder.
pub(crate) fn run(root: &Path, options: &Options) -> Result<PathBuf> {
    let release = Release::of(root)?;
    if release.is_dirty() {
        eprintln!("release: files differ from commit {}: this release cannot be built again", release.commit);
    }
    let architectures = if options.arch.is_empty() { Architecture::ALL.to_vec() } else { options.arch.clone() };
    let out = root.join(options.out.clone().unwrap_or_else(|| Path::new("dist").join(VERSION)));
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("remove {}", out.display()))?;
    }
    let images = out.join("images");
    image::of_release(root, &release, &architectures, &images)?;
    for chart in ["metalplane-crds", "metalplane"] {
        let file = out.join("charts").join(format!("{chart}-{VERSION}.tgz"));
        chart::write(&root.join("charts").join(chart), &image::references(&images)?, &file)?;
    }
    for architecture in &architectures {
        image::installer_of_release(root, &release, *architecture, &out.join("installer"))?;
        let program = &programs::release(root, &["bmctl"], &release, *architecture)?["bmctl"];
        let copy = out.join(bmctl(*architecture));
        fs::copy(program, &copy).with_context(|| format!("copy {} to {}", program.display(), copy.display()))?;
    }
    let mut works = Vec::new();
    for architecture in &architectures {
        works.extend(third_party::of_rust(root, &["bmctl", "installer"], *architecture)?);
    }
    fs::write(out.join(NOTICE), third_party::notice("Each of bmctl and the installer", works))
        .with_context(|| format!("write {NOTICE}"))?;
    let text = INSTALL.replace("{version}", VERSION).replace("{commit}", &release.commit);
    let names: Vec<&str> = architectures.iter().map(|architecture| architecture.name()).collect();
    fs::write(out.join("install.md"), text.replace("{architectures}", &names.join(" and ")))
        .context("write install.md")?;
    fs::write(out.join(SUMS), sums(&out)?).with_context(|| format!("write {SUMS}"))?;
    Ok(out)
}

/// In the form that `sha256sum --check` reads, sorted by name.
fn sums(folder: &Path) -> Result<String> {
    let mut lines = String::new();
    for file in files(folder)? {
        let mut digest = Sha256::new();
        let mut content = File::open(&file).with_context(|| format!("read {}", file.display()))?;
        std::io::copy(&mut content, &mut digest).with_context(|| format!("read {}", file.display()))?;
        let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let name = file.strip_prefix(folder).context("a file of the folder")?;
        lines.push_str(&format!("{hex}  {}\n", name.display()));
    }
    Ok(lines)
}

/// Every file below a folder, sorted by path.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry.with_context(|| format!("read {}", folder.display()))?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256sum_accepts_the_sums_and_finds_a_changed_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("charts/x.tgz");
        fs::create_dir_all(inner.parent().expect("a folder")).expect("made");
        fs::write(&inner, "chart").and_then(|()| fs::write(folder.path().join("install.md"), "text")).expect("written");
        let sums = sums(folder.path()).expect("sums");
        fs::write(folder.path().join(SUMS), sums).expect("written");
        let check = || {
            let mut command = std::process::Command::new("sha256sum");
            command.current_dir(folder.path()).args(["--check", "--strict", SUMS]).output().expect("sha256sum runs")
        };
        let said = check();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        assert_eq!(String::from_utf8_lossy(&said.stdout), "charts/x.tgz: OK\ninstall.md: OK\n");
        fs::write(&inner, "another chart").expect("written");
        assert!(!check().status.success());
    }

    #[test]
    fn every_file_that_the_instructions_name_is_one_of_the_release() {
        for named in
            ["SHA256SUMS", "images/controller.tar", "charts/metalplane-{version}.tgz", "bmctl-linux-$ARCHITECTURE"]
        {
            assert!(INSTALL.contains(named), "{named}");
        }
    }
}
