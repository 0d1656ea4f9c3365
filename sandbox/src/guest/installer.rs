//! The installer's image: Debian's full kernel and an initramfs that has its modules for servers ([`hardware`]), certificates to trust,
//! the programs that make file systems ([`formatters`]), and one of ours. The same program, kernel and packages give the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::architecture::Architecture;
use crate::source_offer;

use super::command::{run, run_command};
use super::cpio::Archive;
use super::formatters::{self, Formatters};
use super::kernel::{self, Flavour, Kernel};
use super::tiny::BootFiles;
use super::{hardware, unified};

/// Of the kernel's part, which is kept in the cache.
const RECIPE: &[&str] = &[include_str!("installer.rs"), hardware::RECIPE, kernel::RECIPE, source_offer::RECIPE];
/// In the cache.
const MODULES: &str = "modules.cpio.gz";
const FORMATTERS: &str = "formatters.cpio.gz";
/// Of the kernel: what its licence says, and where its source is. Both are in the initramfs and beside it.
const NOTICES: [&str; 2] = ["copyright", "source"];
const NOTICES_FOLDER: &str = "usr/share/doc/linux";
/// Where programs look for those of a system.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

/// What the installer runs on.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub architecture: Architecture,
    /// The program of that name for it, which takes from the installer what only a debugger reads.
    pub objcopy: &'a Path,
    pub formatters: Formatters<'a>,
}

impl Target<'static> {
    /// A machine like this one.
    pub fn here() -> Self {
        Self { architecture: Architecture::here(), objcopy: Path::new("objcopy"), formatters: Formatters::OfToday }
    }
}

/// Writes kernel and initramfs of a static installer to `folder`, with the names by which `boot` serves them (`vmlinuz-x86_64`,
/// `initramfs-x86_64`), and what has to go with the kernel (`linux-x86_64.copyright`, `linux-x86_64.source`). Without a file of certificates an image's URL cannot be https.
pub fn installer(
    program: &Path,
    target: Target<'_>,
    certificates: Option<&Path>,
    cache: &Path,
    folder: &Path,
) -> Result<BootFiles> {
    let architecture = target.architecture;
    let name = format!("installer-kernel-{architecture}");
    let kept = super::cached(&name, RECIPE, cache, |into| keep_kernel(into, architecture, cache))?;
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let file = |name: &str| folder.join(format!("{name}-{}", architecture.machine()));
    let files = BootFiles { kernel: file("vmlinuz"), initramfs: file("initramfs") };
    let from = kept.join("vmlinuz");
    fs::copy(&from, &files.kernel).with_context(|| format!("copy {}", from.display()))?;
    for notice in NOTICES {
        let from = kept.join(notice);
        let to = folder.join(format!("linux-{}.{notice}", architecture.machine()));
        fs::copy(&from, &to).with_context(|| format!("copy {}", from.display()))?;
    }
    let modules = kept.join(MODULES);
    let mut whole = fs::read(&modules).with_context(|| format!("read {}", modules.display()))?;
    // The kernel unpacks archives one after the other.
    whole.extend(formatters_of(target, cache)?);
    whole.extend(packed(&archive(&stripped(program, target.objcopy)?, certificates)?)?);
    fs::write(&files.initramfs, whole).with_context(|| format!("write {}", files.initramfs.display()))?;
    Ok(files)
}

fn packed(archive: &[u8]) -> Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(archive).and_then(|()| packed.finish()).context("pack an archive")
}

/// Writes both as one program of UEFI, with a place for the kernel's arguments that `boot` fills.
pub fn unified_installer(files: &BootFiles, image: &Path) -> Result<()> {
    let BootFiles { kernel, initramfs } = files;
    let command_line = proto::argument_area::empty();
    let initramfs = Some(initramfs.as_path());
    unified::write(image, &unified::Content { kernel, initramfs, command_line: &command_line, system: "installer" })
}

