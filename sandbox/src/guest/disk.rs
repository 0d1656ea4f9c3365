//! A bootable raw disk: GPT, an ESP that holds one unified kernel image, an ext4 root. Built with files only.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::command::run;

pub const RECIPE: &str = include_str!("disk.rs");
pub const EFI_STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";

/// Every image's root partition has this id: a kernel without an initramfs finds its root by it.
pub const ROOT_PARTITION_ID: &str = "6d657461-6c70-4c61-8e65-726f6f740001";

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;
/// Room for the primary GPT before the first partition and for its copy behind the last.
const MARGIN: u64 = MIB;

/// What goes into the disk.
pub struct Content<'a> {
    pub kernel: &'a Path,
    pub initramfs: Option<&'a Path>,
    pub command_line: &'a str,
    /// `ID=` of the unified kernel image, shown by tools that list boot entries.
    pub system: &'a str,
    pub esp_mib: u64,
    pub root_mib: u64,
    pub root_label: &'a str,
    /// Folder whose content fills the root file system.
    pub root: &'a Path,
}

/// Writes `<folder>/disk.raw`; leaves nothing else there.
pub fn write(folder: &Path, content: &Content<'_>) -> Result<()> {
    let esp = esp(folder, content)?;
    let root = folder.join("root.ext4");
    set_size(&root, content.root_mib * MIB)?;
    let (source, target) = (content.root.as_os_str(), root.as_os_str());
    run("mkfs.ext4", ["-q".as_ref(), "-L".as_ref(), content.root_label.as_ref(), "-d".as_ref(), source, target])?;
    let disk = folder.join("disk.raw");
    let esp_start = MARGIN;
    let root_start = esp_start + content.esp_mib * MIB;
    set_size(&disk, root_start + content.root_mib * MIB + MARGIN)?;
    let first = format!("-n1:{}:+{}M", esp_start / SECTOR, content.esp_mib);
    let second = format!("-n2:{}:+{}M", root_start / SECTOR, content.root_mib);
    let disk_name = disk.display().to_string();
    let id = format!("-u2:{ROOT_PARTITION_ID}");
    run("sgdisk", [&first, "-t1:ef00", &second, "-t2:8300", "-c2:root", &id, &disk_name])?;
    copy_into(&esp, &disk, esp_start)?;
    copy_into(&root, &disk, root_start)?;
    for piece in [&esp, &root] {
        fs::remove_file(piece).with_context(|| format!("remove {}", piece.display()))?;
    }
    Ok(())
}

fn esp(folder: &Path, content: &Content<'_>) -> Result<PathBuf> {
    let image = unified_kernel_image(folder, content)?;
    let esp = folder.join("esp.vfat");
    set_size(&esp, content.esp_mib * MIB)?;
    let name = esp.display().to_string();
    run("mkfs.vfat", ["-F32", "-s1", "-n", "ESP", &name])?;
    run("mmd", ["-i", &name, "::/EFI", "::/EFI/BOOT"])?;
    run("mcopy", ["-i", &name, &image.display().to_string(), "::/EFI/BOOT/BOOTX64.EFI"])?;
    fs::remove_file(&image).with_context(|| format!("remove {}", image.display()))?;
    Ok(esp)
}

/// Kernel, initramfs and command line as one EFI program, by systemd's stub.
fn unified_kernel_image(folder: &Path, content: &Content<'_>) -> Result<PathBuf> {
    let release = folder.join("os-release");
    let command_line = folder.join("cmdline");
    fs::write(&release, format!("ID={0}\nNAME={0}\nVERSION_ID=1\n", content.system)).context("write os-release")?;
    fs::write(&command_line, content.command_line).context("write the kernel's command line")?;
    let image = folder.join("BOOTX64.EFI");
    // Addresses as systemd's own documentation gives them for this stub; the kernel may grow up to the initramfs.
    let mut sections: Vec<(&str, &Path, &str)> = vec![
        (".osrel", &release, "0x20000"),
        (".cmdline", &command_line, "0x30000"),
        (".linux", content.kernel, "0x2000000"),
    ];
    sections.extend(content.initramfs.map(|initramfs| (".initrd", initramfs, "0x4000000")));
    let mut arguments = Vec::new();
    for (name, file, address) in sections {
        arguments.push("--add-section".to_owned());
        arguments.push(format!("{name}={}", file.display()));
        arguments.push("--change-section-vma".to_owned());
        arguments.push(format!("{name}={address}"));
    }
    arguments.push(EFI_STUB.to_owned());
    arguments.push(image.display().to_string());
    run("objcopy", &arguments)?;
    for piece in [&release, &command_line] {
        fs::remove_file(piece).with_context(|| format!("remove {}", piece.display()))?;
    }
    Ok(image)
}

fn set_size(path: &Path, bytes: u64) -> Result<()> {
    let file = File::options().create(true).write(true).truncate(false).open(path);
    let file = file.with_context(|| format!("create {}", path.display()))?;
    file.set_len(bytes).with_context(|| format!("make {} {bytes} bytes long", path.display()))
}

/// Copies a partition's content to its place; blocks of zeros stay holes.
fn copy_into(piece: &Path, disk: &Path, start: u64) -> Result<()> {
    let mut from = File::open(piece).with_context(|| format!("open {}", piece.display()))?;
    let mut to = File::options().write(true).open(disk).with_context(|| format!("open {}", disk.display()))?;
    let mut block = vec![0; 1 << 18];
    let mut at = start;
    loop {
        let read = from.read(&mut block).with_context(|| format!("read {}", piece.display()))?;
        if read == 0 {
            return Ok(());
        }
        if block[..read].iter().any(|byte| *byte != 0) {
            to.seek(SeekFrom::Start(at)).with_context(|| format!("seek in {}", disk.display()))?;
            to.write_all(&block[..read]).with_context(|| format!("write {}", disk.display()))?;
        }
        at += read as u64;
    }
}
