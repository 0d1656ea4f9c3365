//! The disk that a server's firmware is to list, and from which nothing starts: whoever boots it by chance is told so, and waits for ever.
//!
//! A GPT with one EFI system partition (FAT32): a loader that secure boot lets start, under the name that firmware starts where nobody names another
//! (UEFI 2.10, 3.5.1.1), and the GRUB that this one starts in turn, with a configuration that does nothing.

use crate::gpt::create::{Kind, Partition, create};
use crate::system_partition::{END, MIB, Part, SECTOR, format, room_for, unique};
use std::fs::File;
use std::io::{self, Write};

/// Debian's signed GRUB reads it there.
const CONFIGURATION: (&str, &str) = ("EFI/debian", "grub.cfg");
const TEXT: &str = "\
echo 'Nothing starts from this disk: by it Metalplane finds the boot option of the DPU of this server.'
while true; do sleep 3600; done
";
const FOLDER: &str = "EFI/BOOT";

/// Programs of UEFI.
pub struct Loader<'a> {
    /// Signed by Microsoft: a shim.
    pub first: &'a [u8],
    /// Signed by who has signed the shim's own key: GRUB.
    pub second: &'a [u8],
}

/// Writes the disk into an empty file. `name`: unique among disks.
pub fn make(disk: &File, name: &str, loader: &Loader<'_>) -> io::Result<()> {
    let length = (loader.first.len() + loader.second.len()) as u64;
    let system = room_for(length);
    let size = MIB + system + END;
    disk.set_len(size)?;
    let mut volume = Part::new(disk, MIB, system);
    let volume = format(&mut volume, b"HOLD       ")?;
    let root = volume.root_dir();
    root.create_dir("EFI")?;
    for (folder, file, bytes) in [
        (FOLDER, "BOOTX64.EFI", loader.first),
        (FOLDER, "grubx64.efi", loader.second),
        (CONFIGURATION.0, CONFIGURATION.1, TEXT.as_bytes()),
    ] {
        let mut file = root.create_dir(folder)?.create_file(file)?;
        file.write_all(bytes)?;
        file.flush()?;
    }
    drop(root);
    volume.unmount()?;
    let partition = Partition { name: "hold-disk".to_owned(), kind: Kind::EfiSystem, offset: MIB, length: system };
    create(disk, (size, SECTOR), &[partition], unique(name))?;
    disk.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fatfs::{FileSystem, FsOptions};
    use std::io::Read;

    #[test]
    fn each_program_is_where_the_one_before_looks() {
        let disk = tempfile::tempfile().expect("a file");
        make(&disk, "a-name", &Loader { first: b"shim", second: b"grub" }).expect("made");
        let size = disk.metadata().expect("a size").len();
        let mut volume = Part::new(&disk, MIB, size - MIB - END);
        let volume = FileSystem::new(&mut volume, FsOptions::new()).expect("a FAT volume");
        for (path, expected) in
            [("EFI/BOOT/BOOTX64.EFI", "shim"), ("EFI/BOOT/grubx64.efi", "grub"), ("EFI/debian/grub.cfg", TEXT)]
        {
            let mut text = String::new();
            volume.root_dir().open_file(path).expect(path).read_to_string(&mut text).expect(path);
            assert_eq!(text, expected, "{path}");
        }
    }
}
