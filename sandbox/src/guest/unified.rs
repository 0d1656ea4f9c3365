//! Kernel, initramfs and command line as one EFI program, by systemd's stub: a unified kernel image.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::command::run;

pub const RECIPE: &str = include_str!("unified.rs");
pub const EFI_STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";

pub struct Content<'a> {
    pub kernel: &'a Path,
    pub initramfs: Option<&'a Path>,
    pub command_line: &'a str,
    /// `ID=`, shown by tools that list boot entries.
    pub system: &'a str,
}

/// Leaves nothing else in the image's folder.
pub fn write(image: &Path, content: &Content<'_>) -> Result<()> {
    let (release, command_line) = (image.with_extension("os-release"), image.with_extension("cmdline"));
    fs::write(&release, format!("ID={0}\nNAME={0}\nVERSION_ID=1\n", content.system)).context("write os-release")?;
    fs::write(&command_line, content.command_line).context("write the kernel's command line")?;
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
    Ok(())
}
