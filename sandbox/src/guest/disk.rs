//! A bootable raw disk: GPT, an ESP that holds one unified kernel image, an ext4 root; for BIOS too, by SYSLINUX in the same ESP. Built
//! with files only.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::command::run;
use super::unified;
use crate::preflight;

pub const RECIPE: &str = include_str!("disk.rs");
/// A disk's first sector has so much room before its own table.
const MBR_ROOM: usize = 440;

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
    /// Whether BIOS boots it, beside UEFI.
    pub bios: bool,
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
    if content.bios {
        // The first sector's program starts what is in the partition that has this attribute.
        run("sgdisk", ["-A1:set:2", &disk_name])?;
        write_mbr(&disk, &preflight::syslinux()?.1)?;
    }
    copy_into(&esp, &disk, esp_start)?;
    copy_into(&root, &disk, root_start)?;
    for piece in [&esp, &root] {
        fs::remove_file(piece).with_context(|| format!("remove {}", piece.display()))?;
    }
    Ok(())
}

fn esp(folder: &Path, content: &Content<'_>) -> Result<PathBuf> {
    let image = folder.join("BOOTX64.EFI");
    let Content { kernel, initramfs, command_line, system, .. } = *content;
    unified::write(&image, &unified::Content { kernel, initramfs, command_line, system })?;
    let esp = folder.join("esp.vfat");
    set_size(&esp, content.esp_mib * MIB)?;
    let name = esp.display().to_string();
    run("mkfs.vfat", ["-F32", "-s1", "-n", "ESP", &name])?;
    run("mmd", ["-i", &name, "::/EFI", "::/EFI/BOOT"])?;
    run("mcopy", ["-i", &name, &image.display().to_string(), "::/EFI/BOOT/BOOTX64.EFI"])?;
    fs::remove_file(&image).with_context(|| format!("remove {}", image.display()))?;
    if content.bios {
        for_bios(folder, content, &name)?;
    }
    Ok(esp)
}

/// SYSLINUX, which reads kernel and initramfs from the same file system.
fn for_bios(folder: &Path, content: &Content<'_>, esp: &str) -> Result<()> {
    let mut config = format!("DEFAULT s\nLABEL s\n  KERNEL /vmlinuz\n  APPEND {}\n", content.command_line);
    run("mcopy", ["-i", esp, &content.kernel.display().to_string(), "::/vmlinuz"])?;
    if let Some(initramfs) = content.initramfs {
        run("mcopy", ["-i", esp, &initramfs.display().to_string(), "::/initramfs"])?;
        config.push_str("  INITRD /initramfs\n");
    }
    let file = folder.join("syslinux.cfg");
    fs::write(&file, config).context("write syslinux.cfg")?;
    run("mcopy", ["-i", esp, &file.display().to_string(), "::/syslinux.cfg"])?;
    fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
    run(&preflight::syslinux()?.0.display().to_string(), ["--install", esp]).map(|_| ())
}

fn write_mbr(disk: &Path, program: &Path) -> Result<()> {
    let code = fs::read(program).with_context(|| format!("read {}", program.display()))?;
    ensure!(code.len() <= MBR_ROOM, "{} has {} bytes, there is room for {MBR_ROOM}", program.display(), code.len());
    let file = File::options().write(true).open(disk);
    file.and_then(|mut file| file.write_all(&code)).with_context(|| format!("write {}", disk.display()))
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
