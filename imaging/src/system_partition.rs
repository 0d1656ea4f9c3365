//! An EFI system partition in a file: FAT32, as firmware of fixed disks expects it (UEFI 2.10, 13.3.1).

use fatfs::{FatType, FileSystem, FormatVolumeOptions, FsOptions};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// Of the disk's sectors.
pub(crate) const SECTOR: u64 = 512;
pub(crate) const MIB: u64 = 1 << 20;
/// Behind what is partitioned: the backup table.
pub(crate) const END: u64 = MIB;
/// FAT32 begins at 65,525 clusters (Microsoft's FAT specification 1.03), which is how a reader tells it from FAT16.
const LEAST: u64 = 40 * MIB;

/// A partition with files of so many bytes in all. FAT and folders take some of it.
pub(crate) fn room_for(length: u64) -> u64 {
    LEAST.max((length + length / 64 + 2 * MIB).next_multiple_of(MIB))
}

pub(crate) fn format<'a, 'b>(part: &'b mut Part<'a>, label: &[u8; 11]) -> io::Result<FileSystem<&'b mut Part<'a>>> {
    let sectors = u32::try_from(part.length / SECTOR).map_err(io::Error::other)?;
    let options = FormatVolumeOptions::new().fat_type(FatType::Fat32).bytes_per_cluster(512).total_sectors(sectors);
    fatfs::format_volume(&mut *part, options.volume_label(*label))?;
    part.rewind()?;
    FileSystem::new(part, FsOptions::new())
}

/// Of the partition table: unique is what is made from a name that is.
pub(crate) fn unique(name: &str) -> impl FnMut() -> io::Result<[u8; 16]> {
    let mut number = 0_u8;
    move || {
        number += 1;
        let hash = Sha256::digest(format!("{name}/{number}"));
        hash[..16].try_into().map_err(io::Error::other)
    }
}

/// A part of a file, as one of its own.
pub(crate) struct Part<'a> {
    disk: &'a File,
    first: u64,
    length: u64,
    at: u64,
}

impl<'a> Part<'a> {
    pub fn new(disk: &'a File, first: u64, length: u64) -> Self {
        Self { disk, first, length, at: 0 }
    }

    fn room(&self, wanted: usize) -> usize {
        let left = self.length.saturating_sub(self.at);
        usize::try_from(left).unwrap_or(usize::MAX).min(wanted)
    }
}

impl Read for Part<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = self.room(into.len());
        let read = self.disk.read_at(&mut into[..most], self.first + self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Write for Part<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let most = self.room(from.len());
        let written = self.disk.write_at(&from[..most], self.first + self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Part<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a place before the beginning"))?;
        Ok(self.at)
    }
}
