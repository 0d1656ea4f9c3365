//! `cargo xtask installer-image`: what a server without a DPU boots from the network.

use super::system::{DATA, Member, PROGRAMS};
use super::{locked, roots};
use crate::cross::Toolchain;
use crate::programs::{self, Release};
use anyhow::{Context, Result};
use sandbox::architecture::Architecture;
use sandbox::guest::{BootFiles, Formatters, Target};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const PROGRAM: &str = "installer";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build what ships: optimised, with the commit in it
    #[arg(long)]
    release: bool,
    /// For which architecture: amd64, arm64; what ships only [default: this machine's]
    #[arg(long, requires = "release", conflicts_with_all = ["unified", "iso"])]
    arch: Option<Architecture>,
    /// Where they go [default: target/images/installer; with --release target/release-images/installer]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Also installer.efi, which UEFI boots without iPXE; needs Debian's package systemd-boot-efi
    #[arg(long)]
    unified: bool,
    /// Also installer.iso with that, for a BMC's virtual media; needs xorriso, mtools and dosfstools
    #[arg(long)]
    iso: bool,
}

/// Beside the container images of the same kind.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let default = if options.release { "target/release-images/installer" } else { "target/images/installer" };
    let folder = root.join(options.out.as_deref().unwrap_or(Path::new(default)));
    let architecture = options.arch.unwrap_or(Architecture::here());
    let programs = match options.release {
        true => programs::release(root, &[PROGRAM], &Release::of(root)?, architecture)?,
        false => programs::build(root, &[PROGRAM])?,
    };
    let files = write(root, &programs, (architecture, options.release), &folder)?;
    if !options.unified && !options.iso {
        return Ok(());
    }
    let (unified, iso) = (folder.join("installer.efi"), folder.join("installer.iso"));
    sandbox::guest::unified_installer(&files, &unified)?;
    println!("{}", unified.display());
    if options.iso {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("a runtime")?;
        let (xorriso, environment) = runtime.block_on(sandbox::preflight::unpacked("xorriso", "xorriso"))?;
        sandbox::guest::installer_iso(&unified, &iso, (&xorriso, &environment))?;
        println!("{}", iso.display());
    }
    Ok(())
}

/// The installer as one program of UEFI for servers with these processors, as the agent's image has it to erase a server's disks with.
pub(super) fn eraser(root: &Path, release: Option<&Release>, out: &Path) -> Result<Option<Member>> {
    // The hosts' processors, whatever the DPU's are.
    let architecture = Architecture::Amd64;
    if architecture != Architecture::here() {
        eprintln!("image: SKIP the eraser for {architecture}: it is written on a machine of that architecture");
        return Ok(None);
    }
    if !Path::new(sandbox::guest::EFI_STUB).exists() {
        crate::test::packages()?;
    }
    let programs = match release {
        Some(release) => programs::release(root, &[PROGRAM], release, architecture)?,
        None => programs::build(root, &[PROGRAM])?,
    };
    let folder = out.join("eraser");
    let files = write(root, &programs, (architecture, release.is_some()), &folder)?;
    let name = format!("eraser-{}.efi", architecture.machine());
    let source = folder.join(&name);
    sandbox::guest::unified_installer(&files, &source)?;
    Ok(Some(Member { source, inside: format!("/usr/share/metalplane/{name}"), mode: DATA }))
}

/// As it ships.
pub(crate) fn of_release(root: &Path, release: &Release, architecture: Architecture, folder: &Path) -> Result<()> {
    let programs = programs::release(root, &[PROGRAM], release, architecture)?;
    write(root, &programs, (architecture, true), folder).map(|_| ())
}

fn write(
    root: &Path,
    programs: &BTreeMap<&'static str, PathBuf>,
    (architecture, ships): (Architecture, bool),
    folder: &Path,
) -> Result<BootFiles> {
    let program = programs.get(PROGRAM).context("the installer was built")?;
    let certificates = roots::member(root)?.source;
    let cache = sandbox::args::cache_folder();
    let toolchain = Toolchain::of(root, architecture)?;
    let pinned = if ships { Some(formatters(architecture)?) } else { None };
    let formatters = pinned.as_deref().map_or(Formatters::OfToday, Formatters::These);
    let target = Target { architecture, objcopy: &toolchain.objcopy, formatters };
    let files = sandbox::guest::installer(program, target, Some(&certificates), &cache, folder)?;
    for path in [&files.kernel, &files.initramfs] {
        println!("{}", path.display());
    }
    Ok(files)
}

/// Of the lock's packages, with the paths that they have in the initramfs.
fn formatters(architecture: Architecture) -> Result<Vec<(PathBuf, String)>> {
    let members = locked::files(&Formatters::WANTED, architecture)?;
    let path = |inside: String| match inside.strip_prefix(PROGRAMS) {
        Some(name) => format!("{}{name}", Formatters::FOLDER),
        None => inside,
    };
    Ok(members.into_iter().map(|member| (member.source, path(member.inside))).collect())
}