/// Writes a CD that UEFI boots, with that program on it. `xorriso`: its path, and the environment that it needs.
pub fn installer_iso(program: &Path, image: &Path, xorriso: (&Path, &BTreeMap<String, String>)) -> Result<()> {
    let work = tempfile::tempdir().context("create a work folder")?;
    let system = work.path().join("efi.img");
    let length = fs::metadata(program).with_context(|| format!("read {}", program.display()))?.len();
    // What the file system needs for itself; El Torito counts to 32 MiB.
    let kib = (length / 1024 + 1024).next_multiple_of(32);
    ensure!(kib < 32 << 10, "{} has {length} bytes, too many for a bootable CD", program.display());
    let name = system.display().to_string();
    run("mkfs.vfat", ["-C", "-n", "INSTALLER", &name, &kib.to_string()])?;
    run("mmd", ["-i", &name, "::/EFI", "::/EFI/BOOT"])?;
    run("mcopy", ["-i", &name, &program.display().to_string(), "::/EFI/BOOT/BOOTX64.EFI"])?;
    let (folder, image) = (work.path().display().to_string(), image.display().to_string());
    let arguments =
        ["-as", "mkisofs", "-quiet", "-V", "INSTALLER", "-e", "/efi.img", "-no-emul-boot", "-o", &image, &folder];
    run_command(Command::new(xorriso.0).envs(xorriso.1).args(arguments)).map(|_| ())
}

/// The kernel, and an archive of the modules.
fn keep_kernel(folder: &Path, architecture: Architecture, cache: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(folder).context("create a work folder")?;
    let kernel = Kernel::fetch(Flavour::Full, architecture, work.path(), cache)?;
    fs::copy(&kernel.image, folder.join("vmlinuz")).with_context(|| format!("copy {}", kernel.image.display()))?;
    fs::copy(&kernel.copyright, folder.join(NOTICES[0]))
        .with_context(|| format!("copy {}", kernel.copyright.display()))?;
    fs::write(folder.join(NOTICES[1]), kernel.source_offer(architecture)).context("write the offer of its source")?;
    let modules = work.path().join("modules");
    fs::create_dir(&modules).context("create the modules' folder")?;
    hardware::write_modules(&kernel, architecture, &modules)?;
    let mut archive = Archive::default();
    archive.folder("lib");
    archive.folder("lib/modules");
    let entries = fs::read_dir(&modules).with_context(|| format!("list {}", modules.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().context("a module has a name")?.to_string_lossy().into_owned();
        let module = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        archive.program(&format!("lib/modules/{name}"), &module);
    }
    for part in ["usr", "usr/share", "usr/share/doc", NOTICES_FOLDER] {
        archive.folder(part);
    }
    for notice in NOTICES {
        let path = folder.join(notice);
        let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        archive.program(&format!("{NOTICES_FOLDER}/{notice}"), &text);
    }
    fs::write(folder.join(MODULES), packed(&archive.finish())?).with_context(|| format!("write {MODULES}"))
}

fn formatters_of(target: Target<'_>, cache: &Path) -> Result<Vec<u8>> {
    let architecture = target.architecture;
    if let Formatters::These(files) = target.formatters {
        return packed(&formatters::archive_of(files)?);
    }
    let name = format!("installer-formatters-{architecture}");
    let kept = super::cached(&name, &[formatters::RECIPE], cache, |into| keep_formatters(into, architecture, cache))?;
    let kept = kept.join(FORMATTERS);
    fs::read(&kept).with_context(|| format!("read {}", kept.display()))
}

fn keep_formatters(folder: &Path, architecture: Architecture, cache: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(folder).context("create a work folder")?;
    let archive = formatters::archive(architecture, work.path(), cache)?;
    fs::write(folder.join(FORMATTERS), packed(&archive)?).with_context(|| format!("write {FORMATTERS}"))
}

fn archive(program: &[u8], certificates: Option<&Path>) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for folder in "dev etc etc/ssl etc/ssl/certs proc run sys tmp".split(' ') {
        archive.folder(folder);
    }
    archive.program("init", program);
    if let Some(path) = certificates {
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        archive.program(CERTIFICATES, &bytes);
    }
    Ok(archive.finish())
}

/// Without what only a debugger reads. The initramfs has no libraries: a program that wants some would not start.
fn stripped(program: &Path, objcopy: &Path) -> Result<Vec<u8>> {
    let work = tempfile::tempdir().context("create a work folder")?;
    let out = work.path().join("init");
    run_command(Command::new(objcopy).arg("--strip-all").arg(program).arg(&out))?;
    let program = fs::read(&out).with_context(|| format!("read {}", out.display()))?;
    let loader = b"/ld-linux";
    ensure!(!program.windows(loader.len()).take(1 << 12).any(|window| window == loader), "the installer is not static");
    Ok(program)
}
